"""One WAL shard as the engine sees it: the lock, the log, and what is due on it."""

from collections.abc import Callable
from functools import partial

from topics.config import ServerConfig
from topics.engine.topics.topic import Topic
from topics.model.append import WriteOptions
from topics.storage.wal.frame import EvictWatermark, encode_control
from topics.storage.wal.group_commit import GroupCommit, Ticket
from topics.storage.wal.log import Position


class Shard:
    """The topics of one shard share its lock, its log and its order."""

    def __init__(
        self,
        number: int,
        directory: str,
        commit: GroupCommit,
        *,
        replay_from: Position,
        config: ServerConfig,
    ) -> None:
        self.number = number
        self.directory = directory
        self.commit = commit
        self._max_keys = config.max_idempotency_keys
        self._max_producers = config.max_producers
        self.lock = commit.lock
        self.dirty: set[Topic] = set()
        """Topics with chunks that no segment holds yet."""
        self.floors_due: set[Topic] = set()
        """Topics whose floors moved since the WAL was told."""
        self.moves_due: set[Topic] = set()
        """Queues with jobs on their way to a dead-letter topic."""
        self.tail_bytes = 0
        """Bytes of the chunks of this shard."""
        self.records_appended = 0
        self.records_evicted = 0
        """Those of deleted topics; the others count their own."""
        self.replay_from = replay_from
        """Everything on the log before this place is in synced segments."""
        self.undone: list[Callable[[], None]] = []
        """What is left to remove of a checkpoint that could not be made."""
        self.on_published: Callable[[Topic], None] = ignore
        """Told of news in a watched topic, with the lock held: it may only take note."""
        self.on_routed: Callable[[Topic], None] = ignore
        """Called with a topic that routers copy from, when it has grown; the lock is held."""

    def submit_control(
        self, frame: bytes, *, needs_sync: bool = False, abort: Callable[[], None] | None = None
    ) -> Ticket:
        """Queue a frame that has nothing to publish; `abort` undoes what was done for it."""
        ticket = Ticket([frame], frames=1, needs_sync=needs_sync, publish=_nothing, abort=abort)
        self.commit.submit(ticket)
        return ticket

    def check_memory(self, topic: Topic, options: WriteOptions, *, now_ms: int) -> None:
        """Refuse a write whose key or producer the topic has no room to remember."""
        topic.idempotency.check_room(
            options,
            now_ms=now_ms,
            config=topic.config,
            max_keys=self._max_keys,
            max_producers=self._max_producers,
        )

    def submit_batch(self, frames: list[bytes]) -> Ticket:
        """Queue control frames that count together, when they are synced, or not at all.

        Every one but the last carries `batch_open`.
        """
        ticket = Ticket(frames, frames=len(frames), needs_sync=True, publish=_nothing)
        self.commit.submit(ticket)
        return ticket

    def submit_floors(self) -> None:
        """Tell the WAL of moved floors, before anything that must not be replayed without them."""
        for topic in sorted(self.floors_due, key=lambda topic: topic.id):
            floors = topic.floors
            body = EvictWatermark(floors.evict_floor, floors.earliest_seq, floors.reason)
            self.submit_control(
                encode_control(body, topic_id=topic.id), abort=partial(self.floors_due.add, topic)
            )
        self.floors_due.clear()


def _nothing() -> None:
    """Publish nothing."""


def ignore(topic: Topic) -> None:
    """Take no note."""
