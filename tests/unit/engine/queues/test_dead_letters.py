"""Dead letters: when a job dies, what its copy says, and that there is one of it."""

import threading
from itertools import chain
from typing import Any

import pytest
from tests.unit.engine.place import Place, seqs_of
from tests.unit.engine.queues.test_claim import claim, queue, state

from topics.engine.queues.table import Move
from topics.engine.topics.topic import Topic
from topics.errors import CorruptData, DiskFailed, RequestError, Throttled
from topics.model.queues import ClaimRequest, QueueState
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan

DEADLINE_S = 10.0


def fail(place: Place, *, node: str = "w1") -> list[int]:
    """Claim a job and give it back."""
    seqs = claim(place, node)
    place.log.nack("jobs", seqs, node=node)
    return seqs


def dead(place: Place, topic: str = "dead") -> list[tuple[Any, dict[str, Any] | None]]:
    return [(record.data, record.meta) for record in place.log.diff(topic).records]


def mark(seq: int, deliveries: int = 1, queue_name: str = "jobs") -> dict[str, Any]:
    return {
        "$dead_letter_from": queue_name,
        "$dead_letter_deliveries": deliveries,
        "$dead_letter_src_seq": seq,
    }


def test_the_claim_that_would_exceed_the_limit_moves_the_job(place: Place) -> None:
    queue(place, 2, max_deliveries=2, dead_letter="dead")
    assert fail(place) == [1]
    assert fail(place) == [1]
    assert state(place) == QueueState(ready=2, in_flight=0, dead_lettered=0)
    assert claim(place) == [2]
    assert dead(place) == [(1, mark(1, 2))]
    assert seqs_of(place.log.diff("jobs")) == [2]
    assert state(place) == QueueState(ready=0, in_flight=1, dead_lettered=1)


def test_a_copy_keeps_what_the_job_had(place: Place) -> None:
    queue(place, 0, max_deliveries=1, dead_letter="dead")
    place.log.append_json(
        "jobs", b'{"records":[{"data":[ 1.0 ],"meta":{"a":{"b": 2}},"tag":"t","node":"p"}]}'
    )
    fail(place)
    claim(place)
    (record,) = place.log.diff("dead").records
    assert (record.node, record.tag, bytes(record.data_json)) == ("p", "t", b"[ 1.0 ]")
    assert record.meta == {"a": {"b": 2}, **mark(1)}
    assert b'"a":{"b": 2}' in bytes(record.meta_json)


def test_meta_that_is_full_is_kept_inside_the_new_one(place: Place) -> None:
    full = {f"k{i}": i for i in range(64)}
    queue(place, 0, max_deliveries=1, dead_letter="dead")
    place.log.append("jobs", [{"data": 1, "meta": full}, {"data": 2, "meta": {"k": "x" * 16_000}}])
    claim(place, "w1", 2)
    place.log.nack("jobs", [1, 2], node="w1")
    claim(place, "w1", 2)
    first, second = dead(place)
    assert first == (1, {**mark(1), "$dead_letter_meta": full})
    assert second == (2, {"k": "x" * 16_000, **mark(2)})


def test_a_dead_letter_that_dies_again_says_where_it_was_last(place: Place) -> None:
    queue(place, 1, max_deliveries=1, dead_letter="dead")
    place.log.create("dead", type="queue", max_deliveries=1, dead_letter="grave")
    fail(place)
    claim(place)
    assert place.log.claim("dead", node="w1").count == 1
    place.log.nack("dead", [1], node="w1")
    place.log.claim("dead", node="w1")
    assert dead(place, "grave") == [(1, mark(1, queue_name="dead"))]


def test_without_a_dead_letter_topic_a_job_is_delivered_for_ever(place: Place) -> None:
    queue(place, 1, max_deliveries=1)
    for _ in range(5):
        assert fail(place) == [1]
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=0)


def test_a_missing_dead_letter_topic_is_made_as_safe_as_the_queue(place: Place) -> None:
    queue(place, 1, max_deliveries=1, dead_letter="dead", durability="fsync")
    fail(place)
    claim(place)
    found = place.log.state("dead")
    assert (found.type, found.config.durability) == ("log", "fsync")


