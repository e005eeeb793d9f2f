"""The partitioned topics that a start finds, and which topics are their partitions.

Lives while a start reads snapshot and logs; what is missing is made by `Parents.complete`.
Keeps: a partition without its parent is left only where the parent was deleted; anything else is
damage.
"""

from collections.abc import Iterable

from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import CorruptData
from topics.model.topic_config import TopicConfig
from topics.storage.snapshots.snapshot import PartitionedSnapshot
from topics.storage.wal import frame


class FoundParents:
    """What is known of them so far."""

    def __init__(self) -> None:
        self.parents: dict[int, Partitioned] = {}
        self._children: dict[int, tuple[int, int]] = {}
        """Per topic the id of its parent, and its number."""
        self._superseded: set[int] = set()

    def load(self, saved: PartitionedSnapshot) -> None:
        self.parents[saved.topic_id] = Partitioned(
            saved.topic_id,
            saved.name,
            config=TopicConfig.from_changes(saved.config),
            created_ts=saved.created_ts,
            counts=tuple(saved.counts),
        )

    def create(self, topic_id: int, body: frame.TopicCreate) -> None:
        if topic_id not in self.parents:
            config = dict(body.config)
            saved = PartitionedSnapshot(
                topic_id, body.name, body.created_ts, config, [body.partitions]
            )
            self.load(saved)

    def change(self, topic_id: int, body: frame.ConfigUpdate) -> None:
        """Take in a change; a replay may meet an older one than the snapshot knew."""
        parent = self.parents[topic_id]
        parent.config = TopicConfig.from_changes(body.config)
        if body.partitions > parent.counts[-1]:
            parent.counts = (*parent.counts, body.partitions)

    def note_partition(self, topic_id: int, *, parent_id: int, partition: int) -> None:
        if parent_id:
            self._children[topic_id] = (parent_id, partition)

    def settle_names(self, topics: dict[int, Topic]) -> None:
        """Where two have one name, the younger one proves that the older was deleted."""
        newest: dict[str, int] = {}
        both: Iterable[Topic | Partitioned] = [*topics.values(), *self.parents.values()]
        for topic in sorted(both, key=lambda topic: topic.id):
            older = newest.get(topic.name)
            if older is not None:
                topics.pop(older, None)
                if self.parents.pop(older, None) is not None:
                    self._superseded.add(older)
            newest[topic.name] = topic.id

    def drop_orphans(self, topics: dict[int, Topic], deleted_ids: set[int]) -> list[int]:
        """Let go of the partitions whose parent was deleted; return their ids."""
        gone = [
            topic_id
            for topic_id, (parent_id, _) in self._children.items()
            if topic_id in topics and parent_id not in self.parents
        ]
        for topic_id in gone:
            parent_id = self._children[topic_id][0]
            if parent_id not in deleted_ids and parent_id not in self._superseded:
                raise CorruptData(
                    f"topic {topics[topic_id].name!r} is a partition of topic {parent_id}, which "
                    "neither snapshot nor WAL knows: run topics repair"
                )
            del topics[topic_id]
        return gone

    def join(self, topics: dict[int, Topic]) -> dict[Partitioned, dict[int, Topic]]:
        """Return the parents, each with the partitions there are."""
        found: dict[Partitioned, dict[int, Topic]] = {p: {} for p in self.parents.values()}
        for topic_id, (parent_id, partition) in self._children.items():
            if topic_id in topics:
                topic, parent = topics[topic_id], self.parents[parent_id]
                topic.parent, topic.partition = parent, partition
                found[parent][partition] = topic
                if partition >= parent.counts[-1]:
                    # The word about the parent came first: it was there, and is older than this.
                    parent.counts = (*parent.counts, partition + 1)
        return found
