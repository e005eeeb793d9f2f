"""What a partitioned topic takes and shows besides what every topic does."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from topics.limits import MAX_PARTITIONS
from topics.model.topic_config import TopicConfig


class TopicPutBody(TopicConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a create or an update: a config, and how many partitions there should be."""

    partitions: (
        Annotated[
            int,
            Meta(ge=1, le=MAX_PARTITIONS, description="makes a partitioned topic; may grow"),
        ]
        | UnsetType
    ) = UNSET


class Placement(Struct, frozen=True, kw_only=True):
    """What one partition got of a write."""

    partition: int
    topic: str
    first_seq: int
    last_seq: int
    count: int


class PartitionState(Struct, frozen=True, kw_only=True):
    """One partition as its parent shows it."""

    partition: int
    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
