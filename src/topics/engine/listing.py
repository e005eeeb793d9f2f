"""One line a topic: what a list of topics shows."""

from topics.engine.delivery.priority import effective_priority
from topics.engine.engine import Engine
from topics.engine.topics.topic import Topic
from topics.model.topics import ListedTopic


def priority_of(topic: Topic, *, now_ms: int) -> int:
    """Return the priority that a topic has now, by its config and its use."""
    used_ms = max(topic.last_ts, topic.last_read_ts or 0, topic.created_ts)
    return effective_priority(topic.config, idle_ms=now_ms - used_ms)


def list_topic(engine: Engine, name: str) -> ListedTopic | None:
    """Look at one topic, partitioned or not; that is no read. None where it is gone."""
    now_ms = engine.clock.now_ms()
    topic, parent = engine.find_topic(name), engine.find_partitioned(name)
    if topic is not None:
        return ListedTopic(
            topic=name,
            head_seq=topic.head_seq,
            earliest_seq=topic.floors.earliest_seq,
            count=topic.live_records,
            bytes=topic.live_bytes,
            durable=topic.config.durable,
            type=topic.config.type,
            durability=topic.config.durability,
            effective_priority=priority_of(topic, now_ms=now_ms),
        )
    if parent is None:
        return None
    topics = parent.partitions
    return ListedTopic(
        topic=name,
        head_seq=sum(topic.head_seq for topic in topics),
        earliest_seq=0,  # a parent has no seqs of its own
        count=sum(topic.live_records for topic in topics),
        bytes=sum(topic.live_bytes for topic in topics),
        durable=parent.config.durable,
        type=parent.config.type,
        durability=parent.config.durability,
        effective_priority=max([priority_of(t, now_ms=now_ms) for t in topics], default=0),
        partitions=len(topics),
    )
