"""Ack, nack, extend and release: only by who holds the job, and with what they promise."""

import pytest
from tests.unit.engine.place import Place, seqs_of
from tests.unit.engine.queues.test_claim import claim, queue, state

from topics.errors import BatchTooLarge, DiskFailed, RequestError
from topics.model.queues import AckRequest, QueueState
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan


def test_an_ack_deletes_for_good(place: Place) -> None:
    queue(place, 3)
    claim(place, "w1", 2)
    acked = place.log.ack("jobs", [2], node="w1")
    assert (acked.acked, acked.skipped, acked.ready, acked.in_flight) == (1, [], 1, 1)
    assert seqs_of(place.log.diff("jobs")) == [1, 3]
    place.clock.advance_ms(10_000)
    assert claim(place, "w2", 9) == [1, 3]


def test_seqs_that_a_worker_does_not_hold_are_skipped_and_listed(place: Place) -> None:
    queue(place, 4)
    claim(place, "w1", 2)
    claim(place, "w2", 1)
    acked = place.log.ack("jobs", [1, 3, 4, 99, 1], node="w1")
    assert (acked.acked_seqs, acked.skipped) == ([1], [3, 4, 99, 1])


def test_a_stale_lease_id_is_refused(place: Place) -> None:
    queue(place, 1)
    old = place.log.claim("jobs", node="w1", lease_ms=100).leases[0].lease_id
    place.clock.advance_ms(100)
    new = place.log.claim("jobs", node="w1").leases[0].lease_id  # the same worker, started again
    assert place.log.ack("jobs", [1], node="w1", lease_ids=[old]).skipped == [1]
    assert place.log.nack("jobs", [1], node="w1", lease_ids=[old]).skipped == [1]
    extended = place.log.extend("jobs", [1], node="w1", lease_ids=[old], lease_ms=100)
    assert (extended.extended, extended.skipped, extended.deadlines) == (0, [1], {})
    assert place.log.ack("jobs", [1], node="w1", lease_ids=[new]).acked == 1


def test_an_ack_after_the_deadline_is_too_late(place: Place) -> None:
    queue(place, 1)
    claim(place, "w1")
    place.clock.advance_ms(1_000)
    assert place.log.ack("jobs", [1], node="w1").skipped == [1]
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=0)


def test_a_delayed_nack_is_ready_when_its_time_has_come(place: Place) -> None:
    queue(place, 1)
    claim(place, "w1")
    nacked = place.log.nack("jobs", [1], node="w1", delay_ms=300)
    assert (nacked.nacked, nacked.ready, nacked.in_flight) == (1, 0, 0)
    engine = place.log.engine
    assert engine.next_claimable_ms(engine.topic("jobs")) == place.clock.now_ms() + 300
    place.clock.advance_ms(299)
    assert claim(place, "w2") == []
    place.clock.advance_ms(1)
    assert state(place).ready == 1
    assert claim(place, "w2") == [1]


def test_an_extension_counts_from_now(place: Place) -> None:
    queue(place, 1)
    claim(place, "w1")
    place.clock.advance_ms(900)
    extended = place.log.extend("jobs", [1, 2], node="w1", lease_ms=500)
    deadline = place.clock.now_ms() + 500
    assert (extended.extended, extended.skipped, extended.deadlines) == (1, [2], {1: deadline})
    place.clock.advance_ms(499)
    assert claim(place, "w2") == []
    place.clock.advance_ms(1)
    assert claim(place, "w2") == [1]


def test_a_lease_can_be_made_shorter(place: Place) -> None:
    queue(place, 1)
    claim(place, "w1")
    place.log.extend("jobs", [1], node="w1", lease_ms=100)
    place.clock.advance_ms(100)
    assert claim(place, "w2") == [1]


def test_what_a_closed_connection_held_is_ready_at_once_and_counts_as_delivered(
    place: Place,
) -> None:
    queue(place, 3)
    engine = place.log.engine
    topic = engine.topic("jobs")
    ids = [lease.lease_id for lease in place.log.claim("jobs", node="w1", max=2).leases]
    place.log.ack("jobs", [1], node="w1")
    assert engine.release(topic, "w2", ids) == 0
    assert engine.release(topic, "w1", [*ids, "lease_unknown"]) == 1
    assert engine.release(topic, "w1", ids) == 0
    leases = place.log.claim("jobs", node="w2", max=9).leases
    assert [(lease.seq, lease.deliveries) for lease in leases] == [(2, 2), (3, 1)]


