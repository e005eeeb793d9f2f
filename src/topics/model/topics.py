"""What a topic shows of itself."""

from msgspec import Struct

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
