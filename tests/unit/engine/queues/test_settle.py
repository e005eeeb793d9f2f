"""Ack, nack, extend and release: only by who holds the job, and with what they promise."""

import pytest
from tests.unit.engine.place import Place, seqs_of
from tests.unit.engine.queues.test_claim import claim, queue, state

from topics.engine.topics.topic import Topic
from topics.errors import BatchTooLarge, DiskFailed, RequestError
from topics.model.queues import Acked, AckRequest, NackRequest, QueueState
from topics.storage.wal.group_commit import Commitment
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


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_acks_that_come_together_end_together_each_with_its_answer(
    place: Place, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(place, 9, durability=durability)
    place.log.engine.checkpoint()
    claim(place, "w1", 4)
    claim(place, "w2", 4)
    engine = place.log.engine
    topic = engine.topic("jobs")
    shard = engine.shard_of(topic)
    removed: list[list[int]] = []
    real = Topic.apply_delete_seqs

    def remove(self: Topic, seqs: list[int]) -> int:
        removed.append(seqs)
        return real(self, seqs)

    asked = [("w2", [7, 5]), ("w1", [1, 6]), ("w1", [99]), ("w1", [4, 2])]
    tickets = [
        engine.submit_ack(topic, AckRequest(node=node, seqs=seqs))[1] for node, seqs in asked
    ]
    with monkeypatch.context() as patched:
        patched.setattr(Topic, "apply_delete_seqs", remove)
        for ticket in tickets:
            shard.commit.commit(ticket)
    answers = [ticket.acked for ticket in tickets if ticket.acked is not None]
    assert [a.acked_seqs for a in answers] == [[5, 7], [1], [], [2, 4]]
    assert [a.skipped for a in answers] == [[], [6], [99], []]
    assert [seqs for seqs in removed if seqs] == [[1, 2, 4, 5, 7]]
    assert {(a.ready, a.in_flight) for a in answers if a.acked} == {(1, 3)}
    assert seqs_of(place.log.diff("jobs")) == [3, 6, 8, 9]
    assert topic.awaiting_sync == 0
    place.cut() if durability == "fsync" else place.kill()
    assert seqs_of(place.log.diff("jobs")) == [3, 6, 8, 9]


def test_acks_of_two_queues_and_what_stands_between_stay_apart(place: Place) -> None:
    queue(place, 4)
    place.log.create("more", type="queue", lease_ms=1_000)
    place.fill("more", 2)
    claim(place, "w1", 3)
    place.log.claim("more", node="w1", max=2)
    engine = place.log.engine
    jobs, more = engine.topic("jobs"), engine.topic("more")
    tickets: list[Commitment] = [
        engine.submit_ack(jobs, AckRequest(node="w1", seqs=[1]))[1],
        engine.submit_ack(more, AckRequest(node="w1", seqs=[1]))[1],
        engine.submit_ack(jobs, AckRequest(node="w1", seqs=[2]))[1],
        engine.submit_nack(jobs, NackRequest(node="w1", seqs=[3]))[1],
        engine.submit_ack(jobs, AckRequest(node="w1", seqs=[3]))[1],
    ]
    for topic, ticket in zip((jobs, more, jobs, jobs, jobs), tickets, strict=True):
        engine.shard_of(topic).commit.commit(ticket)
    done = [ticket.answer for ticket in tickets]
    assert [a.acked_seqs if isinstance(a, Acked) else [] for a in done] == [[1], [1], [2], [], []]
    assert seqs_of(place.log.diff("jobs")) == [3, 4]
    assert seqs_of(place.log.diff("more")) == [2]


def test_whoever_waits_hears_of_acks_though_the_first_has_done_nothing(place: Place) -> None:
    queue(place, 2)
    claim(place, "w1", 1)
    engine = place.log.engine
    topic = engine.topic("jobs")
    assert topic.queue is not None
    heard: list[int] = []
    tickets = [engine.submit_ack(topic, AckRequest(node="w1", seqs=[n]))[1] for n in (99, 1)]
    topic.queue.listeners.add(lambda: heard.append(topic.live_records))
    for ticket in tickets:
        engine.shard_of(topic).commit.commit(ticket)
    assert heard == [1]


def test_a_disk_that_fails_under_acks_that_came_together_is_told_to_all(place: Place) -> None:
    queue(place, 4)
    place.log.engine.checkpoint()
    claim(place, "w1", 3)
    engine = place.log.engine
    topic = engine.topic("jobs")
    shard = engine.shard_of(topic)
    tickets = [engine.submit_ack(topic, AckRequest(node="w1", seqs=[n]))[1] for n in (1, 2)]
    place.disk.arm(FaultPlan().fail(at_call=2, error=DiskFailed, forever=True))  # behind the log
    with shard.lock:
        shard.commit.flush()
    assert [type(ticket.error) for ticket in tickets] == [DiskFailed, DiskFailed]
    assert all(ticket.done for ticket in tickets)
    assert shard.commit.log.failed is not None
    place.disk.arm(NO_FAULTS)
    place.kill()
    assert seqs_of(place.log.diff("jobs")) == [3, 4]  # they are on the log


def test_an_ack_reaches_the_files_that_a_rewrite_has_swapped_in(place: Place) -> None:
    queue(place, 9)
    engine = place.log.engine
    engine.checkpoint()
    claim(place, "w1", 9)
    place.log.ack("jobs", [5, 6, 7], node="w1")
    segment = engine.topic("jobs").segments()[1]
    before = segment.data_bytes
    engine.maintain()
    assert segment.data_bytes < before
    place.log.ack("jobs", [8], node="w1")
    engine.checkpoint()
    engine.snapshot()  # from now on only the files tell it
    place.cut()
    assert seqs_of(place.log.diff("jobs")) == [1, 2, 3, 4, 9]


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
