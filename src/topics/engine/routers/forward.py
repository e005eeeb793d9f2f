"""Forwarding: one stretch of a source becomes one batch of its destination.

    gather (no lock) → caps → reserve seqs → stamp → queue on the destination's shard → publish

Keeps: a copy has no bytes of its own on the log where a restart can make it again: then everything
that decides its seq is synced before it is shown, above all the writes between the copies. Where a
restart cannot (the source is in memory, the destination rejects, routers go in a circle), the
copies are written, with the cursor in the same batch.
"""

from topics.clock import Clock
from topics.engine.append import Append, check_caps, reserve
from topics.engine.routers.gather import Stretch
from topics.engine.routers.link import Link
from topics.engine.shard import Shard
from topics.engine.topics.floors import Hole
from topics.engine.topics.topic import Topic
from topics.errors import TopicNotFound
from topics.kernel import FLAG_BATCH_OPEN, FLAG_DURABLE, Batch
from topics.storage.wal import frame
from topics.storage.wal.frame import Dedupe, encode_control
from topics.storage.wal.group_commit import Commitment


class CopyBatch(Append):
    """Copies on their way into a destination."""

    __slots__ = ("_derived", "_link", "_move", "_stretch")

    def __init__(
        self,
        shard: Shard,
        link: Link,
        batch: Batch,
        stretch: Stretch,
        *,
        first_seq: int,
        needs_sync: bool,
        written: bool,
    ) -> None:
        self._link = link
        self._stretch = stretch
        self._derived = link.dest.config.persists and not written
        self._move = encode_move(link, stretch.upto, dest_seq=first_seq + batch.count, opens=True)
        super().__init__(
            shard,
            link.dest,
            batch,
            first_seq=first_seq,
            dedupe=None,
            needs_sync=needs_sync,
            waiter=None,
        )

    def is_written(self, topic: Topic) -> bool:
        return topic.config.persists and not self._derived

    def first_frame(self, topic: Topic, dedupe: Dedupe | None) -> bytes | None:  # noqa: ARG002 - a copy is never a repeat
        return self._move

    @property
    def outlives_restart(self) -> bool:
        return self._derived or self.frames > 0

    def publish(self) -> None:
        link, topic, stretch = self._link, self.topic, self._stretch
        super().publish()
        link.cursor = stretch.upto
        stretch.copies.credit()
        if link.in_cycle:
            looked_at = min((out.cursor for out in topic.links), default=topic.head_seq)
            kept = [hops for hops in topic.hops if hops[1] > looked_at]
            topic.hops = (*kept, (self.first_seq, topic.head_seq, stretch.hops + 1))


class Skip(Commitment):
    """Seqs of a destination that stand for what its source lost, told on the log."""

    __slots__ = ("_first_seq", "_link", "_shard", "_upto", "_width")

    def __init__(self, shard: Shard, link: Link, *, upto: int, width: int) -> None:
        topic = link.dest
        first_seq = topic.next_seq
        hole = frame.Hole(first_seq, first_seq + width - 1, "source_trim")
        frames = [
            encode_move(link, upto, dest_seq=first_seq + width, opens=True),
            encode_control(hole, topic_id=topic.id),
        ]
        super().__init__(frames, frames=2, needs_sync=True, waiter=None)
        self._shard = shard
        self._link = link
        self._upto = upto
        self._first_seq = first_seq
        self._width = width
        topic.next_seq += width
        topic.awaiting_sync += 1

    def publish(self) -> None:
        topic = self._link.dest
        topic.awaiting_sync -= 1
        last_seq = self._first_seq + self._width - 1
        if topic.live_records == 0:
            topic.floors = topic.floors.advanced(last_seq + 1)
        topic.apply_hole(Hole(self._first_seq, last_seq, "source_trim"))
        topic.head_seq = last_seq
        self._link.cursor = self._upto
        self._shard.dirty.add(topic)
        if topic.routed:
            self._shard.on_routed(topic)

    def abort(self) -> None:
        topic = self._link.dest
        topic.awaiting_sync -= 1
        topic.next_seq = self._first_seq


def encode_move(link: Link, cursor: int, *, dest_seq: int, opens: bool = False) -> bytes:
    body = frame.RouterCreate("", {}, 0, link.source.id, cursor, dest_seq)
    flags = FLAG_BATCH_OPEN if opens else 0
    return encode_control(body, topic_id=link.dest.id, flags=flags)


def submit_stretch(
    shard: Shard, link: Link, stretch: Stretch, *, clock: Clock
) -> Commitment | None:
    """Queue a stretch under the shard's lock; None where the cursor just moves on."""
    topic = link.dest
    if topic.deleted:
        raise TopicNotFound(topic.name)
    shard.commit.admit(len(stretch.copies.frames))
    if stretch.lost:
        ticket: Commitment = Skip(shard, link, upto=stretch.upto, width=stretch.lost)
    elif stretch.copies.count:
        ticket = _copy_batch(shard, link, stretch, now_ms=clock.now_ms())
    else:
        link.cursor = stretch.upto
        shard.dirty.add(topic)  # so that the next mark has this cursor
        return None
    shard.commit.submit(ticket)
    return ticket


def submit_skip(shard: Shard, link: Link, stretch: Stretch) -> Commitment:
    """Queue a loss in the place of a stretch's copies, under the shard's lock."""
    shard.commit.admit(0)
    ticket = Skip(shard, link, upto=stretch.upto, width=stretch.copies.count)
    shard.commit.submit(ticket)
    return ticket


def _copy_batch(shard: Shard, link: Link, stretch: Stretch, *, now_ms: int) -> CopyBatch:
    topic, copies = link.dest, stretch.copies
    first_seq = topic.next_seq
    written = topic.config.persists and (stretch.volatile or not link.derives)
    if written:
        copies.open_batch()
    batch, last_ts = copies.stamp(
        topic_id=topic.id,
        first_seq=first_seq,
        last_ts=topic.last_ts,
        flags=FLAG_DURABLE if topic.config.durable else 0,
    )
    if link.keeps_room:
        check_caps(shard, topic, batch, now_ms=now_ms)
    last_seq = first_seq + batch.count - 1
    must_wait = reserve(shard, topic, last_seq, now_ms=now_ms, written=written)
    needs_sync = must_wait or topic.awaiting_sync > 0
    ticket = CopyBatch(
        shard,
        link,
        batch,
        stretch,
        first_seq=first_seq,
        needs_sync=needs_sync,
        written=written,
    )
    topic.last_ts = last_ts
    topic.next_seq = first_seq + batch.count
    topic.awaiting_sync += needs_sync
    topic.inflight_records += batch.count
    topic.inflight_bytes += batch.payload_bytes
    return ticket