def test_listeners_hear_when_jobs_become_ready_or_a_hand_is_free(place: Place) -> None:
    queue(place, 0)
    engine = place.log.engine
    topic = engine.topic("jobs")
    assert topic.queue is not None
    heard: list[str] = []
    topic.queue.listeners.add(lambda: heard.append("ready"))

    def count() -> int:
        found, heard[:] = len(heard), []
        return found

    place.log.append("jobs", [{"data": 1}, {"data": 2}])
    assert count() == 1
    leases = place.log.claim("jobs", node="w1", max=2).leases
    assert count() == 0
    place.log.nack("jobs", [1], node="w1")
    assert count() == 1
    place.log.nack("jobs", [2], node="w1", delay_ms=50)
    assert count() == 1
    place.clock.advance_ms(50)
    engine.sweep()
    assert count() == 1
    leases = place.log.claim("jobs", node="w1", max=2).leases
    engine.release(topic, "w1", [leases[0].lease_id])
    assert count() == 1
    place.clock.advance_ms(1_000)
    engine.sweep_queues()
    assert count() == 1
    engine.sweep_queues()
    assert count() == 0
    (lease,) = place.log.claim("jobs", node="w1").leases
    place.log.ack("jobs", [lease.seq], node="w1")
    assert count() == 1
    place.log.drop("jobs")
    assert count() == 1


def test_requests_that_cannot_be_meant_are_refused(place: Place) -> None:
    queue(place)
    claim(place, "w1", 3)
    with pytest.raises(BatchTooLarge):
        place.log.ack("jobs", range(1_001), node="w1")
    with pytest.raises(RequestError, match="node"):
        place.log.ack("jobs", [1], node="")
    with pytest.raises(RequestError, match="lease_ids"):
        place.log.ack("jobs", [1, 2], node="w1", lease_ids=["lease_1"])
    assert state(place).in_flight == 3


def test_an_ack_of_a_synced_queue_waits_for_its_sync(place: Place) -> None:
    queue(place, 2, durability="fsync")
    claim(place, "w1", 2)
    engine = place.log.engine
    topic = engine.topic("jobs")
    shard, ticket = engine.submit_ack(topic, AckRequest(node="w1", seqs=[1]))
    with shard.lock:
        shard.commit.flush()
    assert not ticket.done
    assert seqs_of(place.log.diff("jobs")) == [1, 2]
    assert state(place).in_flight == 2
    assert place.log.ack("jobs", [1], node="w1").skipped == [1]
    shard.commit.commit(ticket)
    assert seqs_of(place.log.diff("jobs")) == [2]
    place.cut()
    assert claim(place, "w2", 9) == [2]


def test_a_job_whose_ack_is_on_its_way_does_not_expire(place: Place) -> None:
    queue(place, 1, durability="fsync")
    claim(place, "w1")
    engine = place.log.engine
    shard, ticket = engine.submit_ack(engine.topic("jobs"), AckRequest(node="w1", seqs=[1]))
    place.clock.advance_ms(5_000)
    assert claim(place, "w2") == []
    shard.commit.commit(ticket)
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=0)


def test_an_ack_that_fails_leaves_the_job_with_its_worker(place: Place) -> None:
    queue(place, 1, durability="fsync")
    claim(place, "w1")
    place.disk.arm(FaultPlan().fail(at_call=1, error=DiskFailed, forever=True))
    with pytest.raises(DiskFailed):
        place.log.ack("jobs", [1], node="w1")
    assert state(place) == QueueState(ready=0, in_flight=1, dead_lettered=0)
    assert seqs_of(place.log.diff("jobs")) == [1]
    place.disk.arm(NO_FAULTS)


def test_a_durable_claim_that_fails_was_no_delivery(place: Place) -> None:
    queue(place, 1, durability="fsync", leases_durable=True)
    place.disk.arm(FaultPlan().fail(at_call=1, error=DiskFailed, forever=True))
    with pytest.raises(DiskFailed):
        claim(place, "w1")
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=0)
    topic = place.log.engine.topic("jobs")
    assert topic.queue is not None
    assert topic.queue.jobs[1].deliveries == 0
    place.disk.arm(NO_FAULTS)


def test_an_ephemeral_queue_writes_nothing(place: Place) -> None:
    queue(place, 2, durability="ephemeral", leases_durable=True)
    place.log.sync()
    calls = place.disk.calls_made
    claim(place, "w1", 2)
    place.log.nack("jobs", [1], node="w1")
    assert place.log.ack("jobs", [2], node="w1").acked == 1
    assert place.disk.calls_made == calls


def test_an_ack_outlives_a_change_to_ephemeral(place: Place) -> None:
    queue(place, 2)
    place.log.create("jobs", durability="ephemeral")
    claim(place, "w1", 2)
    place.log.ack("jobs", [1], node="w1")
    place.kill()
    assert seqs_of(place.log.diff("jobs")) == [2]


def test_an_ack_that_fails_leaves_alone_what_is_no_job_any_more(place: Place) -> None:
    queue(place, 2, durability="fsync", ttl_ms=5_000)
    engine = place.log.engine
    table = engine.topic("jobs").queue
    assert table is not None
    lease_id = place.log.claim("jobs", node="w1", max=2).leases[0].lease_id
    shard, ticket = engine.submit_ack(engine.topic("jobs"), AckRequest(node="w1", seqs=[1]))
    with shard.lock:
        shard.commit.flush()
    place.clock.advance_ms(10_000)
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=0)
    shard.commit.close()
    assert ticket.error is not None
    assert table.by_lease(lease_id) is None
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=0)
