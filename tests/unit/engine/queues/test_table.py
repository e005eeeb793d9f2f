"""The lease table: exact counts, and memory that follows the jobs, not the log."""

from topics.engine.queues.table import SLACK, LeaseTable, TrackedJob


def leased(table: LeaseTable, seq: int, *, deadline: int = 100) -> TrackedJob:
    job = table.take_fresh(seq)
    table.lease(job, node="w", lease_id=f"lease_{seq}", deadline=deadline, deliveries=1)
    return job


def heap_sizes(table: LeaseTable) -> list[int]:
    return [len(table._timers), len(table._returned), len(table._seqs), len(table._by_lease)]


def test_a_job_that_is_never_done_does_not_make_the_table_grow() -> None:
    table = LeaseTable()
    leased(table, 1, deadline=10**9)
    for seq in range(2, 5_000):
        leased(table, seq)
        table.forget([seq])
    assert len(table.jobs) == 1
    assert max(heap_sizes(table)) <= 2 + SLACK + 1


def test_a_worker_that_extends_for_ever_does_not_make_the_table_grow() -> None:
    table = LeaseTable()
    job = leased(table, 1)
    for deadline in range(10**6, 10**6 + 5_000):
        table.extend(job, deadline)
    assert max(heap_sizes(table)) <= 2 + SLACK + 1
    assert table.next_until() == 10**6 + 4_999


def test_a_job_that_comes_back_for_ever_does_not_make_the_table_grow() -> None:
    table = LeaseTable()
    job = leased(table, 1)
    for _ in range(5_000):
        table.give_back(job)
        table.lease(job, node="w", lease_id="lease_1", deadline=5, deliveries=1)
    assert max(heap_sizes(table)) <= 2 + SLACK + 1


def test_every_state_counts_once() -> None:
    table = LeaseTable()
    jobs = [leased(table, seq) for seq in range(1, 6)]
    table.give_back(jobs[0])
    table.give_back(jobs[1], ready_at=50)
    table.begin_ack(jobs[2])
    table.begin_move(jobs[3])
    assert (table.in_flight, table.ready(5)) == (2, 1)
    table.settle(now_ms=49, earliest_seq=1)
    assert table.ready(5) == 1
    table.settle(now_ms=50, earliest_seq=1)
    assert table.ready(5) == 2
    table.settle(now_ms=100, earliest_seq=1)
    assert (table.in_flight, table.ready(5)) == (1, 3)  # what is being acked does not expire
    table.undo_ack(jobs[2])
    table.settle(now_ms=100, earliest_seq=1)
    assert (table.in_flight, table.ready(5)) == (0, 4)
    table.settle(now_ms=100, earliest_seq=5)
    assert (sorted(table.jobs), table.ready(1)) == ([5], 1)


def test_an_old_timer_does_not_end_a_newer_lease() -> None:
    table = LeaseTable()
    job = leased(table, 1, deadline=10)
    table.give_back(job)
    assert table.take_returned() is job
    table.lease(job, node="v", lease_id="lease_2", deadline=30, deliveries=2)
    table.settle(now_ms=10, earliest_seq=1)
    assert table.held(1, node="v", lease_id="lease_2") is job
    assert table.by_lease("lease_1") is None
