"""Deleting records: one predicate on the WAL, then flags in place.

    bound (lock) → collect what matches (no lock) → submit (lock) → write, sync → flags (lock)

Keeps: a delete is durable before anything of it is visible; it touches only what existed at the
call; it never moves the evict floor. Finding what matches holds up nobody: what is collected is
bound to the past of the call, and a record's tag never changes.
"""

from array import array
from bisect import bisect_left

from topics.engine.diff import kernel_match
from topics.engine.forecast import Change, Forecast, tell_floors
from topics.engine.seek import read_again
from topics.engine.shard import Shard
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.topic import Run, Topic
from topics.errors import DiskFailed
from topics.kernel import match_tags
from topics.model.delete import Deleted
from topics.storage.segments.segment import Segment
from topics.storage.wal.frame import Delete, encode_control
from topics.storage.wal.group_commit import Waiter

QUICK_RECORDS = 4096
QUICK_BYTES = 4 << 20


class Deletion(Change):
    """One delete on its way, and what it will answer."""

    __slots__ = ("_body", "_seqs", "_shard", "deleted")

    def __init__(
        self,
        shard: Shard,
        topic: Topic,
        body: Delete,
        seqs: "array[int] | None",
        *,
        waiter: Waiter | None,
    ) -> None:
        frame = encode_control(body, topic_id=topic.id)
        super().__init__([frame], frames=1, needs_sync=True, waiter=waiter)
        self._shard = shard
        self.topic = topic
        self._body = body
        self._seqs = seqs
        """What matches; None where all below a seq goes."""
        self.deleted: Deleted | None = None
        topic.awaiting_sync += 1  # so that later writes take nothing before it does

    @property
    def answer(self) -> object:
        return self.deleted

    def publish(self) -> None:
        topic = self.topic
        topic.awaiting_sync -= 1
        self._shard.dirty.add(topic)
        try:
            count = _apply(topic, self._body, self._seqs)
        except DiskFailed:
            topic.recount()  # some flags are set, some are not
            topic.settle_earliest(topic.floors.earliest_seq)
            raise
        self.deleted = Deleted(
            topic=topic.name,
            deleted=count,
            earliest_seq=topic.floors.earliest_seq,
            head_seq=topic.head_seq,
            count=topic.live_records,
            bytes=topic.live_bytes,
        )

    def abort(self) -> None:
        self.topic.awaiting_sync -= 1

    def foresee(self, forecast: Forecast) -> None:
        if self._seqs is None:
            forecast.remove_below(_end_seq(self._body))
        else:
            forecast.remove(self._seqs)


def bound_delete(topic: Topic, *, before_seq: int, match: tuple[str, str] | None) -> Delete:
    """Return a delete of what is there now; the shard's lock is held."""
    return Delete(before_seq, match, topic.head_seq)


def is_quickly_collected(topic: Topic) -> bool:
    """Tell whether looking at everything in a topic takes no longer than a request may."""
    return (
        topic.head_seq - topic.floors.earliest_seq < QUICK_RECORDS
        and topic.live_bytes < QUICK_BYTES
    )


def collect_delete(shard: Shard, topic: Topic, body: Delete) -> "array[int] | None":
    """Find the seqs that a delete names, without the lock; None where it needs no look."""
    match = body.match
    if match is None:
        return None

    def collect() -> "array[int]":
        with shard.lock:
            runs = _unindexed_runs(topic)
        return _matching_seqs(topic, runs, match, _end_seq(body))

    return read_again(topic, collect)


def submit_delete(
    shard: Shard,
    topic: Topic,
    body: Delete,
    seqs: "array[int] | None",
    *,
    waiter: Waiter | None = None,
) -> Deletion:
    """Queue a delete under the shard's lock, with what was collected for it."""
    shard.commit.admit(0)
    tell_floors(shard, topic)
    ticket = Deletion(shard, topic, body, seqs, waiter=waiter)
    shard.commit.submit(ticket)
    return ticket


def apply_delete(topic: Topic, body: Delete) -> int:
    """Remove what a delete names, in a replay; return how many records it was."""
    seqs = None
    if body.match is not None:
        seqs = _matching_seqs(topic, _unindexed_runs(topic), body.match, _end_seq(body))
    return _apply(topic, body, seqs)


def _apply(topic: Topic, body: Delete, seqs: "array[int] | None") -> int:
    if seqs is None:
        return topic.apply_delete_below(_end_seq(body))
    return topic.apply_delete_seqs(seqs)


def _end_seq(body: Delete) -> int:
    end_seq = body.upto_seq + 1
    return min(body.before_seq, end_seq) if body.before_seq else end_seq


def _matching_seqs(
    topic: Topic, runs: list[Run], match: tuple[str, str], end_seq: int
) -> "array[int]":
    """Find tagged records: sealed ones by their tag runs, the bounded rest by looking at it.

    A segment that gets its tag run meanwhile may be met in both.
    """
    wanted = kernel_match(match)
    assert wanted is not None
    found = topic.tags.lookup(wanted)
    for run in runs:
        if run.first_seq >= end_seq:
            continue
        count = run.count
        view = run.view(0, count)
        indexes = match_tags(
            view.buffer,
            view.idx,
            base=view.base,
            layout=run.layout,
            start=0,
            stop=count,
            match=wanted,
        )
        seqs = array("Q", [run.first_seq + i for i in indexes])
        start = bisect_left(found, run.first_seq)
        found[start : bisect_left(found, run.first_seq + count)] = seqs
    del found[bisect_left(found, end_seq) :]
    return found


def _unindexed_runs(topic: Topic) -> list[Run]:
    """Return what no tag run speaks for, before the tag runs are asked: they take it over."""
    runs: list[Run] = list(topic.tag_pending)
    for run in reversed(topic.runs):
        if isinstance(run, Chunk) or not run.sealed:
            runs.append(run)
        elif isinstance(run, Segment):
            break
    return runs
