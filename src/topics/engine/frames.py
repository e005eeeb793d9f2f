"""Read a range as raw frames: the read path without the projection.

Floors, holes and runs are those of `topics.engine.diff`. No frame is looked at, so a part counts
only if nothing was swapped under it; a read that meets that starts over, at last with the lock.
Keeps: what `Reading` keeps; the bytes of a part are those its entries point to.
Reference: docs/reference/segments.md.
"""

import threading

from msgspec import Struct

from topics.engine.diff import DiffRequest, Reading
from topics.engine.seek import TRIES
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.topic import Run, Topic
from topics.errors import CorruptData, FileMissing, RequestError
from topics.limits import DEFAULT_RANGE_BYTES
from topics.model.diff import MAX_SEQ
from topics.model.frames import (
    IDX_ENTRY,
    Bytes,
    FrameLayout,
    PartHead,
    RangeHead,
    RangePage,
    RangePart,
)
from topics.storage.segments.segment import Segment, fitting_stop


class FramesRequest(Struct, frozen=True, kw_only=True):
    """What a reader of frames wants: seqs behind `from_seq` up to `to_seq`, 0 for the head.

    Nothing lies between where `to_seq` is not above `from_seq`.
    """

    from_seq: int = 0
    to_seq: int = 0
    max_bytes: int = DEFAULT_RANGE_BYTES
    """Of frames; one is always given. Their idx entries come on top."""
    epoch: int | None = None
    """The topic that is meant, where its name may have got another."""

    def __post_init__(self) -> None:
        if self.from_seq < 0 or self.to_seq < 0 or self.max_bytes < 1:
            raise RequestError("from_seq and to_seq must be 0 or more, max_bytes 1 or more")


class _Swapped(Exception):
    """The files behind a run changed while it was read."""


def read_frames(
    topic: Topic, request: FramesRequest, *, lock: "threading.RLock | threading.Lock"
) -> RangePage:
    """Read frames behind a cursor; `lock` is that of the topic's shard."""
    for _ in range(TRIES):
        try:
            return _FrameReading(topic, request).frames()
        except (_Swapped, CorruptData, FileMissing):
            continue
    with lock:  # nothing is swapped meanwhile: what is missing now is damage
        return _FrameReading(topic, request).frames()


def reaches_cold(topic: Topic, from_seq: int) -> bool:
    """Tell whether a read behind `from_seq` may meet a cold segment."""
    return any(s.tier == "cold" and s.last_seq > from_seq for s in topic.segments())


class _FrameReading(Reading):
    """One pass over a topic that takes entries and frames as they are."""

    def __init__(self, topic: Topic, request: FramesRequest) -> None:
        super().__init__(
            topic,
            DiffRequest(from_seq=request.from_seq, life=request.epoch),
            to_seq=request.to_seq or None,
        )
        self.window_records = MAX_SEQ
        self._max_bytes = request.max_bytes
        self._idx_bytes = 0
        self._taken: list[RangePart] = []

    def frames(self) -> RangePage:
        cursor = self.walk()
        head = RangeHead(
            topic=self.topic.name,
            epoch=self.topic.id,
            next_from_seq=cursor,
            head_seq=self.head_seq,
            earliest_seq=self.floors.earliest_seq,
            tombstone=self.tombstone,
            parts=[part.head for part in self._taken],
        )
        return RangePage(head, tuple(self._taken))

    def _is_full(self) -> bool:
        return (
            self.over_budget or self.size >= self._max_bytes or self._idx_bytes >= self._max_bytes
        )

    def _project(self, run: Run, start: int, stop: int) -> int:
        """Take the entries of [start, stop) that fit; return the index behind the last taken."""
        budget = self._max_bytes - self.size
        stop = min(stop, start + max(1, (self._max_bytes - self._idx_bytes) // IDX_ENTRY.size))
        if isinstance(run, Chunk):
            part = _take_chunk(run, start, stop, budget)
            if not _is_still_there(self.topic, run):
                raise _Swapped
        else:
            part = _take_segment(run, start, stop, budget)
        if self._taken and part.head.data_bytes > budget:  # a run gives at least one record
            self.over_budget = True
            return start
        self._taken.append(part)
        self.count += part.head.count
        self.size += part.head.data_bytes
        self._idx_bytes += part.head.idx_bytes
        return start + part.head.count


def _part(layout: FrameLayout, first_seq: int, *, base: int, idx: Bytes, data: Bytes) -> RangePart:
    head = PartHead(
        layout=layout,
        first_seq=first_seq,
        count=len(idx) // IDX_ENTRY.size,
        base=base,
        idx_bytes=len(idx),
        data_bytes=len(data),
    )
    return RangePart(head, idx, data)


def _take_segment(segment: Segment, start: int, stop: int, max_bytes: int) -> RangePart:
    swaps = segment.swaps
    view = segment.view(start, stop, max_bytes=max_bytes)
    if swaps % 2 or segment.swaps != swaps:
        raise _Swapped
    offset, size, _, _ = IDX_ENTRY.unpack_from(view.idx, len(view.idx) - IDX_ENTRY.size)
    if len(view.buffer) != offset + size - view.base:
        raise CorruptData(f"{segment.data_path} ends before its records", segment=segment.data_path)
    return _part(
        "segment", segment.first_seq + start, base=view.base, idx=view.idx, data=view.buffer
    )


def _take_chunk(chunk: Chunk, start: int, stop: int, max_bytes: int) -> RangePart:
    """Copy a part of the tail: its memory grows, and a WAL file behind it may be used again."""
    idx = memoryview(bytes(chunk.idx()))
    base = IDX_ENTRY.unpack_from(idx, start * IDX_ENTRY.size)[0]
    stop = fitting_stop(idx, start, stop, base + max_bytes)
    part = bytes(idx[start * IDX_ENTRY.size : stop * IDX_ENTRY.size])
    offset, size, _, _ = IDX_ENTRY.unpack_from(part, len(part) - IDX_ENTRY.size)
    data = bytes(memoryview(chunk.frames)[base : offset + size])
    return _part("wal", chunk.first_seq + start, base=base, idx=part, data=data)


def _is_still_there(topic: Topic, run: Run) -> bool:
    return any(other is run for other in topic.runs)
