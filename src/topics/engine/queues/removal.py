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
