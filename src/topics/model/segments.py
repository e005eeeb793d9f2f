"""What the files of a topic are, for those who read them without the server."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from topics.limits import MAX_PIN_MS
from topics.model.performance import Performance

PinMs = Annotated[int, Meta(ge=1, le=MAX_PIN_MS, description="how long, from now")]


class SegmentLocation(Struct, frozen=True, kw_only=True):
    """The two files of a segment, by URI."""

    data: str
    idx: str


class SegmentState(Struct, frozen=True, kw_only=True):
    """One segment: the first `records` entries of its `.idx`, the first `bytes` of its `.data`."""

    first_seq: int
    last_seq: int
    records: int
    live_records: int
    bytes: int
    first_ts: int
    last_ts: int
    tier: Literal["hot", "cold"]
    location: SegmentLocation | None
    """None where no other process can read it: records that live in memory."""
    sealed: bool


class HoleState(Struct, frozen=True, kw_only=True):
    """Seqs that were lost and are announced to readers."""

    first_seq: int
    last_seq: int
    reason: str


class PinState(Struct, frozen=True, kw_only=True):
    """A promise that files stay, for so long from the answer on."""

    id: str
    expires_in_ms: int


class Manifest(Struct, frozen=True, kw_only=True):
    """Where the records of a topic are; above the last segment they are only in the log's tail."""

    topic: str
    epoch: int
    head_seq: int
    earliest_seq: int
    evict_floor: int
    evict_reason: str
    holes: list[HoleState]
    segments: list[SegmentState]
    pin: PinState | None


class ManifestReply(Manifest, frozen=True, kw_only=True):
    """The body of the answer to a question for segments."""

    performance: Performance


class PinBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a renewal."""

    pin_ms: PinMs


class PinReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to a renewal."""

    pin: PinState
    performance: Performance


class PinDeleteReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to a release."""

    pin: str
    released: bool
    performance: Performance
