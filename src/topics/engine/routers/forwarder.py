"""When links forward: soon after their source has grown, again and again while they cannot.

Owns which sources are due and which links wait. Everything here runs under the one lock of
`topics.engine.routers.table.Routers`, which comes before every other lock; shards' locks are taken
one at a time.
"""

from collections.abc import Callable, Sequence

from topics.clock import Clock
from topics.engine.routers.forward import submit_skip, submit_stretch
from topics.engine.routers.gather import STEP_RECORDS, Stretch, gather
from topics.engine.routers.link import Link
from topics.engine.seek import read_again
from topics.engine.shard import Shard
from topics.engine.stores import Stores
from topics.engine.topics.topic import Topic
from topics.errors import (
    RecordTooLarge,
    RetryLater,
    StorageError,
    TopicFull,
    TopicsError,
)
from topics.storage.wal.group_commit import Commitment

BACKOFF_MS = (100, 5_000)
WAVES_MAX = 64
"""So many steps along chains of routers in one call; what is due then stays due."""


def never() -> bool:
    return False


class Forwarder:
    """Moves links on."""

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        stores: Stores,
        clock: Clock,
        make_room: Callable[[Shard], None],
    ) -> None:
        self._shards = shards
        self._stores = stores
        self._clock = clock
        self._make_room = make_room
        self.due: set[Topic] = set()
        """Sources that have grown; writers add to it under their shard's lock."""
        self._waiting: set[Link] = set()

    def forward_once(self, *, is_over: Callable[[], bool]) -> bool:
        """Forward what is due until it `is_over`, one step at least; tell whether anything moved.

        What is due then stays due.
        """
        moved = False
        failure: TopicsError | None = None
        now_s = self._clock.monotonic_s()
        ready = {link for link in self._waiting if link.retry_at_s <= now_s}
        for _ in range(WAVES_MAX):
            links = ready | {link for topic in self._take_due() for link in topic.links}
            ready = set()
            ordered = sorted(links - self._waiting_now(now_s), key=_by_lag)
            for at, link in enumerate(ordered):
                try:
                    moved = self.forward(link, is_over=is_over) or moved
                except (RetryLater, StorageError) as error:
                    failure = failure or error
                if is_over():
                    self.due.update(other.source for other in ordered[at + 1 :] if other.is_due)
                    break
            if not self.due or is_over():
                break
        if isinstance(failure, StorageError):
            raise failure
        return moved

    def forward(self, link: Link, *, is_over: Callable[[], bool] = never) -> bool:
        """Forward what the source has until it `is_over`, one step at least.

        Tell whether the cursor moved.
        """
        head_seq, before = link.source.head_seq, link.cursor
        self._waiting.discard(link)
        limit = STEP_RECORDS
        try:
            if link.cursor < head_seq and link.dest.config.durability == "fsync":
                self._sync_source(link)
            while link.cursor < head_seq and limit:
                limit = self._step(link, head_seq, limit)
                if is_over():
                    break
        except (RetryLater, StorageError):
            self._wait(link)
            raise
        if not limit:
            self._wait(link)
            return link.cursor > before
        link.backoff_ms = 0
        if link.cursor < head_seq:
            self.due.add(link.source)
        return link.cursor > before

    def forget(self, link: Link) -> None:
        self._waiting.discard(link)

    def _step(self, link: Link, head_seq: int, limit: int) -> int:
        """Forward one stretch; return how long the next one may be, 0 where there is no room."""
        shard = self._shard_of(link.dest)
        self._make_room(shard)
        stretch = self._gather(link, head_seq, limit)
        finished: list[Commitment] = []
        try:
            with shard.lock:
                finished = shard.commit.flush()  # so that what it publishes makes room, or takes it
                ticket = submit_stretch(shard, link, stretch, clock=self._clock)
        except RecordTooLarge:
            if limit > 1 and stretch.copies.count > 1:
                return min(limit, stretch.copies.count) // 2
            # It will never fit: told as lost, so that what comes behind it goes on.
            with shard.lock:
                ticket = submit_skip(shard, link, stretch)
        except TopicFull:
            return min(limit, stretch.copies.count) // 2
        finally:
            shard.commit.wake(finished)
        if ticket is not None:
            shard.commit.commit(ticket)
        return STEP_RECORDS

    def _gather(self, link: Link, head_seq: int, limit: int) -> Stretch:
        """Read the source as `read_diff` does: files may be swapped under a reader."""
        hot_disk = self._stores.hot_disk
        return read_again(
            link.source, lambda: gather(link, head_seq, hot_disk=hot_disk, limit=limit)
        )

    def _sync_source(self, link: Link) -> None:
        """Make the source as safe as the destination promises, up the whole chain."""
        if link.source.config.durability == "fsync" and link.source.link is None:
            return
        for shard in self._shards:
            if shard.commit.log.needs_sync:
                shard.commit.sync_once()
        above: Topic = link.source
        seen: set[Topic] = set()
        while above not in seen:
            seen.add(above)
            self._shard_of(above).commit.log.check_writable()
            if above.link is not None:
                above = above.link.source

    def _take_due(self) -> set[Topic]:
        taken = set()
        while self.due:
            taken.add(self.due.pop())
        return taken

    def _waiting_now(self, now_s: float) -> set[Link]:
        return {link for link in self._waiting if link.retry_at_s > now_s}

    def _wait(self, link: Link) -> None:
        low, high = BACKOFF_MS
        link.backoff_ms = min(max(low, 2 * link.backoff_ms), high)
        link.retry_at_s = self._clock.monotonic_s() + link.backoff_ms / 1000
        self._waiting.add(link)

    def _shard_of(self, topic: Topic) -> Shard:
        return self._shards[topic.id % len(self._shards)]


def _by_lag(link: Link) -> tuple[int, str]:
    """Put the one that is furthest behind first: a turn may be over after a single step."""
    return link.cursor - link.source.head_seq, link.dest.name
