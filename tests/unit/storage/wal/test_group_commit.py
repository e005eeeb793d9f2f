"""Group commit on a log that notes what it is told: who is published when, after which sync."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from topics.errors import DiskFailed, DiskFull, ShardReadOnly, Throttled
from topics.storage.disk.disk import Buffer
from topics.storage.wal.group_commit import QUICK_SYNCS_MIN, Commitment, GroupCommit, Ticket
from topics.storage.wal.log import Position, WalCounters, WalLog
from topics.testing.manual_clock import ManualClock

DEADLINE_S = 10.0


class NotedLog:
    """A WAL shard without files: notes writes and syncs, and fails when asked to."""

    directory = "wal"

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.position = Position(1, 0)
        self.synced = Position(1, 0)
        self.counters = WalCounters()
        self.failed: DiskFailed | None = None
        self.fail_write: DiskFailed | None = None
        self.fail_sync: DiskFailed | None = None
        self.during_sync: Callable[[], None] = lambda: None
        self.during_write: Callable[[], None] = lambda: None

    def check_writable(self) -> None:
        if self.failed is not None:
            raise ShardReadOnly(f"failed before: {self.failed}")

    def write(self, batches: Sequence[Buffer], *, frames: int, size: int) -> None:
        self.check_writable()
        if self.fail_write is not None:
            if not isinstance(self.fail_write, DiskFull):
                self.fail(self.fail_write)
            raise self.fail_write
        assert frames > 0
        self.during_write()
        self.notes.append("write " + b"+".join(bytes(b) for b in batches).decode())
        self.position = Position(1, self.position.offset + size)

    @property
    def needs_sync(self) -> bool:
        return self.position > self.synced

    def begin_sync(self) -> "NotedSync":
        return NotedSync(self, self.position)

    def finish_sync(self, point: "NotedSync") -> None:
        self.synced = point.upto

    def fail(self, error: DiskFailed) -> None:
        self.failed = error

    def close(self) -> None:
        self.notes.append("close")


class NotedSync:
    """One sync of the noted log."""

    def __init__(self, log: NotedLog, upto: Position) -> None:
        self._log = log
        self.upto = upto

    def sync(self) -> None:
        self._log.during_sync()
        if self._log.fail_sync is not None:
            raise self._log.fail_sync
        self._log.notes.append("sync")


class Bench:
    """A group commit and what came out of it."""

    def __init__(self, *, queue_bytes: int = 1_000) -> None:
        self.log = NotedLog()
        self.clock = ManualClock()
        self.commit = GroupCommit(
            cast("WalLog", self.log),
            clock=self.clock,
            queue_bytes=queue_bytes,
            window_us=(500, 10_000),
        )

    def ticket(self, name: str, *, needs_sync: bool = True) -> Ticket:
        return Ticket(
            [name.encode()],
            frames=1,
            needs_sync=needs_sync,
            publish=lambda: self.log.notes.append(f"publish {name}"),
            abort=lambda: self.log.notes.append(f"abort {name}"),
        )

    def submit(self, name: str, *, needs_sync: bool = True) -> Ticket:
        ticket = self.ticket(name, needs_sync=needs_sync)
        with self.commit.lock:
            self.commit.submit(ticket)
        return ticket


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_lone_writer_writes_and_syncs_once_before_it_is_published(bench: Bench) -> None:
    bench.commit.commit(bench.submit("a"))
    assert bench.log.notes == ["write a", "sync", "publish a"]


def test_a_lone_writer_never_waits_for_company(bench: Bench) -> None:
    bench.commit.pressure = 1.0
    bench.commit.commit(bench.submit("a"))
    assert bench.clock.monotonic_s() == 0


def test_under_pressure_several_writers_wait_for_more(bench: Bench) -> None:
    bench.commit.pressure = 1.0
    bench.submit("a")
    last = bench.submit("b")
    bench.commit.commit(last)
    assert bench.clock.monotonic_s() == pytest.approx(0.01)


def test_what_needs_no_sync_is_published_after_the_write(bench: Bench) -> None:
    bench.commit.commit(bench.submit("a", needs_sync=False))
    assert bench.log.notes == ["write a", "publish a"]


def test_all_that_waits_goes_in_one_write_and_one_sync_in_its_order(bench: Bench) -> None:
    first, second = bench.submit("a"), bench.submit("b")
    bench.commit.commit(second)
    assert bench.log.notes == ["write a+b", "sync", "publish a", "publish b"]
    assert first.done


def test_an_empty_ticket_behind_a_synced_one_is_published_with_it(bench: Bench) -> None:
    repeat = Ticket(
        [], frames=0, needs_sync=True, publish=lambda: bench.log.notes.append("publish repeat")
    )
    bench.submit("a")
    with bench.commit.lock:
        bench.commit.submit(repeat)
    bench.commit.commit(repeat)
    assert bench.log.notes == ["write a", "sync", "publish a", "publish repeat"]


def test_what_is_written_while_a_sync_runs_waits_for_the_next_one(bench: Bench) -> None:
    late: list[Ticket] = []

    def write_another() -> None:
        bench.log.during_sync = lambda: None
        late.append(bench.submit("late"))
        with bench.commit.lock:
            bench.commit.flush()

    bench.log.during_sync = write_another
    bench.commit.commit(bench.submit("a"))
    assert bench.log.notes == ["write a", "write late", "sync", "publish a"]
    assert not late[0].done
    bench.commit.commit(late[0])
    assert bench.log.notes[-2:] == ["sync", "publish late"]


def test_a_failed_sync_is_told_to_every_waiter_and_nothing_is_published(bench: Bench) -> None:
    bench.log.fail_sync = DiskFailed("input/output error")
    first, second = bench.submit("a"), bench.submit("b")
    with pytest.raises(DiskFailed, match="input/output error"):
        bench.commit.commit(second)
    assert first.done
    with pytest.raises(DiskFailed):
        first.result()
    assert bench.log.notes == ["write a+b", "abort b", "abort a"]


def test_a_failed_sync_is_never_tried_again(bench: Bench) -> None:
    bench.log.fail_sync = DiskFailed("input/output error")
    with pytest.raises(DiskFailed):
        bench.commit.commit(bench.submit("a"))
    bench.log.fail_sync = None
    bench.commit.sync_once()
    assert "sync" not in bench.log.notes
    with pytest.raises(ShardReadOnly), bench.commit.lock:
        bench.commit.admit(1)
    later = bench.submit("later")
    with pytest.raises(ShardReadOnly):
        bench.commit.commit(later)
    assert bench.log.notes == ["write a", "abort a", "abort later"]


def test_who_waits_for_a_sync_hears_of_a_failure_that_came_from_elsewhere(bench: Bench) -> None:
    waiting = bench.submit("a")
    with bench.commit.lock:
        bench.commit.flush()
    bench.log.fail(DiskFailed("a segment could not be written"))
    with pytest.raises(DiskFailed, match="a segment"):
        bench.commit.commit(waiting)
    assert bench.log.notes == ["write a", "abort a"]


class Listener:
    """Notes which tickets it was woken for."""

    def __init__(self) -> None:
        self.woken: list[Commitment] = []

    def wake(self, tickets: list[Commitment]) -> None:
        self.woken += tickets


class Follower(threading.Thread):
    """A writer on a thread of its own, which waits as long as somebody else syncs."""

    def __init__(self, bench: Bench, name: str) -> None:
        super().__init__(daemon=True)
        self.ticket = bench.submit(name)
        self._bench = bench
        self.start()
        deadline_s = time.monotonic() + DEADLINE_S
        while self.ticket.signal is None or not self.ticket.signal.locked():
            assert time.monotonic() < deadline_s, "the writer never waited"
            time.sleep(0.001)

    def run(self) -> None:
        self._bench.commit.commit(self.ticket)


def test_one_who_waits_leads_the_next_sync_himself(bench: Bench) -> None:
    followers: list[Follower] = []
    asked: list[str] = []

    def follow() -> None:
        bench.log.during_sync = lambda: None
        followers.append(Follower(bench, "b"))

    bench.commit.on_sync_due = lambda: asked.append("asked")
    bench.log.during_sync = follow
    bench.commit.commit(bench.submit("a"))
    followers[0].join(DEADLINE_S)
    assert followers[0].ticket.done
    assert not asked
    assert bench.log.notes == ["write a", "sync", "publish a", "write b", "sync", "publish b"]


def test_what_a_waiter_still_gathers_is_left_to_him(bench: Bench) -> None:
    waiter = Listener()
    asked: list[str] = []

    def gather() -> None:
        ticket = Commitment([b"b"], frames=1, needs_sync=True, waiter=waiter)
        with bench.commit.lock:
            bench.commit.submit(ticket)

    bench.commit.on_sync_due = lambda: asked.append("asked")
    bench.log.during_sync = gather
    bench.commit.commit(bench.submit("a"))
    assert not asked


def test_for_several_who_wait_the_thread_of_the_shard_leads(bench: Bench) -> None:
    followers: list[Follower] = []
    asked: list[str] = []

    def follow() -> None:
        bench.log.during_sync = lambda: None
        followers.extend(Follower(bench, name) for name in "bc")

    bench.commit.on_sync_due = lambda: asked.append("asked")
    bench.log.during_sync = follow
    bench.commit.commit(bench.submit("a"))
    assert asked == ["asked"]
    assert not any(follower.ticket.done for follower in followers)
    bench.commit.sync_once()
    for follower in followers:
        follower.join(DEADLINE_S)
        assert not follower.is_alive(), "a writer was never woken"
    assert bench.log.notes[-3:] == ["sync", "publish b", "publish c"]
    assert asked == ["asked"]


def test_who_was_told_to_lead_and_came_late_waits_for_whoever_leads(bench: Bench) -> None:
    with bench.commit._sync_lock:  # somebody else begins a sync first
        follower = Follower(bench, "b")
        assert follower.ticket.signal is not None
        follower.ticket.signal.release()
        deadline_s = time.monotonic() + DEADLINE_S
        while not follower.ticket.signal.locked():
            assert time.monotonic() < deadline_s, "the writer did not go on waiting"
            time.sleep(0.001)
    assert not follower.ticket.done
    bench.commit.sync_once()
    follower.join(DEADLINE_S)
    assert follower.ticket.done


def test_who_is_being_written_by_somebody_else_is_not_forgotten(bench: Bench) -> None:
    followers: list[Follower] = []
    writing, looked = threading.Event(), threading.Event()
    wake = bench.commit.wake

    def follow() -> None:
        bench.log.during_sync = lambda: None
        followers.append(Follower(bench, "b"))

    def hold_up() -> None:
        bench.log.during_write = lambda: None
        writing.set()
        looked.wait(0.05)  # the leader looks meanwhile, and has to wait for the lock

    def write_beside(finished: list[Commitment], *, besides: Commitment | None = None) -> None:
        """Between the leader's sync and its look somebody writes what needs no sync."""
        bench.commit.wake = wake  # type: ignore[method-assign]
        bench.log.during_write = hold_up
        ticket = bench.submit("f", needs_sync=False)
        threading.Thread(target=bench.commit.commit, args=(ticket,), daemon=True).start()
        assert writing.wait(DEADLINE_S)
        wake(finished, besides=besides)

    bench.log.during_sync = follow
    bench.commit.wake = write_beside  # type: ignore[method-assign]
    bench.submit("first")
    bench.commit.commit(bench.submit("a"))
    followers[0].join(DEADLINE_S)
    assert followers[0].ticket.done
    assert "write b+f" in bench.log.notes
    assert bench.commit.queue_depth == 0


