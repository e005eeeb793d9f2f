"""What an append takes, and what it answers.

The kernel reads the body in one pass; `AppendBody` says to people and tools what it accepts.
"""

import struct
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from topics.limits import MAX_IDEMPOTENCY_KEY_CHARS, MAX_KEY_BYTES, MAX_META_KEYS
from topics.model.diff import Seq
from topics.model.partitions import Placement
from topics.model.performance import Performance
from topics.model.topic_config import TopicConfig

_PLACE = struct.Struct("<H")


class Appended(Struct, frozen=True, kw_only=True):
    """The seqs that one write got."""

    topic: str
    first_seq: int
    last_seq: int
    count: int
    head_seq: int
    created: bool = False
    deduped: bool = False
    placements: tuple[Placement, ...] = ()
    """Of a write to a partitioned topic, which has no seqs of its own: those above are 0."""
    places: bytes = b""
    """Then, per record in the order of the request: its partition, as u16. `placed` reads it."""

    @property
    def placed(self) -> list[tuple[int, int]]:
        """Return partition and seq of each record of a write to partitions, in its order.

        The seq is 0 where a repeat has fewer records than were sent now, or they are forgotten.
        """
        following = {p.partition: iter(range(p.first_seq, p.last_seq + 1)) for p in self.placements}
        return [
            (place, next(following[place], 0) if place in following else 0)
            for (place,) in _PLACE.iter_unpack(self.places)
        ]

    @property
    def seqs(self) -> list[int]:
        return list(range(self.first_seq, self.last_seq + 1)) if self.first_seq else []


class WriteOptions(Struct, frozen=True, kw_only=True):
    """How a write wants to be treated."""

    idempotency_key: str | None = None
    producer_id: str | None = None
    producer_seq: int | None = None
    create: bool = True
    queue: bool = False
    """They are jobs: the topic has to be a queue, and is made one."""

    @property
    def repeatable(self) -> bool:
        """Tell whether the same write may come again and must not happen twice."""
        return self.idempotency_key is not None or self.producer_id is not None


class NewRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record as it is written; `data` and `meta` come back as the very bytes that were sent."""

    data: Annotated[Any, Meta(description="any JSON; null is data, too")]
    tag: Annotated[str, Meta(max_length=256)] | None = None
    key: (
        Annotated[
            str,
            Meta(
                max_length=MAX_KEY_BYTES,
                description="of a partitioned topic: says which partition, the tag does without "
                "one; elsewhere ignored",
            ),
        ]
        | None
    ) = None
    node: Annotated[str, Meta(max_length=128)] | None = None
    meta: Annotated[dict[str, Any], Meta(max_length=MAX_META_KEYS)] | None = None


class AppendBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an append: all of it is written, with contiguous seqs, or nothing."""

    records: Annotated[list[NewRecord], Meta(min_length=1, max_length=10_000)]
    node: Annotated[str, Meta(max_length=128)] | None = None
    idempotency_key: (
        Annotated[str, Meta(min_length=1, max_length=MAX_IDEMPOTENCY_KEY_CHARS)] | None
    ) = None
    create: Annotated[bool, Meta(description="false: 404 where the topic is absent")] = True
    config: Annotated[
        TopicConfig | None, Meta(description="used only if this write creates the topic")
    ] = None
    disable_backpressure: bool = False
    producer_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    producer_seq: Annotated[Seq, Meta(description="rises with each write")] | None = None
    queue: Annotated[
        bool, Meta(description="these are jobs: 409 for a log, an absent topic becomes a queue")
    ] = False


class AppendReply(Struct, frozen=True, kw_only=True):
    """The body of the answer: the seqs are spelled out unless `return_seqs=false`.

    That of a partitioned topic has `placements`, and no seqs of the topic itself.
    """

    topic: str
    first_seq: int | UnsetType = UNSET
    last_seq: int | UnsetType = UNSET
    placements: list[Placement] | UnsetType = UNSET
    seqs: (
        Annotated[
            list[int | tuple[int, int]],
            Meta(description="of a partitioned topic pairs of partition and seq"),
        ]
        | UnsetType
    ) = UNSET
    head_seq: int | UnsetType = UNSET
    count: int
    created: bool
    deduped: bool
    performance: Performance