def test_a_full_dead_letter_topic_parks_jobs_and_takes_them_later_in_order(place: Place) -> None:
    place.log.create("dead", cap_records=1, discard="reject")
    queue(place, 4, max_deliveries=1, dead_letter="dead")
    claim(place, "w1", 3)
    place.log.nack("jobs", [1, 2, 3], node="w1")
    assert claim(place) == [4]
    assert state(place) == QueueState(ready=0, in_flight=1, dead_lettered=1)
    assert claim(place, "w2", 9) == []
    place.kill()
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=1)
    assert claim(place, "w2", 9) == [4]
    place.log.create("dead", cap_records=0)
    place.log.engine.sweep()
    assert [data for data, _ in dead(place)] == [1, 2, 3]
    assert state(place) == QueueState(ready=0, in_flight=1, dead_lettered=3)
    assert not place.log.engine.dead_letters_due


def test_a_parked_job_that_is_deleted_is_not_moved(place: Place) -> None:
    place.log.create("dead", cap_records=1, discard="reject")
    place.log.append("dead", [{"data": "full"}])
    queue(place, 2, max_deliveries=1, dead_letter="dead")
    fail(place)
    claim(place)
    place.log.delete("jobs", before_seq=2)
    place.log.create("dead", cap_records=0)
    place.log.engine.sweep()
    assert [data for data, _ in dead(place)] == ["full"]
    assert state(place) == QueueState(ready=0, in_flight=1, dead_lettered=0)
    assert not place.log.engine.dead_letters_due


def letters_of(place: Place, parent: str = "dead") -> dict[str, list[Any]]:
    """Return the data that each partition holds."""
    names = [part.topic for part in place.log.state(parent).partitions or []]
    return {name: [data for data, _ in dead(place, name)] for name in names}


def test_a_letter_goes_to_the_partition_of_its_key(place: Place) -> None:
    place.log.create("dead", partitions=3)
    queue(place, 0, max_deliveries=1, dead_letter="dead")
    place.log.append("jobs", [{"data": tag, "tag": tag} for tag in ("user1", "user7", "user1")])
    claim(place, "w1", 3)
    place.log.nack("jobs", [1, 2, 3], node="w1")
    assert claim(place, "w1", 3) == []
    assert letters_of(place) == {"dead-0": ["user7"], "dead-1": [], "dead-2": ["user1", "user1"]}
    assert dead(place, "dead-2") == [("user1", mark(1)), ("user1", mark(3))]
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=3)
    assert not place.log.engine.dead_letters_due


def test_a_key_beside_a_tag_stays_the_key_of_the_letter(place: Place) -> None:
    place.log.create("dead", partitions=3)
    place.log.create("jobs", type="queue", partitions=2, max_deliveries=1, dead_letter="dead")
    full = {f"k{number}": number for number in range(63)}
    name = ""
    for meta in ({"a": 1}, full):
        record = {"data": len(meta), "key": "user1", "tag": "mail", "meta": meta}
        ((partition, seq),) = place.log.append("jobs", [record]).placed
        name = f"jobs-{partition}"
        assert place.log.claim(name, node="w").count == 1
        place.log.nack(name, [seq], node="w")
        assert place.log.claim(name, node="w").count == 0
    first, second = place.log.diff("dead-2", include_tags=True).records
    assert [first.tag, second.tag] == ["mail", "mail"]
    assert first.meta == {"$key": "user1", "a": 1, **mark(1, queue_name=name)}
    kept = {"$key": "user1", **full}
    assert second.meta == {"$key": "user1", **mark(2, queue_name=name), "$dead_letter_meta": kept}
    assert place.log.redrive("dead").queues == {name: 2}
    assert [r.meta for r in place.log.diff(name).records] == [{"$key": "user1", "a": 1}, kept]


def test_jobs_that_waited_for_a_topic_go_when_it_has_become_partitions(place: Place) -> None:
    place.log.create("dead", cap_records=1, discard="reject")
    place.log.append("dead", [{"data": "full"}])
    queue(place, 4, max_deliveries=1, dead_letter="dead")
    claim(place, "w1", 4)
    place.log.nack("jobs", [1, 2, 3, 4], node="w1")
    assert claim(place, "w1", 4) == []
    place.log.drop("dead")
    place.log.create("dead", partitions=2)
    place.kill()
    assert sorted(chain(*letters_of(place).values())) == [1, 2, 3, 4]
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=4)


