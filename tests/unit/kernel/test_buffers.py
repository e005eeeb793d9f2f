"""Any contiguous buffer will do, and none is held on to."""

import mmap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from topics.errors import CorruptData, RequestError
from topics.kernel import MATCH_EQ, SEGMENT_LAYOUT, Batch, pure

LIMITS: dict[str, Any] = {
    "max_records": 9,
    "max_record_bytes": 99,
    "max_meta_bytes": 9,
    "max_tag_bytes": 9,
    "max_node_bytes": 9,
}
BODY = b'{"records":[{"data":1,"tag":"t"},{"data":2}]}'


def sample() -> tuple[bytes, bytes, bytes, bytes]:
    """`(WAL frames, their idx, segment frames, a tag run)`."""
    batch = pure.parse_batch(BODY, **LIMITS)
    pure.stamp_batch(batch, topic_id=1, first_seq=1, ts=1, flags=0)
    data, idx = pure.frames_to_segment([(batch.frames, batch.idx, 0, 2)], base=0)
    return bytes(batch.frames), bytes(idx), bytes(data), pure.build_tag_run(data, idx, 1)


FRAMES, IDX, DATA, RUN = sample()
PAGE: dict[str, Any] = {
    "base": 0, "layout": SEGMENT_LAYOUT, "first_seq": 1, "start": 0, "stop": 2, "limit": 9,
    "budget": 999, "skip_nodes": (), "match": None, "include_meta": True, "include_tags": True,
    "include_data": True, "verify": True,
}  # fmt: skip
COPY: dict[str, Any] = {
    "base": 0, "layout": SEGMENT_LAYOUT, "first_seq": 1, "match": None, "verify": True,
}  # fmt: skip
FIND: dict[str, Any] = {"base": 0, "layout": SEGMENT_LAYOUT, "start": 0, "stop": 2}

Call = Callable[[ModuleType, Any, Any], object]
CALLS: dict[str, tuple[bytes, bytes, Call]] = {
    "parse_batch": (BODY, b"", lambda twin, a, _: twin.parse_batch(a, **LIMITS)),
    "scan_frames": (FRAMES, b"", lambda twin, a, _: twin.scan_frames(a, 0, len(FRAMES))),
    "find_frame": (FRAMES, b"", lambda twin, a, _: twin.find_frame(a, 0, len(FRAMES))),
    "index_frames": (FRAMES, b"", lambda twin, a, _: twin.index_frames(a, 0, len(FRAMES))),
    "frames_to_segment": (
        FRAMES, IDX, lambda twin, a, b: twin.frames_to_segment([(a, b, 0, 2)], base=0),
    ),
    "copy_frames": (DATA, IDX, lambda twin, a, b: twin.copy_frames(a, b, **COPY)),
    "index_segment": (DATA, b"", lambda twin, a, _: twin.index_segment(a, 1)),
    "project_records": (DATA, IDX, lambda twin, a, b: twin.project_records(a, b, **PAGE)),
    "count_live": (IDX, b"", lambda twin, a, _: twin.count_live(a, 0, 2)),
    "first_live": (IDX, b"", lambda twin, a, _: twin.first_live(a, 0, 2)),
    "evict_prefix": (IDX, b"", lambda twin, a, _: twin.evict_prefix(a, 0, 2, 1, 1)),
    "bisect_ts": (IDX, b"", lambda twin, a, _: twin.bisect_ts(a, 0, 2, 1)),
    "summarize_idx": (IDX, b"", lambda twin, a, _: twin.summarize_idx(a)),
    "match_tags": (
        DATA, IDX, lambda twin, a, b: twin.match_tags(a, b, match=(MATCH_EQ, b"t"), **FIND),
    ),
    "build_tag_run": (DATA, IDX, lambda twin, a, b: twin.build_tag_run(a, b, 1)),
    "merge_tag_runs": (RUN, RUN, lambda twin, a, b: twin.merge_tag_runs([a, b])),
    "lookup_tag_run": (RUN, b"", lambda twin, a, _: twin.lookup_tag_run(a, (MATCH_EQ, b"t"))),
    "check_tag_run": (RUN, b"", lambda twin, a, _: twin.check_tag_run(a)),
    "xxh3_64": (RUN, b"", lambda twin, a, _: twin.xxh3_64(a)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_kind_of_buffer_is_taken_and_let_go(
    twin: ModuleType, name: str, tmp_path: Path
) -> None:
    first, second, call = CALLS[name]
    expected = call(twin, first, second)
    changeable = bytearray(first), bytearray(second)
    assert call(twin, *changeable) == expected
    for buffer in changeable:
        buffer.append(0)  # BufferError if somebody still looks at it
    padded = memoryview(b"x" + first + b"y")[1:-1], memoryview(b"x" + second + b"y")[1:-1]
    assert call(twin, *padded) == expected
    path = tmp_path / "mapped"
    path.write_bytes(first)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert call(twin, mapped, second) == expected


@pytest.mark.parametrize("name", CALLS)
def test_a_buffer_with_gaps_is_refused(twin: ModuleType, name: str) -> None:
    first, second, call = CALLS[name]
    with pytest.raises((BufferError, TypeError, ValueError)):
        call(twin, memoryview(first + first)[::2], second)


def test_buffers_are_let_go_after_an_error_too(twin: ModuleType) -> None:
    body, data, idx = bytearray(b"nonsense"), bytearray(5), bytearray(IDX)
    with pytest.raises(RequestError):
        twin.parse_batch(body, **LIMITS)
    with pytest.raises(CorruptData):
        twin.project_records(data, idx, **PAGE)
    with pytest.raises(CorruptData):
        twin.frames_to_segment([(data, idx, 0, 2)], base=0)
    with pytest.raises(ValueError, match=r"the range 0\.\.9 is not inside 0\.\.2"):
        twin.count_live(idx, 0, 9)
    with pytest.raises(CorruptData):
        twin.merge_tag_runs([data, idx])
    for buffer in (body, data, idx):
        buffer.append(0)


def test_a_batch_may_be_stamped_twice_and_keeps_its_flags(twin: ModuleType) -> None:
    batch = twin.parse_batch(BODY, **LIMITS)
    twin.stamp_batch(batch, topic_id=9, first_seq=9, ts=9, flags=4)
    twin.stamp_batch(batch, topic_id=2**64 - 1, first_seq=2**64 - 2, ts=2**64 - 1, flags=0)
    scan = twin.scan_frames(batch.frames, 0, len(batch.frames))
    assert scan.runs == [(1, 2**64 - 1, 2**64 - 2, 2, 0, len(batch.frames))]
    assert batch.frames[5] & 4


@pytest.mark.parametrize(
    "stamp", [{"topic_id": 2**64}, {"first_seq": 2**64 - 1}, {"ts": -1}, {"flags": 256}]
)
def test_a_stamp_that_does_not_fit_its_field_is_refused(
    twin: ModuleType, stamp: dict[str, int]
) -> None:
    batch = twin.parse_batch(BODY, **LIMITS)
    with pytest.raises(OverflowError):
        twin.stamp_batch(batch, **{"topic_id": 1, "first_seq": 1, "ts": 1, "flags": 0, **stamp})


def test_a_batch_without_its_idx_is_refused(twin: ModuleType) -> None:
    batch = Batch(bytearray(FRAMES), bytearray(IDX[:20]), 2, 0, {})
    with pytest.raises(ValueError, match="one idx entry a frame"):
        twin.stamp_batch(batch, topic_id=1, first_seq=1, ts=1, flags=0)
