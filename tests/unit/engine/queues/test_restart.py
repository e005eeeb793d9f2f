"""What a stop, a kill and a power cut leave of a queue."""

import pytest
from tests.unit.engine.place import Place, seqs_of
from tests.unit.engine.queues.test_claim import claim, queue, state

from topics.errors import UnknownFormat
from topics.model.queues import QueueState
from topics.operate.repair import repair
from topics.operate.verify import verify
from topics.storage.wal.frame import Lease, encode_control
from topics.testing.hostile_disk import HostileDisk

WAYS = ["stop", "kill", "cut"]


def restart(place: Place, way: str) -> None:
    if way == "cut":
        place.log.sync()
    getattr(place, way)()


@pytest.mark.parametrize("way", WAYS)
def test_without_durable_leases_every_job_is_ready_again_and_new(place: Place, way: str) -> None:
    queue(place, 4)
    claim(place, "w1", 3)
    place.log.ack("jobs", [2], node="w1")
    restart(place, way)
    assert state(place) == QueueState(ready=3, in_flight=0, dead_lettered=0)
    leases = place.log.claim("jobs", node="w2", max=9).leases
    assert [(lease.seq, lease.deliveries) for lease in leases] == [(1, 1), (3, 1), (4, 1)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("snapshots", [0, 1, 2])
def test_durable_leases_are_what_they_were(place: Place, way: str, snapshots: int) -> None:
    queue(place, 5, leases_durable=True)
    ids = {lease.seq: lease.lease_id for lease in place.log.claim("jobs", node="w1", max=4).leases}
    place.log.extend("jobs", [1], node="w1", lease_ms=5_000)
    place.log.nack("jobs", [2], node="w1", delay_ms=2_000)
    place.log.nack("jobs", [3], node="w1")
    for _ in range(snapshots):
        place.log.engine.snapshot()
    restart(place, way)
    assert state(place) == QueueState(ready=2, in_flight=2, dead_lettered=0)
    leases = place.log.claim("jobs", node="w2", max=9).leases
    assert [(lease.seq, lease.deliveries) for lease in leases] == [(3, 2), (5, 1)]
    assert place.log.ack("jobs", [4], node="w1", lease_ids=[ids[4]]).acked == 1
    place.clock.advance_ms(2_000)
    leases = place.log.claim("jobs", node="w3", max=9).leases
    assert [(lease.seq, lease.deliveries) for lease in leases] == [(2, 2), (3, 3), (5, 2)]
    place.clock.advance_ms(3_000)
    assert claim(place, "w4", 9) == [1, 2, 3, 5]


@pytest.mark.parametrize("way", WAYS)
def test_an_ack_outlives_its_frame(place: Place, way: str) -> None:
    queue(place, 9)
    place.log.engine.checkpoint()
    claim(place, "w1", 9)
    place.log.ack("jobs", [1, 5, 9], node="w1")
    place.log.engine.snapshot()
    place.log.engine.snapshot()
    restart(place, way)
    assert seqs_of(place.log.diff("jobs")) == [2, 3, 4, 6, 7, 8]
    assert claim(place, "w2", 9) == [2, 3, 4, 6, 7, 8]


def test_jobs_claimed_before_leases_became_durable_are_not_lost(place: Place) -> None:
    queue(place, 4)
    claim(place, "w1", 2)
    place.log.create("jobs", leases_durable=True)
    claim(place, "w2", 1)
    place.kill()
    assert state(place) == QueueState(ready=3, in_flight=1, dead_lettered=0)
    assert claim(place, "w3", 9) == [1, 2, 4]


def test_leases_that_are_not_durable_any_more_are_forgotten(place: Place) -> None:
    queue(place, 2, leases_durable=True)
    claim(place, "w1", 2)
    place.log.create("jobs", leases_durable=False)
    place.kill()
    assert claim(place, "w2", 9) == [1, 2]


def test_a_start_keeps_no_list_of_the_jobs_that_are_done(place: Place) -> None:
    queue(place, 3)
    claim(place, "w1", 2)
    place.log.ack("jobs", [1, 2], node="w1")
    place.kill()
    assert place.log.engine.topic("jobs").replayed_deletes == []
    assert seqs_of(place.log.diff("jobs")) == [3]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", ["sync", "checkpoint", "snapshot"])
def test_jobs_that_a_router_made_stay_acked(place: Place, way: str, step: str) -> None:
    """Copies are built again from their source: the acked ones must not come back with them."""
    place.log.create("events", durability="fsync")
    queue(place, 0, durability="fsync")
    engine = place.log.engine
    engine.put_router("r", {"source": "events", "dest": "jobs"})
    place.fill("events", 4)
    engine.forward_for(engine.topic("jobs"))
    assert claim(place, "w1", 3) == [1, 2, 3]
    getattr(engine, step)()
    place.log.ack("jobs", [1, 3], node="w1")
    restart(place, way)
    assert seqs_of(place.log.diff("jobs")) == [2, 4]
    assert claim(place, "w2", 9) == [2, 4]


@pytest.mark.parametrize("way", WAYS)
def test_what_was_copied_from_a_queue_stays_when_its_jobs_are_acked(place: Place, way: str) -> None:
    queue(place, 4, durability="fsync")
    place.log.create("seen", durability="fsync")
    engine = place.log.engine
    engine.put_router("r", {"source": "jobs", "dest": "seen"})
    place.log.append("jobs", [{"data": 5}, {"data": 6}])
    engine.forward_for(engine.topic("seen"))
    before = [(record.seq, record.data) for record in place.log.diff("seen").records]
    claim(place, "w1", 6)
    place.log.ack("jobs", [1, 5], node="w1")
    restart(place, way)
    engine = place.log.engine
    engine.forward_for(engine.topic("seen"))
    after = [(record.seq, record.data) for record in place.log.diff("seen").records]
    assert after == before
    assert seqs_of(place.log.diff("jobs")) == [2, 3, 4, 6]


def test_another_number_of_shards_finds_the_same_queue(place: Place) -> None:
    queue(place, 3, leases_durable=True)
    claim(place, "w1", 1)
    place.stop(wal_shards=3)
    assert claim(place, "w2", 9) == [2, 3]


def test_an_event_of_a_later_version_stops_the_start(place: Place) -> None:
    queue(place, 1)
    engine = place.log.engine
    topic = engine.topic("jobs")
    body = Lease(event="lend", node="w1", seqs=[1], lease_ids=[], deadline=0)
    shard = engine.shard_of(topic)
    with shard.lock:
        shard.submit_control(encode_control(body, topic_id=topic.id), needs_sync=True)
    engine.sync()
    with pytest.raises(UnknownFormat, match="lend"):
        place.kill()


def test_verify_and_repair_understand_a_queue(place: Place) -> None:
    place.cold_disk = None
    place.log.close()
    place.open()
    queue(place, 6, leases_durable=True, max_deliveries=1, dead_letter="dead")
    claim(place, "w1", 4)
    place.log.ack("jobs", [1, 4], node="w1")
    place.log.engine.checkpoint()
    place.log.ack("jobs", [2], node="w1")
    place.log.nack("jobs", [3], node="w1")
    claim(place, "w2", 1)  # 3 dies, and this is 5
    place.disk = place.disk.kill()
    assert verify(place.disk).healthy
    repaired = HostileDisk()
    repair(place.disk, into=repaired)
    place.disk = repaired
    place.open()
    assert seqs_of(place.log.diff("jobs")) == [5, 6]
    assert state(place) == QueueState(ready=1, in_flight=1, dead_lettered=1)
    place.log.nack("jobs", [5], node="w2")
    claim(place, "w2", 2)
    assert len(place.log.diff("dead").records) == 2
