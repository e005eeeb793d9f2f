"""What the caps will have taken from a topic once all that waits for a sync is published.

A removal makes room. A start applies the caps to what is left, so a removal on the log without the
evictions before it would bring evicted records back. Those of writes that are still on their way
are not known when the removal is queued: they are worked out here, and told in front of it.
Keeps: the log is told what will be so; nothing of the topic changes before its time.
"""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from topics.engine.shard import Shard
from topics.engine.topics.retention import plan_cap
from topics.engine.topics.topic import Topic
from topics.kernel import count_live, delete_entries, evict_prefix
from topics.storage.disk.disk import Buffer
from topics.storage.wal.frame import EvictWatermark, encode_control
from topics.storage.wal.group_commit import Commitment, Ticket


class Change(Commitment, ABC):
    """A ticket that adds or removes records of one topic."""

    __slots__ = ("topic",)
    topic: Topic

    @abstractmethod
    def foresee(self, forecast: "Forecast") -> None:
        """Do to the forecast what publishing will do to the topic."""


class _Stretch(NamedTuple):
    first_seq: int
    idx: Buffer
    start: int
    stop: int


class Forecast:
    """The sums and the floor of one topic, ahead of it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._records = topic.live_records
        self._bytes = topic.live_bytes
        self._from_seq = topic.floors.earliest_seq
        self._marked: dict[int, bytearray] = {}
        """Entries of runs, by their first seq, as removals on their way will leave them."""
        self._coming: list[_Stretch] = []
        self.evict_floor = topic.floors.evict_floor

    def add(self, first_seq: int, *, idx: Buffer, count: int, size: int) -> None:
        self._coming.append(_Stretch(first_seq, idx, 0, count))
        self._records += count
        self._bytes += size
        config = self._topic.config
        self._evict(*plan_cap(config, records=self._records, size=self._bytes))

    def remove(self, seqs: "array[int]") -> None:
        """Take ascending seqs out; those that are gone already make no difference."""
        at = bisect_left(seqs, self._from_seq)
        for stretch in self._stretches(self._from_seq):
            stop = bisect_left(seqs, stretch.first_seq + stretch.stop, lo=at)
            at = max(at, bisect_left(seqs, stretch.first_seq + stretch.start))
            if at < stop:
                entries = self._marked.get(stretch.first_seq)
                if entries is None:
                    entries = self._marked[stretch.first_seq] = bytearray(stretch.idx)
                dead, size = delete_entries(entries, seqs[at:stop], stretch.first_seq)
                self._records -= len(dead)
                self._bytes -= size
                at = stop

    def remove_below(self, seq: int) -> None:
        for stretch in self._stretches(self._from_seq):
            stop = min(stretch.stop, seq - stretch.first_seq)
            if stop <= stretch.start:
                break
            records, size = count_live(stretch.idx, stretch.start, stop)
            self._records -= records
            self._bytes -= size
        self._from_seq = max(self._from_seq, seq)

    def _evict(self, need_records: int, need_bytes: int) -> None:
        for stretch in self._stretches(self._from_seq):
            if need_records <= 0 and need_bytes <= 0:
                break
            stop, records, size = evict_prefix(
                stretch.idx, stretch.start, stretch.stop, need_records, need_bytes
            )
            need_records -= records
            need_bytes -= size
            self._records -= records
            self._bytes -= size
            if records:
                self.evict_floor = self._from_seq = stretch.first_seq + stop

    def _stretches(self, seq: int) -> Iterator[_Stretch]:
        """Yield what reaches a seq or beyond, with what removals on their way have done to it."""
        for run, start in self._topic.runs_from(seq):
            yield self._as_marked(_Stretch(run.first_seq, run.idx(), start, run.count))
        for coming in self._coming:
            start = max(0, seq - coming.first_seq)
            if start < coming.stop:
                yield self._as_marked(coming._replace(start=start))

    def _as_marked(self, stretch: _Stretch) -> _Stretch:
        marked = self._marked.get(stretch.first_seq)
        return stretch if marked is None else stretch._replace(idx=marked)


def tell_floors(shard: Shard, topic: Topic) -> None:
    """Queue the floors that a removal must not be replayed without; all before it is written."""
    shard.submit_floors()
    capped = topic.config.cap_records or topic.config.cap_bytes
    if not capped or not topic.inflight_records:
        return
    forecast = Forecast(topic)
    for ticket in shard.commit.awaiting:
        if isinstance(ticket, Change) and ticket.topic is topic:
            ticket.foresee(forecast)
    floor = forecast.evict_floor
    if floor <= topic.floors.evict_floor:
        return
    floors = topic.floors.evicted(evict_floor=floor, earliest_seq=floor, reason="cap")
    body = EvictWatermark(floors.evict_floor, floors.earliest_seq, floors.reason)

    def publish() -> None:
        # The writes before this have moved the floor, unless the caps were raised meanwhile.
        if floor > topic.floors.evict_floor:
            topic.apply_eviction(evict_floor=floor, earliest_seq=floor, reason="cap")
            topic.recount()
            topic.settle_earliest(floor)

    frames = [encode_control(body, topic_id=topic.id)]
    shard.commit.submit(Ticket(frames, frames=1, needs_sync=True, publish=publish))
