"""WAL frames read back: whole batches as runs, and the next frame behind damage."""

import re

from topics.errors import CorruptData
from topics.kernel.batch import Scan
from topics.kernel.layout import (
    FLAG_BATCH_OPEN,
    FRAME_APPEND,
    FRAME_OVERHEAD_BYTES,
    FRAME_TYPE_MAX,
    IDX_ENTRY,
    IDX_FLAGS,
    SIZE_BYTES,
    U32,
    U32_MAX,
    WAL_LAYOUT,
    Buffer,
    Run,
)
from topics.kernel.pure.frame import (
    Frame,
    check_range,
    damaged,
    is_intact,
    open_view,
    read_frame,
)

_find_nonzero = re.compile(rb"[^\0]").search
_TYPE_AT = 4


def scan_frames(buffer: Buffer, start: int, stop: int) -> Scan:
    """Walk whole, intact frames from `start`; a batch left open at the end is not in the runs."""
    view = open_view(buffer)
    check_range(start, stop, len(view))
    runs: list[Run] = []
    whole_runs: list[Run] = []
    at = end = start
    while (frame := _read_intact(view, at, stop)) is not None:
        if runs and _continues(runs[-1], frame):
            kind, topic_id, first_seq, count, run_start, _ = runs[-1]
            runs[-1] = (kind, topic_id, first_seq, count + 1, run_start, frame.end)
        else:
            runs.append((frame.type, frame.topic_id, frame.seq, 1, at, frame.end))
        at = frame.end
        if not frame.flags & FLAG_BATCH_OPEN:
            _move_runs(runs, whole_runs)
            end = at
    return Scan(whole_runs, end, at, _is_clean_end(view, at, stop))


def _continues(run: Run, frame: Frame) -> bool:
    kind, topic_id, first_seq, count, _, _ = run
    return (
        kind == FRAME_APPEND
        and frame.type == FRAME_APPEND
        and topic_id == frame.topic_id
        and first_seq + count == frame.seq
    )


def _move_runs(runs: list[Run], whole_runs: list[Run]) -> None:
    """All of `runs` is whole now; its last run stays there too, for it may still grow."""
    if whole_runs and whole_runs[-1][4] == runs[0][4]:
        whole_runs.pop()
    whole_runs += runs
    del runs[:-1]


def _is_clean_end(view: memoryview, at: int, stop: int) -> bool:
    return not any(view[at : min(at + SIZE_BYTES, stop)])


def _read_intact(view: memoryview, at: int, stop: int) -> Frame | None:
    frame = read_frame(view, at, stop, layout=WAL_LAYOUT)
    if frame is None or not 1 <= frame.type <= FRAME_TYPE_MAX or not is_intact(view, frame):
        return None
    return frame


def find_frame(buffer: Buffer, start: int, stop: int) -> int:
    """Find the first place at or behind `start` where a whole, intact frame begins, or -1."""
    view = open_view(buffer)
    check_range(start, stop, len(view))
    at = start
    while stop - at >= FRAME_OVERHEAD_BYTES:
        if not U32.unpack_from(view, at)[0]:
            found = _find_nonzero(view, at, stop)
            if found is None:
                return -1
            at = max(at + 1, found.start() - SIZE_BYTES + 1)
        elif 1 <= view[at + _TYPE_AT] <= FRAME_TYPE_MAX and _read_intact(view, at, stop):
            return at
        else:
            at += 1
    return -1


def index_frames(buffer: Buffer, start: int, end: int) -> bytearray:
    """Idx entries, offsets from `start`, for a stretch that holds nothing but Append frames."""
    view = open_view(buffer)
    check_range(start, end, len(view))
    idx = bytearray()
    at = start
    while at < end:
        frame = read_frame(view, at, end, layout=WAL_LAYOUT)
        if frame is None or frame.type != FRAME_APPEND:
            raise damaged("the WAL frame", at)
        if frame.end - start > U32_MAX:
            raise CorruptData(f"the stretch at byte {start} is longer than an idx can address")
        idx += IDX_ENTRY.pack(at - start, frame.size, frame.ts, frame.flags & IDX_FLAGS)
        at = frame.end
    return idx