def test_a_move_that_begins_again_finds_its_letter_also_where_partitions_were_added(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.log.create("dead", partitions=2)
    queue(place, 6, max_deliveries=1, dead_letter="dead")
    claim(place, "w1", 6)
    place.log.nack("jobs", [1, 2, 3, 4, 5, 6], node="w1")
    mover = place.log.engine.queues.dead_letters

    def stop(*_: object, **__: object) -> None:
        raise Throttled(100)

    monkeypatch.setattr(mover, "_finish", stop)
    assert claim(place, "w1", 6) == []
    before = letters_of(place)
    assert sorted(chain(*before.values())) == [1, 2, 3, 4, 5, 6]
    monkeypatch.undo()
    place.log.create("dead", partitions=5)
    place.kill()
    after = letters_of(place)
    assert {name: after[name] for name in before} == before
    assert sorted(chain(*after.values())) == [1, 2, 3, 4, 5, 6]
    assert seqs_of(place.log.diff("jobs")) == []


@pytest.mark.parametrize("way", ["stop", "kill"])
@pytest.mark.parametrize("snapshots", [0, 2])
def test_a_later_dead_letter_is_never_taken_for_an_earlier_one(
    place: Place, way: str, snapshots: int
) -> None:
    queue(place, 2, max_deliveries=1, dead_letter="dead")
    fail(place)
    claim(place)
    for _ in range(snapshots):
        place.log.engine.snapshot()
    getattr(place, way)()
    fail(place)
    claim(place)
    assert [data for data, _ in dead(place)] == [1, 2]
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=2)


def test_jobs_of_an_ephemeral_queue_die_too(place: Place) -> None:
    queue(place, 2, max_deliveries=1, dead_letter="dead", durability="ephemeral")
    fail(place)
    claim(place)
    place.log.create("dead", durability="fsync")
    assert [data for data, _ in dead(place)] == [1]
    assert state(place) == QueueState(ready=0, in_flight=1, dead_lettered=1)


def test_a_dead_letter_is_moved_once_the_log_is_safe_whoever_syncs(place: Place) -> None:
    queue(place, 1, max_deliveries=1, dead_letter="dead")
    fail(place)
    engine = place.log.engine
    shard, ticket = engine.submit_claim(engine.topic("jobs"), ClaimRequest(node="w1"))
    shard.commit.commit(ticket)
    assert ticket.claimed.count == 0
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=0)
    assert engine.dead_letters_due
    assert engine.move_dead_letters() == 1
    assert [data for data, _ in dead(place)] == [1]
    assert engine.move_dead_letters() == 0


def test_a_job_that_cannot_be_set_aside_stays_ready(place: Place) -> None:
    queue(place, 1, max_deliveries=1, dead_letter="dead")
    fail(place)
    place.disk.arm(FaultPlan().fail(at_call=0, error=DiskFailed, forever=True))
    with pytest.raises(DiskFailed):
        claim(place)
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=0)
    place.disk.arm(NO_FAULTS)


class Worker:
    """Acks jobs, fails every seventh, until there is nothing left."""

    def __init__(self, place: Place, node: str) -> None:
        self.done: list[int] = []
        self.error: BaseException | None = None
        self._place = place
        self._node = node

    def run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            self.error = error

    def _step(self) -> bool:
        log, node = self._place.log, self._node
        seqs = [lease.seq for lease in log.claim("jobs", node=node, max=5).leases]
        self.done += log.ack("jobs", [seq for seq in seqs if seq % 7], node=node).acked_seqs
        log.nack("jobs", [seq for seq in seqs if not seq % 7], node=node)
        return bool(seqs)


def test_many_workers_lose_and_double_nothing(place: Place) -> None:
    place.stop(wal_shards=2)
    queue(place, 120, max_deliveries=2, dead_letter="dead", durability="fsync")
    workers = [Worker(place, f"w{i}") for i in range(4)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    workers.append(Worker(place, "last"))
    workers[-1].run()
    place.log.engine.sweep()
    assert [worker.error for worker in workers] == [None] * 5
    acked = sorted(seq for worker in workers for seq in worker.done)
    assert acked == [seq for seq in range(1, 121) if seq % 7]
    died = sorted(meta["$dead_letter_src_seq"] for _, meta in dead(place) if meta)
    assert died == [seq for seq in range(1, 121) if not seq % 7]
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=17)


def damage_first_record(place: Place) -> None:
    """Spoil the first job of the queue, in its segment."""
    place.log.engine.checkpoint()
    path = place.log.engine.topic("jobs").segments()[0].data_path
    file = place.disk.open(path)
    file.write_at(40, [bytes([bytes(place.disk.map(path))[40] ^ 0xFF])])
    file.sync_data()
    file.close()