def test_what_is_being_written_still_waits(bench: Bench) -> None:
    seen: list[int] = []
    bench.log.during_write = lambda: seen.append(bench.commit.queue_depth)
    bench.submit("a")
    bench.commit.commit(bench.submit("b"))
    assert seen == [2]
    assert (bench.commit.queue_depth, bench.commit.queue_depth_peak) == (0, 2)


def test_a_queue_that_fills_up_widens_the_window() -> None:
    bench = Bench(queue_bytes=10)
    bench.submit("aaaa")
    bench.commit.commit(bench.submit("bbbb"))
    assert bench.clock.monotonic_s() > 0


def test_a_bug_in_a_publication_ends_the_log_and_leaves_nobody_waiting(bench: Bench) -> None:
    def divide() -> None:
        raise ZeroDivisionError("by zero")

    with bench.commit.lock:
        broken = Ticket([b"x"], frames=1, needs_sync=True, publish=divide)
        bench.commit.submit(broken)
    bench.commit.commit(bench.submit("a"))  # safe on the log, and published
    with pytest.raises(DiskFailed, match="by zero"):
        broken.result()
    assert isinstance(bench.log.failed, DiskFailed)
    assert bench.commit.queue_depth == 0


def test_the_thread_that_syncs_may_go_while_it_is_asked(bench: Bench) -> None:
    bench.commit.on_sync_due = None
    waiting = bench.submit("a")
    bench.commit.ask_sync()
    assert waiting.done


