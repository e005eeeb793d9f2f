"""Jobs that leave their queue for good: one frame on the log, then delete flags in place.

Keeps: a job is gone for others only when it is as safely gone as the queue's class promises.
"""

from array import array
from collections.abc import Sequence

from topics.engine.forecast import Change, Forecast, tell_floors
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.errors import DiskFailed
from topics.storage.wal.group_commit import Commitment, Waiter


class Removal(Change):
    """Records on their way out."""

    __slots__ = ("_shard", "seqs")

    def __init__(
        self,
        shard: Shard,
        topic: Topic,
        seqs: list[int],
        *,
        frames: list[bytes],
        waiter: Waiter | None,
    ) -> None:
        # Not before writes that wait: a start finds them in the order of the log.
        needs_sync = bool(frames) and (topic.config.durable or topic.awaiting_sync > 0)
        super().__init__(frames, frames=len(frames), needs_sync=needs_sync, waiter=waiter)
        self._shard = shard
        self.topic = topic
        self.seqs = seqs
        """Ascending."""
        topic.awaiting_sync += needs_sync

    def publish(self) -> None:
        self.remove([self])

    def remove(self, removals: Sequence["Removal"]) -> None:
        """Publish several of its topic at once: each file is opened, and the floor moved, once."""
        topic = self.topic
        topic.awaiting_sync -= sum([removal.needs_sync for removal in removals])
        self._shard.dirty.add(topic)
        try:
            topic.apply_delete_seqs(sorted([seq for r in removals for seq in r.seqs]))
        except DiskFailed:
            topic.recount()  # some flags are set, some are not
            topic.settle_earliest(topic.floors.earliest_seq)
            raise

    def abort(self) -> None:
        self.topic.awaiting_sync -= self.needs_sync

    def foresee(self, forecast: Forecast) -> None:
        forecast.remove(array("Q", self.seqs))


def settle_floors(shard: Shard, topic: Topic) -> list[Commitment]:
    """Tell the log what the caps took, before jobs are removed; the shard's lock is held.

    A start applies the caps to what is left: a removal without the floors before it would make
    room for records that were evicted. Return the tickets that are done, to be woken.
    """
    capped = topic.config.cap_records or topic.config.cap_bytes
    finished = shard.commit.flush() if capped and topic.inflight_records else []
    tell_floors(shard, topic)
    return finished
