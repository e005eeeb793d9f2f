"""Which task reads what: ranges and manifests in, tasks out. Pure.

    ranges → spans that may hold wanted records → equal shares → pieces and gaps

Keeps: the spans of a stream are cut by its offsets alone, whatever the segments look like by then,
so that a batch that is run again has the same rows in the same tasks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from topics.model.segments import Manifest, SegmentState
from topics.pipeline.offsets import Part, PartRange
from topics.pipeline.options import Via
from topics.pipeline.push_down import Bounds

TASK_BYTES: Final = 128 << 20
TASK_RECORDS: Final = 100_000
"""Of a stream: its tasks are told by their seqs, whatever segments hold them meanwhile."""
INDEX_TASK_RECORDS: Final = 1_000_000

DELETED = "deleted"
"""A hole that somebody asked for: nothing to announce, and no file to look for."""


class Span(Struct, frozen=True):
    """Seqs of one life of a part, both ends included."""

    part: Part
    epoch: int
    first_seq: int
    last_seq: int


class Gap(Struct, frozen=True):
    """Seqs that were lost; `gap_to` is None where nobody knows how far it went."""

    part: Part
    gap_from: int
    gap_to: int | None
    reason: str


class Piece(Struct, frozen=True):
    """A span and the files that hold it; without files the server has it."""

    span: Span
    data: str | None = None
    idx: str | None = None
    file_first_seq: int = 0


class Task(Struct, frozen=True):
    """What one task of Spark reads."""

    pieces: tuple[Piece, ...]
    gaps: tuple[Gap, ...] = ()


class Plan(Struct, frozen=True):
    """All tasks, and how much of what there is they touch."""

    tasks: tuple[Task, ...]
    segments: int
    segments_read: int

    def with_gaps(self, gaps: Sequence[Gap]) -> "Plan":
        """Add gaps behind the tasks there are: their numbers stay as in an earlier try."""
        if not gaps:
            return self
        return Plan((*self.tasks, Task((), tuple(gaps))), self.segments, self.segments_read)

    def __str__(self) -> str:
        return f"{len(self.tasks)} tasks read {self.segments_read} of {self.segments} segments"


def task_records(manifests: Iterable[Manifest], *, reads_frames: bool) -> int:
    """Return how many records make a task that pays: it costs 50 ms whatever it does."""
    if not reads_frames:
        return INDEX_TASK_RECORDS
    segments = [segment for manifest in manifests for segment in manifest.segments]
    records = sum(segment.records for segment in segments)
    size = sum(segment.bytes for segment in segments)
    return max(1, min(TASK_BYTES * records // size, INDEX_TASK_RECORDS)) if size else TASK_RECORDS


def plan_batch(
    ranges: Sequence[PartRange],
    manifests: Mapping[str, Manifest],
    bounds: Bounds,
    *,
    records_per_task: int,
    min_tasks: int,
    via: Via,
) -> Plan:
    """Plan a query over a fixed range: what the bounds rule out is not read."""
    gaps: list[Gap] = []
    spans: list[Span] = []
    for wanted in ranges:
        if not bounds.has_part(wanted.part):
            continue
        lost, live = split_lost(_narrow(wanted, bounds), manifests[wanted.part.name])
        gaps += lost
        for span in live:
            spans += _in_time(span, manifests[wanted.part.name].segments, bounds)
    tasks = [
        Task(tuple(_pieces(share, manifests, via)))
        for share in cut(spans, records_per_task=records_per_task, min_tasks=min_tasks)
    ]
    return _counted(tasks, manifests).with_gaps(gaps)


def plan_stream(
    ranges: Sequence[PartRange],
    manifests: Mapping[str, Manifest],
    *,
    records_per_task: int,
    min_tasks: int,
    via: Via,
) -> Plan:
    """Plan one batch of a stream: the shares depend on its offsets alone."""
    spans = [Span(r.part, r.epoch, r.start + 1, r.end) for r in ranges if r.start < r.end]
    tasks = []
    for share in cut(spans, records_per_task=records_per_task, min_tasks=min_tasks):
        gaps: list[Gap] = []
        live: list[Span] = []
        for span in share:
            lost, left = split_lost(span, manifests[span.part.name])
            gaps += lost
            live += left
        tasks.append(Task(tuple(_pieces(live, manifests, via)), tuple(gaps)))
    return _counted(tasks, manifests)


def split_lost(span: Span, manifest: Manifest) -> tuple[list[Gap], list[Span]]:
    """Tell what of a span is lost and what is left; what was deleted on purpose is neither.

    As a diff tells it: a hole counts below the first live record too, where that was all lost.
    """
    gaps: list[Gap] = []
    live: list[Span] = []
    first, earliest = span.first_seq, manifest.earliest_seq
    if first < manifest.evict_floor:
        gaps.append(Gap(span.part, first, min(earliest - 1, span.last_seq), manifest.evict_reason))
        first = earliest
    for hole in manifest.holes:
        if hole.last_seq < first or hole.first_seq > span.last_seq:
            continue
        live.append(Span(span.part, span.epoch, max(first, earliest), hole.first_seq - 1))
        if hole.reason != DELETED:
            gap_from, gap_to = max(first, hole.first_seq), min(hole.last_seq, span.last_seq)
            gaps.append(Gap(span.part, gap_from, gap_to, hole.reason))
        first = hole.last_seq + 1
    live.append(Span(span.part, span.epoch, max(first, earliest), span.last_seq))
    return gaps, [left for left in live if left.first_seq <= left.last_seq]


def cut(spans: Sequence[Span], *, records_per_task: int, min_tasks: int) -> list[list[Span]]:
    """Deal spans, in their order, into shares of equal length."""
    total = sum(span.last_seq - span.first_seq + 1 for span in spans)
    size = max(1, min(records_per_task, -(-total // min_tasks)))
    shares: list[list[Span]] = []
    room = 0
    for span in spans:
        first = span.first_seq
        while first <= span.last_seq:
            if room == 0:
                shares.append([])
                room = size
            last = min(span.last_seq, first + room - 1)
            shares[-1].append(Span(span.part, span.epoch, first, last))
            room -= last - first + 1
            first = last + 1
    return shares


def _narrow(wanted: PartRange, bounds: Bounds) -> Span:
    return Span(
        wanted.part,
        wanted.epoch,
        max(wanted.start + 1, bounds.first_seq),
        min(wanted.end, bounds.last_seq),
    )


def _in_time(span: Span, segments: Sequence[SegmentState], bounds: Bounds) -> Iterator[Span]:
    """Leave out segments whose times are all outside the bounds; times rise with the seqs."""
    first, last = span.first_seq, span.last_seq
    if bounds.bounds_time:
        early = [s.last_seq for s in segments if s.last_ts < bounds.first_ts]
        late = [s.first_seq for s in segments if s.first_ts > bounds.last_ts]
        first = max([first, *(seq + 1 for seq in early)])
        last = min([last, *(seq - 1 for seq in late)])
    if first <= last:
        yield Span(span.part, span.epoch, first, last)


def _pieces(spans: Iterable[Span], manifests: Mapping[str, Manifest], via: Via) -> Iterator[Piece]:
    for span in spans:
        yield from pieces_of(span, manifests[span.part.name], via)


def pieces_of(span: Span, manifest: Manifest, via: Via) -> Iterator[Piece]:
    """Split a span by the sealed segments it touches; what is between them, the server has."""
    at = span.first_seq
    for segment in manifest.segments:
        if via == "http" or not segment.sealed or segment.location is None:
            continue
        first, last = max(at, segment.first_seq), min(span.last_seq, segment.last_seq)
        if first > last:
            continue
        if at < first:
            yield Piece(Span(span.part, span.epoch, at, first - 1))
        yield Piece(
            Span(span.part, span.epoch, first, last),
            data=segment.location.data,
            idx=segment.location.idx,
            file_first_seq=segment.first_seq,
        )
        at = last + 1
    if at <= span.last_seq:
        yield Piece(Span(span.part, span.epoch, at, span.last_seq))


def _counted(tasks: Sequence[Task], manifests: Mapping[str, Manifest]) -> Plan:
    files = {piece.data for task in tasks for piece in task.pieces if piece.data is not None}
    total = sum(len(manifest.segments) for manifest in manifests.values())
    return Plan(tuple(tasks), segments=total, segments_read=len(files))
