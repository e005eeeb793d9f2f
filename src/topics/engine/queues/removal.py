"""Jobs that leave their queue for good: one frame on the log, then delete flags in place.

Keeps: a job is gone for others only when it is as safely gone as the queue's class promises.
"""

from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.errors import DiskFailed
from topics.storage.wal.group_commit import Commitment, Waiter


class Removal(Commitment):
    """Records on their way out."""

    __slots__ = ("_seqs", "_shard", "_topic")

    def __init__(
        self,
        shard: Shard,
        topic: Topic,
        seqs: list[int],
        *,
        frames: list[bytes],
        waiter: Waiter | None,
    ) -> None:
        needs_sync = bool(frames) and topic.config.durable
        super().__init__(frames, frames=len(frames), needs_sync=needs_sync, waiter=waiter)
        self._shard = shard
        self._topic = topic
        self._seqs = seqs
        """Ascending."""

    def publish(self) -> None:
        topic = self._topic
        self._shard.dirty.add(topic)
        try:
            topic.apply_delete_seqs(self._seqs)
        except DiskFailed:
            topic.recount()  # some flags are set, some are not
            topic.settle_earliest(topic.floors.earliest_seq)
            raise


def settle_floors(shard: Shard, topic: Topic) -> list[Commitment]:
    """Tell the log what the caps took, before jobs are removed; the shard's lock is held.

    A start applies the caps to what is left: a removal without the floors before it would make
    room for records that were evicted. Return the tickets that are done, to be woken.
    """
    capped = topic.config.cap_records or topic.config.cap_bytes
    finished = shard.commit.flush() if capped and topic.inflight_records else []
    shard.submit_floors()
    return finished
