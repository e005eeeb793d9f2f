"""The read path on one screen.

    times → floors → holes → runs → view of entries and bytes → projection to JSON

Takes no lock: see `topics.engine.topics.topic`. A read that meets a checkpoint, rewrite or
relocation in the middle starts over.
Keeps: every seq up to `next_from_seq` was delivered, announced, deleted, or filtered for this
reader; at most one tombstone, and it comes before the records.
"""

import struct

from msgspec import Struct

from topics.engine.seek import find_ts, read_again, seq_at
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.floors import Floors, Hole
from topics.engine.topics.topic import Run, Topic
from topics.errors import CorruptData, RequestError
from topics.kernel import IDX_ENTRY_BYTES, MATCH_EQ, MATCH_PREFIX, Projection, project_records
from topics.limits import DEFAULT_BATCH_BYTES, DEFAULT_LIMIT
from topics.model.diff import MAX_SEQ, Page, Tombstone, check_window
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import Segment

_OFFSET_LEN = struct.Struct("<II")
WINDOW_RECORDS = 1024
SCAN_RECORDS_MAX = 100_000
"""One read examines no more, however little of it passes the filters."""
SCAN_BYTES_MAX = 32 << 20
"""The same of the bytes of the records that are looked at: their checksums are verified."""
NODES_A_LOOK = 16
"""Each record is compared with every node of the reader: the more of them, the fewer records."""


