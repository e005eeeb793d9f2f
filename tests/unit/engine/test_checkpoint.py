"""A checkpoint converts many chunks at a time: the segments are what they would be one by one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.engine.place import Place, seqs_of

from topics.engine import checkpoint
from topics.engine.stores import Stores
from topics.errors import CorruptData, DiskFailed, DiskFull, ShardReadOnly, TopicsError
from topics.kernel import frames_to_segment
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import Segment
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan
from topics.testing.hostile_file import HostileFile

DEADLINE_S = 10.0


def segments_of(place: Place) -> list[tuple[int, int, int, bool]]:
    topic = place.log.engine.topic("t")
    return [(s.first_seq, s.last_seq, s.data_bytes, s.sealed) for s in topic.segments()]


def filled(sizes: list[int], *, durability: str = "fsync", **settings: int) -> Place:
    place = Place()
    place.log.close()
    place.open(hot_retain_segments=100, **settings)
    place.log.create("t", durability=durability)
    for size in sizes:
        place.log.append("t", [{"data": "x" * size}, {"data": "y" * (size // 3)}])
        topic = place.log.engine.topic("t")
        topic.chunks()[-1].taken = True  # the next write gets a chunk of its own
    return place


@pytest.mark.parametrize(
    "settings",
    [{"segment_max_events": 5}, {"segment_max_events": 1000, "segment_max_bytes": 1024}],
    ids=["records", "bytes"],
)
def test_segments_end_where_they_are_full_however_much_is_converted_at_a_time(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, int]
) -> None:
    sizes = [40, 500, 3, 90, 900, 250, 10, 10, 10, 10, 700, 1, 1, 80, 33] * 3
    found = []
    for at_a_time in (1, 700, 1 << 20):
        monkeypatch.setattr(checkpoint, "WRITE_BYTES", at_a_time)
        place = filled(sizes, durability="fsync", **settings)
        place.log.engine.checkpoint()
        found.append(segments_of(place))
        assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 2 * len(sizes) + 1))
        if "segment_max_bytes" in settings:
            assert_full_segments_just_reach(1024, place)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 5
    assert all(sealed for *_, sealed in found[0][:-1])


def assert_full_segments_just_reach(size: int, place: Place) -> None:
    for segment in place.log.engine.topic("t").segments():
        last_record = segment.view(segment.count - 1, segment.count)
        assert last_record.base < size
        assert segment.data_bytes >= size or not segment.sealed


def test_a_record_deleted_before_its_chunk_is_converted_is_deleted_in_the_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = filled([10] * 6, segment_max_events=1000)
    calls: list[int] = []

    def convert(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - handed on
        if not calls:
            place.log.delete("t", before_seq=4)
        calls.append(1)
        return frames_to_segment(*given, **named)

    monkeypatch.setattr(checkpoint, "frames_to_segment", convert)
    place.log.engine.checkpoint()
    assert len(calls) == 1
    assert not place.log.engine.topic("t").chunks()
    assert seqs_of(place.log.diff("t")) == list(range(4, 13))
    place.kill()
    assert seqs_of(place.log.diff("t")) == list(range(4, 13))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
@pytest.mark.parametrize("flood", ["flood", "flood with tags", ""])
def test_a_flood_is_written_past_the_cache_a_segment_at_a_time_and_survives_a_power_cut(
    monkeypatch: pytest.MonkeyPatch, flood: str, *, beside: bool
) -> None:
    monkeypatch.setattr(checkpoint, "WRITE_BYTES", 1)
    place = filled([600] * 12, segment_max_events=9, checkpoint_bytes=4096, wal_shards=2)
    place.log.engine.may_write_beside = beside
    if flood == "flood with tags":
        place.log.append("t", [{"data": 1, "tag": "a"}])
    if not flood:
        place.log.engine.checkpoint()  # most of it
        place.log.append("t", [{"data": 1}, {"data": 2}])
    past_cache: list[int] = []
    write_past_cache = HostileFile.write_past_cache

    def note(file: HostileFile, offset: int, data: Buffer) -> None:
        past_cache.append(len(data))
        write_past_cache(file, offset, data)

    monkeypatch.setattr(HostileFile, "write_past_cache", note)
    place.log.engine.checkpoint()
    segments = [size for _, _, size, _ in segments_of(place)]
    assert past_cache == (segments if flood == "flood" else [])
    seqs = seqs_of(place.log.diff("t", limit=1000))
    place.cut()
    assert seqs_of(place.log.diff("t", limit=1000)) == seqs


def flooded() -> Place:
    """Return a log of six segments to come, whose writes may be made beside."""
    place = filled(
        [600] * 12,
        segment_max_events=4,
        checkpoint_bytes=4096,
        wal_shards=2,
        disk_reserve_bytes=0,  # with it the same is tried again at once
    )
    place.log.engine.may_write_beside = True
    return place


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> set[threading.Thread]:
    """Return the threads that have written to segments."""
    seen: set[threading.Thread] = set()
    write_data = Segment.write_data

    def note(segment: Segment, *given: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        seen.add(threading.current_thread())
        write_data(segment, *given, **named)

    monkeypatch.setattr(Segment, "write_data", note)
    return seen


def test_the_device_takes_a_segment_of_a_flood_while_the_next_one_is_converted(
    monkeypatch: pytest.MonkeyPatch, writers: set[threading.Thread]
) -> None:
    place = flooded()
    converted = threading.Semaphore(0)
    write_data, waited = Segment.write_data, iter([True])

    def convert(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - handed on
        converted.release()
        return frames_to_segment(*given, **named)

    def write(*given: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        if next(waited, False):
            for _ in range(2):
                assert converted.acquire(timeout=DEADLINE_S), "the next one waits for this one"
        write_data(*given, **named)

    monkeypatch.setattr(checkpoint, "frames_to_segment", convert)
    monkeypatch.setattr(Segment, "write_data", write)
    place.log.engine.checkpoint()
    assert len(segments_of(place)) == 6
    assert len(writers) == 1
    assert threading.main_thread() not in writers
    assert not [one for one in threading.enumerate() if one.name.startswith("topics-segment-")]


def test_each_segment_of_a_flood_is_synced_once_when_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = flooded()
    done: list[tuple[str, int]] = []
    main_thread: list[int] = []
    write_data, sync = Segment.write_data, Segment.sync

    def write(segment: Segment, *given: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        write_data(segment, *given, **named)
        done.append(("write", segment.first_seq))

    def note(segment: Segment) -> None:
        if threading.current_thread() is threading.main_thread():
            main_thread.append(segment.first_seq)
        done.append(("sync", segment.first_seq))
        sync(segment)

    monkeypatch.setattr(Segment, "write_data", write)
    monkeypatch.setattr(Segment, "sync", note)
    place.log.engine.checkpoint()
    firsts = [first_seq for first_seq, *_ in segments_of(place)]
    assert len(firsts) == 6
    assert sorted(done) == sorted((what, seq) for what in ("write", "sync") for seq in firsts)
    assert all(done.index(("write", seq)) < done.index(("sync", seq)) for seq in firsts)
    assert main_thread == []


@pytest.mark.parametrize("has_threads", [True, False])
def test_what_a_flood_left_survives_a_power_cut_without_its_log(
    monkeypatch: pytest.MonkeyPatch, *, has_threads: bool
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    place = flooded()
    if not has_threads:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    place.log.engine.snapshot()  # trims the log
    monkeypatch.undo()
    place.cut()
    assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 25))


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("error", [DiskFull, DiskFailed])
def test_a_sync_that_failed_beside_is_final_whatever_it_met(
    error: type[DiskFailed], at: int
) -> None:
    place = flooded()
    fault = FaultPlan().fail(operation="sync_data", path="topics/*.data", at_call=at, error=error)
    place.disk.arm(fault)
    with pytest.raises(DiskFailed):
        place.log.engine.checkpoint()
    place.disk.arm(NO_FAULTS)
    with pytest.raises(ShardReadOnly):
        place.log.append("t", [{"data": 1}])
    place.kill()
    assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 25))


def test_no_thread_is_begun_without_a_flood_nor_where_none_may_be(
    writers: set[threading.Thread],
) -> None:
    place = flooded()
    place.log.engine.may_write_beside = False
    place.log.engine.checkpoint()
    place.log.engine.may_write_beside = True
    place.log.append("t", [{"data": 1}])
    place.log.engine.checkpoint()
    assert writers == {threading.main_thread()}


def test_an_interpreter_that_ends_and_begins_no_thread_writes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, writers: set[threading.Thread]
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    place = flooded()
    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    place.log.engine.checkpoint()
    assert writers == {threading.main_thread()}
    assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 25))


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("error", [DiskFull, DiskFailed])
def test_a_failure_beside_is_met_as_one_on_the_way(error: type[DiskFailed], at: int) -> None:
    place = flooded()
    fault = FaultPlan().fail(operation="write_at", path="topics/*.data", at_call=at, error=error)
    place.disk.arm(fault)
    with pytest.raises(error):
        place.log.engine.checkpoint()
    place.disk.arm(NO_FAULTS)
    if error is DiskFull:
        place.log.engine.checkpoint()
        assert len(segments_of(place)) == 6
    else:
        with pytest.raises(ShardReadOnly):
            place.log.append("t", [{"data": 1}])
    assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 25))
    place.kill()
    assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 25))


def test_nothing_is_undone_while_a_write_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    place = flooded()
    undoing, undone = threading.Event(), threading.Event()
    under_way: list[bool] = []
    write_data, shutdown = Segment.write_data, ThreadPoolExecutor.shutdown
    remove = Stores.remove_hot_files

    def write(*given: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        under_way.append(True)
        assert undoing.wait(DEADLINE_S)
        undone.wait(0.1)  # time for a mistake
        write_data(*given, **named)
        under_way.pop()

    def stop(*given: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        undoing.set()
        shutdown(*given, **named)

    def note(stores: Stores, segment: Segment) -> None:
        undone.set()
        assert not under_way
        remove(stores, segment)

    monkeypatch.setattr(Segment, "write_data", write)
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", stop)
    monkeypatch.setattr(Stores, "remove_hot_files", note)
    place.disk.arm(
        FaultPlan().fail(operation="create", path="topics/*.idx", at_call=1, error=DiskFull)
    )
    with pytest.raises(DiskFull):
        place.log.engine.checkpoint()
    assert undone.is_set()


def test_a_full_disk_hides_no_worse_failure_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    place = flooded()
    leaving = threading.Event()
    shutdown = ThreadPoolExecutor.shutdown

    def fail(*_: object, **__: object) -> None:
        assert leaving.wait(DEADLINE_S)
        raise DiskFailed("the device is broken")

    def stop(*given: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        leaving.set()
        shutdown(*given, **named)

    monkeypatch.setattr(Segment, "write_data", fail)
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", stop)
    place.disk.arm(
        FaultPlan().fail(operation="create", path="topics/*.idx", at_call=1, error=DiskFull)
    )
    with pytest.raises(DiskFailed, match="broken"):
        place.log.engine.checkpoint()
    with pytest.raises(ShardReadOnly):
        place.log.append("t", [{"data": 1}])


def test_what_a_thread_that_did_not_begin_was_asked_for_is_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Done again by the next thread, a sync that fails would fail where nobody looks."""
    place = flooded()
    synced: list[int] = []
    start, sync, refused = threading.Thread.start, Segment.sync, iter([False, True])

    def refuse_once(thread: threading.Thread) -> None:
        if next(refused, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    def note(segment: Segment) -> None:
        synced.append(segment.first_seq)
        sync(segment)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    monkeypatch.setattr(Segment, "sync", note)
    place.log.engine.checkpoint()
    assert sorted(synced) == [first_seq for first_seq, *_ in segments_of(place)]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
@pytest.mark.parametrize("error", [CorruptData("a bad frame"), KeyboardInterrupt(), MemoryError()])
def test_a_checkpoint_that_was_broken_off_takes_the_log_out_of_service_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, *, beside: bool
) -> None:
    place = flooded()
    place.log.engine.may_write_beside = beside

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(checkpoint, "frames_to_segment", fail)
    with pytest.raises(type(error)):
        place.log.engine.checkpoint()
    monkeypatch.undo()
    with pytest.raises(ShardReadOnly):
        place.log.append("t", [{"data": 1}])
    with suppress(TopicsError):
        place.log.engine.snapshot()
    with suppress(TopicsError):
        place.log.close()
    place.kill()
    assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 25))
