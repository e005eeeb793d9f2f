"""What a link has to look at next: a stretch of its source, as copies.

Takes no lock, like a read. Keeps: the records of a step are all safe in the same way; what the
source lost before it was looked at is told, exactly once.
"""

from collections.abc import Callable
from typing import NamedTuple

from topics.engine.routers.copy import Copies, copy_records
from topics.engine.routers.link import HOPS_MAX, Link
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.topic import Run, Topic
from topics.errors import StorageError
from topics.kernel import IDX_ENTRY_BYTES
from topics.storage.disk.disk import Disk
from topics.storage.segments.segment import Segment, fitting_stop

STEP_RECORDS = 4096
STEP_BYTES = 1 << 20


class Stretch(NamedTuple):
    """Source seqs up to `upto`: copied, or lost before that."""

    upto: int
    copies: Copies
    lost: int = 0
    """How many of the seqs the source lost to its caps or its TTL."""
    volatile: bool = False
    """The source records are in memory only."""
    hops: int = 0


def gather(link: Link, head_seq: int, *, hot_disk: Disk, limit: int = STEP_RECORDS) -> Stretch:
    """Look at the source behind the cursor, up to a head that the caller has read before."""
    source = link.source
    lost_upto, start = _find_loss(link, head_seq)
    if lost_upto:
        return Stretch(lost_upto, Copies(), lost=lost_upto - link.cursor)
    upto = min([head_seq, *(h[0] - 1 for h in _trims(source) if h[0] > start)])
    hops = 0
    if link.in_cycle:
        upto, hops = _same_hops(source, start, upto)
    found = next(source.runs_from(start), None)
    if found is None or found[0].first_seq + found[1] > upto or hops >= HOPS_MAX:
        return Stretch(upto, Copies())
    run, at = found
    first_seq, volatile = run.first_seq + at, is_volatile(run, hot_disk)
    copies, upto = _copy_runs(
        link,
        first_seq,
        min(upto, first_seq + limit - 1),
        wanted=lambda run: is_volatile(run, hot_disk) == volatile,
    )
    return Stretch(upto, copies, volatile=volatile, hops=hops)


def _copy_runs(
    link: Link, first_seq: int, last_seq: int, *, wanted: Callable[[Run], bool]
) -> tuple[Copies, int]:
    """Copy what follows each other in wanted runs; return the copies and their last seq."""
    copies, seq = Copies(), first_seq
    for run, at, end in link.source.stretches_from(first_seq):
        stop = min(end, last_seq - run.first_seq + 1)
        room = STEP_BYTES - len(copies.frames)
        if run.first_seq + at != seq or at >= stop or room <= 0 or not wanted(run):
            break
        try:
            more, stop = copy_run(link, run, at, stop, max_bytes=room)
        except StorageError:
            if seq > first_seq:
                break  # what is before the damage goes on its way
            raise
        copies.extend(more)
        seq = run.first_seq + stop
        if _is_cold(run):
            break  # it was slow enough
    return copies, seq - 1


def copy_run(
    link: Link, run: Run, start: int, stop: int, *, max_bytes: int = STEP_BYTES
) -> tuple[Copies, int]:
    """Copy entries [start, stop) of a run; return the copies and where they end."""
    idx = run.idx()
    offset = int.from_bytes(idx[start * IDX_ENTRY_BYTES : start * IDX_ENTRY_BYTES + 4], "little")
    stop = max(start + 1, fitting_stop(idx, start, stop, offset + max_bytes))
    view = run.view(start, stop)
    copies = copy_records(
        view,
        link.routers,
        layout=run.layout,
        first_seq=run.first_seq + start,
        source_id=link.source.id,
        verify=not (isinstance(run, Chunk) and run.in_memory),
        skip_deleted=link.keeps_room,
    )
    return copies, stop


def _is_cold(run: Run) -> bool:
    return isinstance(run, Segment) and run.tier == "cold"


def is_volatile(run: Run, hot_disk: Disk) -> bool:
    return not run.durable if isinstance(run, Chunk) else run.disk is not hot_disk


def _find_loss(link: Link, head_seq: int) -> tuple[int, int]:
    """Return up to where live records were lost (0: none were), and where to go on.

    While a copy waits for room, what the source evicts is lost, as it says to its own readers. Any
    other link copies what is still there: its destination is as if each record came at once.
    """
    source, start = link.source, link.cursor + 1
    floors = source.floors
    trim = next((h for h in _trims(source) if h[0] <= start <= h[1]), None)
    if trim is not None:
        return min(trim[1], head_seq), start
    present = floors.earliest_seq
    if not link.keeps_room:
        found = next(source.runs_from(start), None)
        present = head_seq + 1 if found is None else found[0].first_seq + found[1]
        present = min(present, floors.evict_floor)
    if start < floors.evict_floor and start < present:
        return min(present - 1, head_seq), start
    return 0, max(start, present) if link.keeps_room else start


def _trims(source: Topic) -> list[tuple[int, int]]:
    """Return the seqs that stand for what the source's own source lost."""
    return [(h.first_seq, h.last_seq) for h in source.holes if h.reason == "source_trim"]


def _same_hops(source: Topic, start: int, upto: int) -> tuple[int, int]:
    """Return how far the records from `start` on were copied equally often, and how often."""
    for first_seq, last_seq, hops in source.hops:
        if start < first_seq:
            return min(upto, first_seq - 1), 0
        if start <= last_seq:
            return min(upto, last_seq), hops
    return upto, 0
