"""Deleting records: one predicate on the WAL, then flags in place.

Keeps: a delete is durable before anything of it is visible; it touches only what existed at the
call; it never moves the evict floor.
"""

from topics.engine.diff import kernel_match
from topics.engine.forecast import Change, Forecast, tell_floors
from topics.engine.shard import Shard
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.topic import Run, Topic
from topics.errors import DiskFailed
from topics.kernel import match_tags
from topics.model.delete import Deleted
from topics.storage.segments.segment import Segment
from topics.storage.wal.frame import Delete, encode_control
from topics.storage.wal.group_commit import Waiter


class Deletion(Change):
    """One delete on its way, and what it will answer."""

    __slots__ = ("_body", "_shard", "deleted")

    def __init__(self, shard: Shard, topic: Topic, body: Delete, *, waiter: Waiter | None) -> None:
        frame = encode_control(body, topic_id=topic.id)
        super().__init__([frame], frames=1, needs_sync=True, waiter=waiter)
        self._shard = shard
        self.topic = topic
        self._body = body
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
            count = apply_delete(topic, self._body)
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
        end_seq = _end_seq(self._body)
        if self._body.match is None:
            forecast.remove_below(end_seq)
        else:
            forecast.remove(_matching_below(self.topic, self._body.match, end_seq))


def submit_delete(
    shard: Shard,
    topic: Topic,
    *,
    before_seq: int,
    match: tuple[str, str] | None,
    waiter: Waiter | None = None,
) -> Deletion:
    """Queue a delete under the shard's lock."""
    shard.commit.admit(0)
    tell_floors(shard, topic)
    ticket = Deletion(shard, topic, Delete(before_seq, match, topic.head_seq), waiter=waiter)
    shard.commit.submit(ticket)
    return ticket


def apply_delete(topic: Topic, body: Delete) -> int:
    """Remove what the predicate names, live or in a replay; return how many records it was."""
    end_seq = _end_seq(body)
    if body.match is None:
        return topic.apply_delete_below(end_seq)
    return topic.apply_delete_seqs(_matching_below(topic, body.match, end_seq))


def _end_seq(body: Delete) -> int:
    end_seq = body.upto_seq + 1
    return min(body.before_seq, end_seq) if body.before_seq else end_seq


def _matching_below(topic: Topic, match: tuple[str, str], end_seq: int) -> list[int]:
    return [seq for seq in _matching_seqs(topic, match) if seq < end_seq]


def _matching_seqs(topic: Topic, match: tuple[str, str]) -> list[int]:
    """Find tagged records: sealed ones by their tag runs, the bounded rest by looking at it."""
    wanted = kernel_match(match)
    assert wanted is not None
    found = set(topic.tags.lookup(wanted))
    for run in _unindexed_runs(topic):
        view = run.view(0, run.count)
        indexes = match_tags(
            view.buffer,
            view.idx,
            base=view.base,
            layout=run.layout,
            start=0,
            stop=run.count,
            match=wanted,
        )
        found.update(run.first_seq + i for i in indexes)
    return sorted(found)


def _unindexed_runs(topic: Topic) -> list[Run]:
    runs: list[Run] = list(topic.tag_pending)
    for run in reversed(topic.runs):
        if isinstance(run, Chunk) or not run.sealed:
            runs.append(run)
        elif isinstance(run, Segment):
            break
    return runs
