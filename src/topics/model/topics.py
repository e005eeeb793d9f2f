"""What a topic shows of itself."""

from msgspec import UNSET, Struct, UnsetType

from topics.model.partitions import PartitionState
from topics.model.performance import Performance
from topics.model.queues import QueueState
from topics.model.topic_config import TopicConfig


class TopicState(Struct, frozen=True, kw_only=True):
    """The state of one topic at one moment."""

    topic: str
    type: str
    epoch: int
    head_seq: int
    earliest_seq: int
    evict_floor: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    last_write_ts: int | None
    last_read_ts: int | None
    segments: int
    cold_segments: int
    queue: QueueState | None = None
    partitions: list[PartitionState] | None = None
    """Of a partitioned topic: the others are sums over these, its floors 0."""


class TopicReply(TopicState, frozen=True, kw_only=True):
    """The body of the answer to a look at one topic."""

    effective_priority: int
    performance: Performance


class TopicPutReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to a create or an update: the config is whole and resolved."""

    topic: str
    created: bool
    partitions: int | UnsetType = UNSET
    config: TopicConfig
    performance: Performance


class TopicDeleteReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to the end of a topic."""

    topic: str
    deleted: bool
    routers_removed: list[str]
    performance: Performance


class ListedTopic(Struct, frozen=True, kw_only=True):
    """One line of a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    type: str = "log"
    durability: str | None = None
    """None: of a server before this one."""
    partitions: int | UnsetType = UNSET


class TopicListReply(Struct, frozen=True, kw_only=True):
    """One page of a list; `next_cursor` is there while there are more."""

    topics: list[ListedTopic]
    next_cursor: str | UnsetType = UNSET
    performance: Performance
