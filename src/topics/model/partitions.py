"""What a partitioned topic takes and shows besides what every topic does."""

from msgspec import Struct


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