def test_a_damaged_job_holds_back_its_own_queue_only(place: Place) -> None:
    queue(place, 2, max_deliveries=1, dead_letter="dead")
    place.log.create("sound", type="queue", max_deliveries=1, dead_letter="dead")
    place.fill("sound", 1)
    for name in ("jobs", "sound"):
        seqs = [lease.seq for lease in place.log.claim(name, node="w1", max=1).leases]
        place.log.nack(name, seqs, node="w1")
    damage_first_record(place)
    engine = place.log.engine
    for name in ("jobs", "sound"):
        engine.queues.submit_claims(engine.topic(name), [ClaimRequest(node="w1", max=1)])
    engine.sync()
    engine.sweep()
    assert isinstance(engine.queues.dead_letters.last_error, CorruptData)
    assert dead(place) == [(0, mark(1, queue_name="sound"))]
    place.kill()
    assert isinstance(place.log.engine.queues.dead_letters.last_error, CorruptData)
    assert seqs_of(place.log.diff("dead")) == [1]


def test_what_was_copied_before_a_damaged_job_leaves_the_queue(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(place, 2, max_deliveries=1, dead_letter="dead")
    claim(place, "w1", 2)
    place.log.nack("jobs", [1, 2], node="w1")
    mover = place.log.engine.queues.dead_letters
    copy = mover._copy

    def copy_or_fail(topic: Topic, number: int, move: Move) -> list[Topic]:
        if move.seq == 2:
            raise CorruptData("spoilt")
        return copy(topic, number, move)

    monkeypatch.setattr(mover, "_copy", copy_or_fail)
    assert claim(place, "w1", 2) == []
    assert seqs_of(place.log.diff("jobs")) == [2]
    assert dead(place) == [(1, mark(1))]


def test_a_claim_that_cannot_read_its_job_is_no_delivery(place: Place) -> None:
    queue(place, 1, max_deliveries=1, dead_letter="dead")
    damage_first_record(place)
    for _ in range(3):
        with pytest.raises(CorruptData):
            claim(place)
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=0)
    table = place.log.engine.topic("jobs").queue
    assert table is not None
    assert table.jobs[1].deliveries == 0


def test_no_client_writes_as_the_mover_of_dead_letters(place: Place) -> None:
    queue(place, 1, max_deliveries=1, dead_letter="dead")
    producer_id = f"$dead_letter:{place.log.engine.topic('jobs').id}"
    with pytest.raises(RequestError, match="may not begin with"):
        place.log.append("dead", [{"data": 1}], producer_id=producer_id, producer_seq=99)
    body = f'{{"records":[{{"data":1}}],"producer_id":"{producer_id}","producer_seq":99}}'
    with pytest.raises(RequestError, match="may not begin with"):
        place.log.append_json("dead", body.encode())
    fail(place)
    claim(place)
    assert dead(place) == [(1, mark(1))]


def test_a_log_without_room_lets_a_moved_job_go_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(place, 1, max_deliveries=1, dead_letter="dead")
    place.log.create("dead")
    fail(place)
    engine = place.log.engine
    shard, _ = engine.submit_claim(engine.topic("jobs"), ClaimRequest(node="w1", max=1))
    shard.commit.sync_once()

    def admit(size: int) -> None:
        if not size:
            raise Throttled(100)

    monkeypatch.setattr(shard.commit, "admit", admit)
    assert engine.move_dead_letters() == 0
    assert seqs_of(place.log.diff("jobs")) == [1]
    monkeypatch.undo()
    assert engine.move_dead_letters() == 1
    assert dead(place) == [(1, mark(1))]


def test_a_job_that_can_never_be_moved_stays_and_blocks_nobody(place: Place) -> None:
    queue(place, 0, durability="fsync", max_deliveries=1, dead_letter="dead")
    place.log.create("dead", durability="fsync", cap_bytes=200, discard="reject")
    place.log.append("jobs", [{"data": "x" * 500}, {"data": 2}])
    claim(place, "w1", 2)
    place.log.nack("jobs", [1, 2], node="w1")
    assert claim(place, "w1", 2) == []
    assert dead(place) == [(2, mark(2))]
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=1)
    place.cut()
    assert seqs_of(place.log.diff("jobs")) == [1]
    assert state(place) == QueueState(ready=1, in_flight=0, dead_lettered=1)
    place.log.create("dead", cap_bytes=2_000)
    assert fail(place) == [1]
    assert claim(place) == []
    assert dead(place)[1:] == [("x" * 500, mark(1))]
    assert seqs_of(place.log.diff("jobs")) == []
