"""What a compaction of the cold tier takes and gives."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from topics.model.performance import Performance

COMPACT_SEGMENTS: Final = 16
COMPACT_SEGMENTS_MAX: Final = 1024


class CompactBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a compaction: which segments, and how many of them now."""

    tier: Literal["cold"] = "cold"
    min_dead_ratio: Annotated[
        float, Meta(ge=0, le=1, description="more than this share of the bytes is dead")
    ] = 0.5
    max_segments: Annotated[int, Meta(ge=1, le=COMPACT_SEGMENTS_MAX)] = COMPACT_SEGMENTS


class Compacted(Struct, frozen=True, kw_only=True):
    """What was done, and what is left to do."""

    topic: str
    rewritten: int
    freed_bytes: int
    remaining: int
    """Segments with more dead bytes than asked for that were not rewritten: call again."""


class CompactReply(Compacted, frozen=True, kw_only=True):
    """The body of the answer to a compaction."""

    performance: Performance
