"""What a delete answers."""

from msgspec import Struct


class Deleted(Struct, frozen=True, kw_only=True):
    """How many records went, and the topic after it."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