def test_a_failed_write_takes_those_along_that_wait_for_a_sync(bench: Bench) -> None:
    waiting = bench.submit("a")
    with bench.commit.lock:
        bench.commit.flush()
    bench.log.fail_write = DiskFailed("input/output error")
    with pytest.raises(DiskFailed):
        bench.commit.commit(bench.submit("b"))
    assert isinstance(waiting.error, DiskFailed)
    assert bench.log.notes == ["write a", "abort b", "abort a"]


def test_a_full_disk_fails_only_what_did_not_fit(bench: Bench) -> None:
    waiting = bench.submit("a")
    with bench.commit.lock:
        bench.commit.flush()
    bench.log.fail_write = DiskFull("no space left on device")
    with pytest.raises(DiskFull):
        bench.commit.commit(bench.submit("b"))
    bench.log.fail_write = None
    bench.commit.commit(bench.submit("c"))
    assert waiting.done
    assert waiting.error is None
    assert bench.log.notes == [
        "write a", "abort b", "sync", "publish a", "write c", "sync", "publish c",
    ]  # fmt: skip


def test_a_full_queue_refuses_before_anything_is_taken() -> None:
    bench = Bench(queue_bytes=10)
    bench.submit("x" * 8)
    with bench.commit.lock:
        bench.commit.admit(2)
        with pytest.raises(Throttled) as refused:
            bench.commit.admit(3)
    assert refused.value.retry_after_ms > 0
    assert bench.commit.submit_full == 1


