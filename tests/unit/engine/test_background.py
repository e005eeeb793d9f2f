"""When the threads of an engine make their steps: here they make none of their own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.unit.engine.place import Place

from topics.engine import background
from topics.engine.background import Background, Loop
from topics.errors import DiskFailed, ShardReadOnly, TopicsError
from topics.limits import KIB, MIB
from topics.storage.segments.segment import Segment
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
    ) -> None:
        assert every_ms > 0
        assert callable(on_bug)
        self.step = step
        self.asked = 0
        self.last_error: TopicsError | None = None
        self.made[name] = self

    def ask(self) -> None:
        self.asked += 1

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
    assert log.counters.rotations == rotations + 1
    loops["topics-spare"].step()
    write(place, 10)
    assert log.counters.rotations == rotations + 1, "once is enough"
