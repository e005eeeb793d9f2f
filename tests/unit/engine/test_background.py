"""When the threads of an engine make their steps: here they make none of their own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.unit.engine.place import Place

from topics.engine import background
from topics.engine.background import QUIET_STEPS, Background, Loop
from topics.errors import DiskFailed, ShardReadOnly, TopicsError
from topics.limits import KIB, MIB
from topics.storage.segments.segment import Segment
from topics.storage.wal.group_commit import GroupCommit
from topics.storage.wal.log import WalLog
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan

DEADLINE_S = 10.0


class StoppedLoop:
    """Counts how often it is asked, and leaves its steps to the test."""

    made: dict[str, "StoppedLoop"]

    def __init__(
        self,
        name: str,
        step: Callable[[], bool | None],
        *,
        every_ms: int,
        on_bug: Callable[[TopicsError], None],
        may_doze: Callable[[Callable[[], None]], bool],
    ) -> None:
        assert every_ms > 0
        assert callable(on_bug)
        self.step = step
        self.may_doze = may_doze
        self.asked = self.roused = 0
        self.last_error: TopicsError | None = None
        self.made[name] = self

    def ask(self) -> None:
        self.asked += 1

    def rouse(self) -> None:
        self.roused += 1

    def dozes(self) -> bool:
        """Make a step and tell whether the thread would then wait to be called."""
        return not self.step() and self.may_doze(self.rouse)

    def stop(self) -> None: ...


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> dict[str, StoppedLoop]:
    StoppedLoop.made = {}
    monkeypatch.setattr(background, "Loop", StoppedLoop)
    return StoppedLoop.made


@pytest.fixture
def place(loops: dict[str, StoppedLoop]) -> Iterator[Place]:
    assert not loops
    place = Place()
    place.stop(tail_cache_bytes=MIB, wal_file_bytes=4 * MIB, segment_max_events=1000)
    place.log.create("t", durability="disk")
    threads = Background(place.log.engine)
    yield place
    threads.stop()
    with suppress(ShardReadOnly):  # a test may have failed its disk
        place.log.close()


def write(place: Place, size: int) -> None:
    place.log.append("t", [{"data": "x" * size}])


def sync_thread(place: Place, loops: dict[str, StoppedLoop]) -> StoppedLoop:
    """Return that of the topic, which has reserved seqs: the next writes are not synced."""
    write(place, 1)
    engine = place.log.engine
    return loops[f"topics-sync-{engine.shard_of(engine.topic('t')).number}"]


def test_a_tail_that_is_a_quarter_full_starts_a_checkpoint_before_its_time(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    write(place, 200 * KIB)
    loops["topics-segments"].step()
    assert place.log.engine.tail_bytes > 200 * KIB
    write(place, 200 * KIB)
    assert not loops["topics-segments"].step()
    assert place.log.engine.tail_bytes == 0


def test_a_checkpoint_that_ends_with_a_quarter_full_tail_is_followed_by_the_next(
    place: Place, loops: dict[str, StoppedLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = place.log.engine
    checkpoint = engine.checkpoint

    def checkpoint_while_somebody_writes() -> None:
        checkpoint()
        write(place, 600 * KIB)

    write(place, 600 * KIB)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "checkpoint", checkpoint_while_somebody_writes)
        assert loops["topics-segments"].step()
    assert not loops["topics-segments"].step()
    assert engine.tail_bytes == 0


def test_a_shard_whose_checkpoint_failed_is_left_alone(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    write(place, 600 * KIB)
    place.disk.arm(FaultPlan().fail(operation="sync_data", path="topics/*"))
    with pytest.raises(DiskFailed):
        loops["topics-segments"].step()
    place.disk.arm(NO_FAULTS)
    assert place.log.engine.is_behind
    assert not loops["topics-segments"].step()


def test_spares_are_told_of_a_flood(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(WalLog, "prepare_spare", lambda _, *, in_flood: told.append(in_flood))
    place.log.engine.prepare_spares()
    write(place, 600 * KIB)
    place.log.engine.prepare_spares()
    place.log.engine.checkpoint()
    place.log.engine.prepare_spares()
    assert told == [False, True, False]


def test_while_another_thread_makes_segments_nobody_asks_for_more(
    place: Place, loops: dict[str, StoppedLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = place.log.engine
    write(place, 600 * KIB)
    seen: list[object] = []
    sync = Segment.sync

    def step_meanwhile(segment: Segment) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(engine, "checkpoint", lambda: None)
            seen.append(loops["topics-segments"].step())
        sync(segment)

    monkeypatch.setattr(Segment, "sync", step_meanwhile)
    engine.checkpoint()
    assert seen == [False]


def test_a_step_that_wants_another_gets_it_long_before_its_time() -> None:
    steps, done = iter([True, True, False]), threading.Event()

    def step() -> bool:
        wants = next(steps)
        if not wants:
            done.set()
        return wants

    loop = Loop("test", step, every_ms=60_000, on_bug=lambda _: None)
    loop.ask()
    try:
        assert done.wait(DEADLINE_S)
    finally:
        loop.stop()


def test_the_next_spare_is_asked_for_when_one_was_taken(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    spares = loops["topics-spare"]
    log = place.log.engine.shards[0].commit.log
    rotations = log.counters.rotations
    for _ in range(9):
        write(place, 500 * KIB)
        loops["topics-segments"].step()
    assert log.counters.rotations == rotations + 1
    assert spares.asked == 1


def test_a_log_in_use_goes_over_to_a_file_whose_blocks_were_written(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    log = place.log.engine.shards[0].commit.log
    rotations = log.counters.rotations
    write(place, 10)
    loops["topics-spare"].step()
    write(place, 10)
    assert log.counters.rotations == rotations, "so little is not worth it"
    write(place, 500 * KIB)
    loops["topics-spare"].step()
    write(place, 10)
    assert log.counters.rotations == rotations, "the device has enough to write"
    loops["topics-segments"].step()
    loops["topics-spare"].step()
    write(place, 10)
    assert log.counters.rotations == rotations + 1
    loops["topics-spare"].step()
    write(place, 10)
    assert log.counters.rotations == rotations + 1, "once is enough"


@pytest.mark.parametrize("rest_s", [0.0, 0.05])
def test_an_asked_thread_makes_its_step_though_it_was_roused_just_before(rest_s: float) -> None:
    """A writer may wait for that step, and `every_ms` is long."""
    asleep, done, steps = threading.Event(), threading.Event(), iter(range(9))

    def may_doze(_rouse: Callable[[], None]) -> bool:
        asleep.set()
        return True

    def step() -> None:
        if next(steps):
            done.set()

    loop = Loop("test", step, every_ms=60_000, on_bug=lambda _: None, may_doze=may_doze)
    loop.ask()
    try:
        assert asleep.wait(DEADLINE_S)
        loop.rouse()
        if rest_s:  # else both come before the thread looks
            assert not done.wait(rest_s), "a roused thread keeps its time"
        loop.ask()
        assert done.wait(DEADLINE_S)
    finally:
        loop.stop()


def test_a_dozing_thread_makes_no_step_by_itself_and_one_in_time_when_roused() -> None:
    asleep, done, steps = threading.Event(), threading.Event(), 0

    def may_doze(_rouse: Callable[[], None]) -> bool:
        asleep.set()
        return True

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps > 1:
            done.set()

    loop = Loop("test", step, every_ms=1, on_bug=lambda _: None, may_doze=may_doze)
    try:
        assert asleep.wait(DEADLINE_S)
        assert not done.wait(0.05)
        loop.rouse()
        assert done.wait(DEADLINE_S)
    finally:
        loop.stop()


def test_the_sync_thread_of_a_quiet_log_dozes_until_the_next_write(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    commit = place.log.engine.shard_of(place.log.engine.topic("t")).commit
    thread = sync_thread(place, loops)
    write(place, 10)
    assert commit.log.synced < commit.log.position
    assert not thread.dozes()
    assert commit.log.synced == commit.log.position
    assert [thread.dozes() for _ in range(QUIET_STEPS)] == [False] * (QUIET_STEPS - 1) + [True]
    assert thread.roused == 0
    write(place, 10)
    write(place, 10)
    assert thread.roused == 1, "the first write is enough"
    assert not thread.dozes()
    assert commit.log.synced == commit.log.position


def test_a_sync_thread_that_is_awake_is_not_roused(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    """It would begin to wait anew, and the sync come later than promised."""
    thread = sync_thread(place, loops)
    while not thread.dozes():
        pass
    thread.step()  # somebody asked for it
    write(place, 10)
    assert thread.roused == 0


def test_what_a_sweep_only_queues_rouses_the_sync_thread(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    """Else a reservation that was given back would be a gap after a power cut all the same."""
    thread = sync_thread(place, loops)
    write(place, 10)
    while not thread.dozes():
        pass
    commit = place.log.engine.shard_of(place.log.engine.topic("t")).commit
    place.clock.advance_ms(60_000)
    place.log.engine.sweep()
    assert commit.queue_depth == 1
    assert thread.roused == 1
    assert not thread.dozes()
    assert commit.queue_depth == 0
    assert commit.log.synced == commit.log.position


def test_a_write_while_the_sync_thread_falls_asleep_keeps_it_awake(
    place: Place, loops: dict[str, StoppedLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = sync_thread(place, loops)
    told: list[Callable[[], None] | None] = [None]

    def write_first(_commit: GroupCommit, rouse: Callable[[], None] | None) -> None:
        if rouse is not None:
            write(place, 10)  # after the last look at what was written
        told[0] = rouse

    while not thread.dozes():
        pass
    thread.step()
    with monkeypatch.context() as patch:
        hook = property(lambda _commit: told[0], write_first)
        patch.setattr(GroupCommit, "on_submitted", hook, raising=False)
        assert not thread.may_doze(thread.rouse)
        assert told == [None]
    assert thread.roused == 0


def test_the_router_thread_dozes_until_there_is_a_router(
    place: Place, loops: dict[str, StoppedLoop]
) -> None:
    thread = loops["topics-routers"]
    assert thread.dozes()
    place.log.engine.put_router("r", {"source": "t", "dest": "copy"})
    assert thread.asked == 1
    assert not thread.dozes(), "one that waits for room tries again in its time"


def test_a_log_without_a_cold_tier_looks_after_none(
    place: Place, loops: dict[str, StoppedLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not loops["topics-cold"].dozes()
    monkeypatch.setattr(place.log.engine.stores, "cold", None)
    assert loops["topics-cold"].dozes()