def test_a_batch_larger_than_the_queue_is_taken_when_the_queue_is_empty() -> None:
    bench = Bench(queue_bytes=10)
    with bench.commit.lock:
        bench.commit.admit(1_000)


def test_positions_tell_where_each_batch_begins(bench: Bench) -> None:
    tickets = [bench.submit("a"), bench.submit("bb"), bench.submit("ccc")]
    with bench.commit.lock:
        bench.commit.flush()
        assert bench.commit.oldest_unpublished() == tickets[0].position
    assert [ticket.position.offset for ticket in tickets] == [0, 1, 3]
    bench.commit.sync_once()
    with bench.commit.lock:
        assert bench.commit.oldest_unpublished() == Position(1, 6)


def test_many_writers_share_syncs_and_are_published_in_the_order_of_submission() -> None:
    bench = Bench()
    order: list[int] = []

    def write(writer: int) -> None:
        for i in range(20):
            name = f"{writer}.{i}"
            with bench.commit.lock:
                ticket = bench.ticket(name)
                order.append(hash(name))
                bench.commit.submit(ticket)
            bench.commit.commit(ticket)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "a writer was never woken"
    published = [note.removeprefix("publish ") for note in bench.log.notes if "publish" in note]
    assert [hash(name) for name in published] == order
    assert len(published) == 160


def test_writers_with_and_without_a_sync_all_end() -> None:
    bench = Bench()
    bench.log.during_sync = bench.log.during_write = lambda: time.sleep(0.0001)

    def write(writer: int) -> None:
        for i in range(60):
            bench.commit.commit(bench.submit(f"{writer}.{i}", needs_sync=writer % 2 == 0))

    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "a writer was never woken"
    assert bench.commit.queue_depth == 0


def test_a_sync_is_called_quick_after_several_quick_ones_and_never_under_pressure(
    bench: Bench,
) -> None:
    for n in range(QUICK_SYNCS_MIN):
        assert not bench.commit.is_quick
        bench.commit.commit(bench.submit(f"t{n}"))
    assert bench.commit.is_quick
    bench.commit.pressure = 0.5
    assert not bench.commit.is_quick
