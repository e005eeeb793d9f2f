"""Compact the cold tier: cold segments come back without their dead records and leave again.

    read cold, write the new pair on the hot disk (threads) → swap, as any rewrite → relocate

Keeps: at every moment one whole pair is in use: the old cold one, the new hot one, the new cold
one. What a crash leaves is what a crash of a rewrite or of a relocation leaves.
Reference: docs/reference/segments.md.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress

from topics.config import ServerConfig
from topics.engine import maintenance
from topics.engine.shard import Shard
from topics.engine.stores import Stores
from topics.engine.topics.topic import Topic
from topics.errors import StorageError
from topics.model.compact import Compacted
from topics.storage.segments.rewrite import Rewrite
from topics.storage.segments.segment import Segment


def plan_compaction(topic: Topic, *, min_dead_ratio: float) -> list[Segment]:
    """Return the cold segments that are worth it, oldest first."""
    kept = topic.pinned_from
    return [
        s
        for s in topic.segments()
        if s.last_seq < kept
        and maintenance.wants_rewrite(s, min_dead_ratio, tier="cold")
        and not topic.is_pinned(s)
    ]


class Compaction:
    """One compaction of one topic; whoever runs it holds the cold lock."""

    def __init__(
        self,
        shard: Shard,
        topic: Topic,
        *,
        stores: Stores,
        config: ServerConfig,
        work_lock: AbstractContextManager[bool],
    ) -> None:
        self._shard = shard
        self._topic = topic
        self._stores = stores
        self._config = config
        self._work_lock = work_lock

    def run(self, *, min_dead_ratio: float, max_segments: int) -> Compacted:
        topic = self._topic
        planned = plan_compaction(topic, min_dead_ratio=min_dead_ratio)[:max_segments]
        before = {segment: segment.data_bytes for segment in planned}
        done = self._rewrite(planned)
        freed_bytes = sum(before[segment] - segment.data_bytes for segment in done)
        if done:
            topic.cold_strays = True  # the old copies, until the new ones are there
            maintenance.relocate(self._shard, topic, stores=self._stores, config=self._config)
            maintenance.refresh_cold(self._shard, topic, stores=self._stores)
        return Compacted(
            topic=topic.name,
            rewritten=len(done),
            freed_bytes=freed_bytes,
            remaining=len(plan_compaction(topic, min_dead_ratio=min_dead_ratio)),
        )

    def _rewrite(self, segments: Sequence[Segment]) -> list[Segment]:
        """Prepare on several threads, swap one by one; return what was swapped."""
        rewrites = [Rewrite(segment, home=self._stores.hot) for segment in segments]
        done: list[Segment] = []
        with ThreadPoolExecutor(
            max_workers=self._config.cold_threads, thread_name_prefix="topics-compact"
        ) as pool:
            waiting = deque(
                (segment, rewrite, pool.submit(rewrite.prepare))
                for segment, rewrite in zip(segments, rewrites, strict=True)
            )
            try:
                while waiting:
                    segment, rewrite, prepared = waiting[0]
                    prepared.result()
                    with self._work_lock:
                        if maintenance.finish_rewrite(self._shard, self._topic, segment, rewrite):
                            done.append(segment)
                    waiting.popleft()
            finally:
                for _, rewrite, prepared in waiting:  # after a failure: leave no files
                    prepared.cancel()
                    wait([prepared])  # it may still write
                    with suppress(StorageError):
                        rewrite.abandon()
        return done