class DiffRequest(Struct, frozen=True, kw_only=True):
    """What a reader wants to see."""

    from_seq: int = 0
    from_ts: int = 0
    """Not before this time; 0: none. The later one of it and `from_seq` counts."""
    until_ts: int = 0
    """Before this time; 0: none."""
    life: int | None = None
    """The id of the topic that `from_seq` is of; None: whoever asks does not know."""
    limit: int = DEFAULT_LIMIT
    nodes: tuple[bytes, ...] = ()
    match: tuple[str, str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    max_batch_bytes: int = DEFAULT_BATCH_BYTES
    verify: bool = True

    def __post_init__(self) -> None:
        if self.from_seq < 0 or self.limit < 0 or self.max_batch_bytes < 0:
            raise RequestError("from_seq, limit and max_batch_bytes must be 0 or more")
        try:
            check_window(self.from_ts, self.until_ts)
        except ValueError as error:
            raise RequestError(str(error)) from None


def read_diff(topic: Topic, request: DiffRequest) -> Page:
    """Read what comes after a cursor."""
    return read_again(topic, lambda: Reading(topic, request).page())


def touches_cold(topic: Topic, from_seq: int, from_ts: int = 0) -> bool:
    """Tell whether a read there starts in a cold segment."""
    start = max(from_seq + 1, topic.floors.earliest_seq)
    if from_ts:
        start = max(start, seq_at(topic, from_ts))
    run = next((run for run, _ in topic.runs_from(start)), None)
    return isinstance(run, Segment) and run.tier == "cold"


def kernel_match(match: tuple[str, str] | None) -> tuple[int, bytes] | None:
    if match is None:
        return None
    op, literal = match
    return (MATCH_EQ if op == "Eq" else MATCH_PREFIX), literal.encode()


class Reading:
    """One pass over a topic, as it was when the pass began."""

    def __init__(self, topic: Topic, request: DiffRequest, *, to_seq: int | None = None) -> None:
        self.topic = topic
        self.request = request
        self.window_records = WINDOW_RECORDS
        self.head_seq = topic.head_seq
        self.floors: Floors = topic.floors
        self.holes: list[Hole] = [h for h in topic.holes if h.announced]
        self.end_seq, self.is_bounded = self._end() if request.until_ts else (self.head_seq, False)
        """Nothing behind it is read or announced."""
        if to_seq is not None:
            self.end_seq = min(self.end_seq, to_seq)
        self.tombstone: Tombstone | None = None
        self.parts: list[bytes] = []
        self.count = 0
        self.size = 0
        self.scanned = 0
        self.scanned_bytes = 0
        looks = 1 + len(request.nodes) // NODES_A_LOOK
        self.scan_max = min(SCAN_RECORDS_MAX, max(WINDOW_RECORDS, SCAN_RECORDS_MAX // looks))
        self.over_budget = False
        """The next record is there and does not fit any more."""
        self.cold: set[int] = set()

    def page(self) -> Page:
        cursor = self.walk()
        return Page(
            topic=self.topic.name,
            records_json=b",".join(self.parts),
            count=self.count,
            next_from_seq=cursor,
            head_seq=self.head_seq,
            earliest_seq=self.floors.earliest_seq,
            tombstone=self.tombstone,
            records_scanned=self.scanned,
            cold_segments_read=len(self.cold),
            until_reached=self.is_bounded and cursor >= self.end_seq
            if self.request.until_ts
            else None,
        )

    def walk(self) -> int:
        """Go through floors, holes and runs; return the last seq that was dealt with."""
        cursor = self._first_cursor(self.request.from_seq)
        while cursor < self.end_seq:
            hole = next((h for h in self.holes if h.last_seq > cursor), None)
            if hole is not None and hole.first_seq <= cursor + 1:
                if self.tombstone is not None or self.count:
                    break
                self._bury(
                    max(cursor + 1, hole.first_seq), min(hole.last_seq, self.end_seq), hole.reason
                )
                cursor = min(hole.last_seq, self.end_seq)
                continue
            upto = self.end_seq if hole is None else min(hole.first_seq - 1, self.end_seq)
            cursor, full = self._read(cursor, upto)
            if full:
                break
        return cursor

    def _end(self) -> tuple[int, bool]:
        """Return the last seq to look at, and whether a record at or after `until_ts` is next."""
        _, at = find_ts(self.topic, self.request.until_ts)
        if at is not None and at <= self.head_seq + 1:
            return at - 1, True
        return self.head_seq, False

    def _first_cursor(self, from_seq: int) -> int:
        """Apply times and floors to a cursor: announce what was lost, skip what was removed."""
        earliest = self.floors.earliest_seq
        timed = 0
        if self.request.from_ts:
            timed = min(seq_at(self.topic, self.request.from_ts) - 1, self.head_seq)
        if self._is_of_another_life(from_seq):
            self._bury(1, self.head_seq, "recreated")
            return max(timed, min(earliest - 1, self.head_seq))
        if from_seq > self.head_seq:
            # Not to be read again, and nothing is missed: what comes next is behind the head.
            self._bury(self.head_seq + 1, from_seq, "beyond_head")
            return self.head_seq
        cursor = max(from_seq, timed)
        if cursor + 1 < self.floors.evict_floor and cursor < self.end_seq:
            # No further than the time asked for: what was lost behind it is another window's loss.
            last_seq = min(earliest - 1, self.end_seq)
            self._bury(cursor + 1, last_seq, self.floors.reason)
            return last_seq
        return cursor

    def _is_of_another_life(self, from_seq: int) -> bool:
        """Tell whether a cursor is of an earlier life of the name, or may be."""
        life, former_seq = self.request.life, self.topic.former_seq
        if life is not None and life != self.topic.id:
            return True
        if life is not None and former_seq < MAX_SEQ:
            return False  # else the log may be a copy that its readers are ahead of
        return self.head_seq < from_seq <= former_seq

    def _bury(self, gap_from: int, gap_to: int, reason: str) -> None:
        self.tombstone = Tombstone(
            gap_from=gap_from,
            gap_to=gap_to,
            reason=reason,
            missed_estimate=0 if reason == "beyond_head" else max(0, gap_to - gap_from + 1),
            earliest_seq=self.floors.earliest_seq,
            head_seq=self.head_seq,
        )

    def _read(self, cursor: int, upto: int) -> tuple[int, bool]:
        """Read records in (cursor, upto].

        Return the last seq examined and whether the page is full.
        """
        first_seq = max(cursor + 1, self.floors.earliest_seq)
        for run, at, count in self.topic.stretches_from(first_seq):
            start = at
            stop = min(count, upto - run.first_seq + 1)
            while start < stop:
                if self._is_full():
                    return cursor, True
                window = min(stop, start + self.window_records)
                start = self._project(run, start, window)
                cursor = run.first_seq + start - 1
            if run.first_seq + count > upto:
                break
        # A full page ends at its last record; only an exhausted range may skip to its end.
        return (cursor, True) if self._is_full() and cursor < upto else (max(cursor, upto), False)

    def _is_full(self) -> bool:
        request = self.request
        return (
            self.over_budget
            or self.count >= request.limit
            or (self.count > 0 and self.size >= request.max_batch_bytes)
            or self.scanned >= self.scan_max
            or self.scanned_bytes >= SCAN_BYTES_MAX
        )

    def _project(self, run: Run, start: int, stop: int) -> int:
        """Add the wanted entries of [start, stop); return the index behind the last examined."""
        request = self.request
        budget = max(1, request.max_batch_bytes - self.size)
        if isinstance(run, Segment) and run.tier == "cold":
            self.cold.add(run.first_seq)
        view = run.view(start, stop, max_bytes=2 * budget)
        entries = len(view.idx) // IDX_ENTRY_BYTES
        try:
            found: Projection = project_records(
                view.buffer,
                view.idx,
                base=view.base,
                layout=run.layout,
                first_seq=run.first_seq + start,
                start=0,
                stop=entries,
                limit=request.limit - self.count,
                budget=budget,
                skip_nodes=request.nodes,
                match=kernel_match(request.match),
                include_meta=request.include_meta,
                include_tags=request.include_tags,
                include_data=request.include_data,
                verify=request.verify and not (isinstance(run, Chunk) and run.in_memory),
            )
        except CorruptData as error:
            name = run.data_path if isinstance(run, Segment) else "the tail in memory"
            raise CorruptData(f"{name}: {error}", segment=name) from None
        if self.count and len(found.json) > budget:  # the kernel gives at least one record a call
            self.over_budget = True
            return start
        if found.count:
            self.parts.append(found.json)
            self.count += found.count
            self.size += len(found.json) + 1  # and a comma
        self.scanned += found.stop
        if found.count < found.stop:  # what is delivered has bounds of its own
            self.scanned_bytes += _span(view.idx, found.stop)
        return start + found.stop


def _span(idx: Buffer, count: int) -> int:
    """Return how many bytes the first so many frames have."""
    begin, _ = _OFFSET_LEN.unpack_from(idx, 0)
    offset, size = _OFFSET_LEN.unpack_from(idx, (count - 1) * IDX_ENTRY_BYTES)
    return int(offset + size - begin)
