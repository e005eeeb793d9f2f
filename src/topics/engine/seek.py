"""From a time to a place: the first seq of a topic at or after a `$ts`.

A `$ts` never falls within a topic, so this is two binary searches: over the runs by their first
`$ts`, which is in memory, and inside one `.idx`, which is on the hot disk whichever tier holds the
records. Takes no lock. Deleted records keep their `$ts` and their order.
Keeps: no seq that was lost and may lie at or after the time is passed over.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeVar

from topics.engine.shard import Shard
from topics.engine.topics.topic import Run, Topic
from topics.errors import CorruptData, FileMissing
from topics.kernel import bisect_ts

TRIES = 4
NEVER = 2**64
T = TypeVar("T")


def read_again(topic: Topic, read: Callable[[], T]) -> T:
    """Read without the lock; start over if a checkpoint, rewrite or relocation came between."""
    for attempt in range(TRIES):
        runs = topic.runs
        try:
            return read()
        except (CorruptData, FileMissing):
            # Files may have been swapped under this read; real damage is still there the next time.
            if attempt == TRIES - 1 or (attempt > 0 and runs is topic.runs):
                raise
    raise AssertionError("the last try returns or raises")


def seq_at(topic: Topic, ts: int) -> int:
    """Return the first seq whose `$ts` is at or after `ts`, head + 1 where there is none.

    A seq that was lost, evicted or by a crash, has no `$ts` any more: it counts as at or after
    `ts` unless a record behind it is known to be before.
    """
    return read_again(topic, lambda: _seq_at(topic, ts))


def _seq_at(topic: Topic, ts: int) -> int:
    head_seq, evict_floor, holes = topic.head_seq, topic.floors.evict_floor, topic.holes
    before, at = find_ts(topic, ts)
    first, known = before + 1, head_seq + 1 if at is None else at
    if first < evict_floor:
        return first
    lost = [hole.first_seq for hole in holes if hole.announced and hole.last_seq >= first]
    return min([known, *(max(first, seq) for seq in lost)])


def is_settled(topic: Topic, head_seq: int, *, shard_of: Callable[[Topic], Shard]) -> bool:
    """Tell whether nothing that has its `$ts` already can still come after `head_seq`.

    A write gets its `$ts` when it is queued, a copy that of its source: both may be on their way.
    """
    chain = [topic]
    while chain[-1].link is not None and chain[-1].link.source not in chain:
        chain.append(chain[-1].link.source)
    for each in reversed(chain):  # from the far end: what has left one topic is met in the next
        if each.link is not None and each.link.is_due:
            return False
        with shard_of(each).lock:
            if each.inflight_records:
                return False
    return topic.head_seq == head_seq


def find_ts(topic: Topic, ts: int) -> tuple[int, int | None]:
    """Return the last known seq before `ts`, or 0, and the first known one not before it."""
    runs = topic.runs
    stop = len(runs)  # the list may grow meanwhile
    # By the first `$ts`: for a moment an open segment also has what the chunk behind it has, so
    # that the last ones are in no order.
    place = bisect_left(range(stop), ts, key=lambda i: _first_ts(runs, i, stop))
    after = _filled(runs, place, stop)
    following = None if after is None else after.first_seq
    while place and not runs[place - 1].count:
        place -= 1
    if not place:
        return 0, following
    run = runs[place - 1]
    count = run.count  # before its entries: they may grow too
    index = bisect_ts(run.idx(), 0, count, ts)
    return run.first_seq + index - 1, run.first_seq + index if index < count else following


def _first_ts(runs: list[Run], place: int, stop: int) -> int:
    run = _filled(runs, place, stop)
    return NEVER if run is None else run.first_ts


def _filled(runs: list[Run], place: int, stop: int) -> Run | None:
    """Return the first run from a place on that has records; a segment just begun has none."""
    return next((runs[i] for i in range(place, stop) if runs[i].count), None)
