"""Two things at once, forced into the one order that once went wrong."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.place import Place

import topics
from topics.engine import maintenance
from topics.engine.diff import Reading
from topics.errors import DiskFull, TopicsError
from topics.limits import KIB
from topics.storage.segments.segment import Segment, View
from topics.storage.wal.group_commit import Commitment, GroupCommit, Ticket
from topics.storage.wal.log import SyncPoint
from topics.testing.hostile_faults import FaultPlan

HOUR_MS = 3_600_000
DEADLINE_S = 10.0


@pytest.fixture
def place() -> Place:
    return Place()


def data_of(place: Place, topic: str) -> list[object]:
    return [record.data for record in place.log.diff(topic).records]


def test_a_write_that_races_with_close_is_refused_or_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.log.create("a", durability="fsync")
    place.fill("a", 1)
    commit = place.log.engine.shards[0].commit
    sync_once = commit.sync_once
    acknowledged = [1]

    def sync_then_write() -> None:
        sync_once()
        try:
            acknowledged.append(place.log.append("a", [{"data": "late"}]).first_seq)
        except TopicsError:
            return

    monkeypatch.setattr(place.log.engine, "_check_open", lambda: None)  # it looked just before
    monkeypatch.setattr(commit, "sync_once", sync_then_write)
    place.stop()
    assert place.log.state("a").head_seq == max(acknowledged)


class Listener:
    """Notes which tickets it was woken for."""

    def __init__(self) -> None:
        self.woken: list[Commitment] = []

    def wake(self, tickets: list[Commitment]) -> None:
        self.woken += tickets


def test_what_is_queued_while_tickets_are_published_is_written_and_woken(place: Place) -> None:
    commit = place.log.engine.shards[0].commit
    listener = Listener()
    late = Commitment([b"late"], frames=1, needs_sync=False, waiter=listener)
    first = Ticket([b"first"], frames=1, needs_sync=True, publish=lambda: commit.submit(late))
    with commit.lock:
        commit.submit(first)
    commit.sync_once()
    assert late.done
    assert listener.woken == [late]


def test_a_delete_that_meets_a_rewrite_touches_no_neighbour(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.stop(segment_max_events=8)
    place.log.append("a", [{"data": n, "tag": f"t{n}"} for n in range(9)])
    place.log.engine.checkpoint()
    place.log.engine.maintain()
    place.log.delete("a", match=["tag", "Glob", "t*"], before_seq=2)
    for n in range(3, 8):
        place.log.delete("a", match=f"t{n}")
    view = Segment.view
    meddled: list[bool] = []

    def delete_then_view(self: Segment, *args: Any, **fields: Any) -> View:  # noqa: ANN401
        if not meddled and self.marked_since is not None:
            meddled.append(True)
            place.log.delete("a", match="t2")
        return view(self, *args, **fields)

    monkeypatch.setattr(Segment, "view", delete_then_view)
    place.log.engine.maintain()
    assert meddled
    place.log.engine.checkpoint()
    segment = place.log.engine.topic("a").segments()[0]
    place.disk.unlink(segment.idx_path)
    place.kill()
    assert data_of(place, "a") == [1, 8]


def test_a_checkpoint_without_room_leaves_nothing_behind_a_segment(place: Place) -> None:
    place.stop(segment_max_events=100, disk_reserve_bytes=0)
    place.fill("a", 5)
    place.log.engine.checkpoint()
    place.fill("a", 5)
    plan = FaultPlan().fail(operation="write_at", path="topics/*.idx", error=DiskFull)
    place.disk.arm(plan)
    with pytest.raises(DiskFull):
        place.log.engine.checkpoint()
    place.disk.arm(FaultPlan())
    place.clock.advance_ms(2 * HOUR_MS)
    place.log.engine.sweep()
    place.log.engine.checkpoint()
    place.kill()
    assert data_of(place, "a") == [*range(5), *range(5)]


def test_a_segment_is_sealed_by_age_only_while_no_checkpoint_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.fill("a", 1)
    place.log.engine.checkpoint()
    place.clock.advance_ms(2 * HOUR_MS)  # so that it is due
    owned: list[bool] = []
    lock: Any = place.log.engine._work_lock

    def note(*_: object, **__: object) -> None:
        owned.append(lock._is_owned())

    monkeypatch.setattr(maintenance, "seal_by_age", note)
    place.log.engine.sweep()
    assert owned == [True]


def test_a_drop_that_finds_the_disk_full_loses_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.fill("a", 3)
    shard = place.log.engine.shards[0]
    write, commit = shard.commit.log.write, shard.commit.commit
    refused: list[bool] = []

    def refuse_once(*args: Any, **fields: Any) -> None:  # noqa: ANN401 - passed through
        if not refused:
            refused.append(True)
            raise DiskFull("no room for another file")
        write(*args, **fields)

    def checkpoint_first(ticket: Commitment) -> None:
        monkeypatch.setattr(shard.commit, "commit", commit)
        place.log.engine.checkpoint()
        commit(ticket)

    monkeypatch.setattr(shard.commit.log, "write", refuse_once)
    monkeypatch.setattr(shard.commit, "commit", checkpoint_first)
    with pytest.raises(DiskFull):
        place.log.drop("a")
    place.stop()
    assert data_of(place, "a") == [0, 1, 2]


def test_a_writer_behind_a_reservation_leads_the_next_sync(place: Place) -> None:
    commit = place.log.engine.shards[0].commit
    second = _ticket()
    waiting = threading.Event()
    writer = threading.Thread(target=_write_behind_a_reservation, args=(commit, second, waiting))

    class SlowPoint(SyncPoint):
        """A sync during which another writer comes."""

        def sync(self) -> None:
            writer.start()
            assert waiting.wait(5)
            super().sync()

    begin = commit.log.begin_sync

    def begin_slowly() -> SyncPoint:
        commit.log.begin_sync = begin  # type: ignore[method-assign] # only the first one is slow
        return SlowPoint(*begin())

    commit.log.begin_sync = begin_slowly  # type: ignore[method-assign]
    first = _ticket()
    with commit.lock:
        commit.submit(first)
    commit.commit(first)
    writer.join(5)
    assert second.done


def _ticket(publish: Callable[[], None] = lambda: None) -> Ticket:
    return Ticket([b"frame"], frames=1, needs_sync=True, publish=publish)


def _write_behind_a_reservation(
    commit: GroupCommit, ticket: Ticket, waiting: threading.Event
) -> None:
    with commit.lock:
        commit.submit(_ticket())  # a reservation: nobody waits for it
        commit.submit(ticket)
        commit.flush()
    waiting.set()
    commit.commit(ticket)


def test_a_read_that_races_with_a_checkpoint_skips_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open segment grows while it is read: what it takes over must not be taken for read."""
    place.log.create("a")
    place.fill("a", 1)
    place.log.engine.checkpoint()
    place.fill("a", 1)
    project = Reading._project
    checkpoints: list[int] = []

    def project_then_checkpoint(self: Reading, run: Any, start: int, stop: int) -> int:  # noqa: ANN401 - as given
        read_to = project(self, run, start, stop)
        if not checkpoints:
            checkpoints.append(read_to)
            place.log.engine.checkpoint()
        return read_to

    monkeypatch.setattr(Reading, "_project", project_then_checkpoint)
    page = place.log.diff("a")
    assert checkpoints
    assert [record.seq for record in page.records] == list(range(1, page.next_from_seq + 1))


def test_writers_hear_of_it_when_the_thread_that_syncs_for_them_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = topics.open(str(tmp_path), wal_shards=1, wal_file_bytes=64 * KIB)
    log.create("a", durability="fsync")
    commit = log.engine.shards[0].commit
    sync = commit._sync
    heard: list[TopicsError] = []

    def sync_unless_in_background() -> list[Commitment]:
        if threading.current_thread().name.startswith("topics-sync"):
            raise ZeroDivisionError
        return sync()

    def write() -> None:
        try:
            for _ in range(1_000):
                log.append("a", [{"data": 1}])
        except TopicsError as error:
            heard.append(error)

    monkeypatch.setattr(commit, "_sync", sync_unless_in_background)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    writers = [threading.Thread(target=write, daemon=True) for _ in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(DEADLINE_S)
    assert len(heard) == 6
    assert commit.queue_depth == 0
    monkeypatch.undo()
    with suppress(TopicsError):
        log.close()
