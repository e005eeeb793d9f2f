"""The partitioned topics of a directory: what is told of them, and what their partitions can tell.

A start refuses partitions whose parent nothing knows. Such a parent can be made again from the
names of its partitions.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from topics.engine.topics.partitioned import parse_partition_name
from topics.storage.snapshots.snapshot import PartitionedSnapshot
from topics.storage.wal import frame

if TYPE_CHECKING:
    from topics.operate.state import TopicFacts


class ParentFacts:
    """What is known of one partitioned topic."""

    def __init__(
        self,
        topic_id: int,
        name: str,
        *,
        config: dict[str, Any],
        created_ts: int,
        counts: list[int],
    ) -> None:
        self.id = topic_id
        self.name = name
        self.config = config
        self.created_ts = created_ts
        self.counts = counts

    @classmethod
    def of_snapshot(cls, saved: PartitionedSnapshot) -> "ParentFacts":
        return cls(
            saved.topic_id,
            saved.name,
            config=dict(saved.config),
            created_ts=saved.created_ts,
            counts=list(saved.counts),
        )

    @classmethod
    def of_frame(cls, topic_id: int, body: frame.TopicCreate) -> "ParentFacts":
        return cls(
            topic_id,
            body.name,
            config=dict(body.config),
            created_ts=body.created_ts,
            counts=[body.partitions],
        )

    def apply(self, body: frame.ConfigUpdate) -> None:
        self.config = dict(body.config)
        if body.partitions > self.counts[-1]:
            self.counts.append(body.partitions)

    def save(self, config: dict[str, Any]) -> PartitionedSnapshot:
        return PartitionedSnapshot(self.id, self.name, self.created_ts, config, self.counts)


def lost_parents(
    topics: Iterable["TopicFacts"], known: Iterable[int]
) -> dict[int, list["TopicFacts"]]:
    """Return the partitions whose parent nothing knows, by its id."""
    there, lost = set(known), dict[int, list["TopicFacts"]]()
    for topic in topics:
        if topic.parent_id and topic.parent_id not in there:
            lost.setdefault(topic.parent_id, []).append(topic)
    return lost


def rebuild_parent(parent_id: int, partitions: list["TopicFacts"]) -> ParentFacts | None:
    """Make a parent again from what its partitions say; None where they do not say its name."""
    named = [(parse_partition_name(topic.name or ""), topic) for topic in partitions]
    names = {parsed[0] for parsed, _ in named if parsed is not None}
    if len(names) != 1:
        return None
    newest = max(partitions, key=lambda topic: topic.partition)
    return ParentFacts(
        parent_id,
        names.pop(),
        config=dict(newest.config),
        created_ts=min(topic.created_ts for topic in partitions),
        counts=[newest.partition + 1],
    )
