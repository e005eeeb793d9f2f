"""What bulk loading says: an upload, and the segments that were built for it."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from topics.model.diff import Seq
from topics.model.performance import Performance
from topics.model.topic_config import TopicConfig, TopicName

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{16}$", description="XXH3-64 of a whole file, hex")]
Size = Annotated[int, Meta(ge=1, le=2**32 - 1)]


LoadedConfig = Annotated[
    TopicConfig,
    Meta(
        extra_json_schema={
            "properties": {
                "type": {"const": "log"},
                "durability": {"enum": ["memory", "disk", "fsync"]},
            }
        }
    ),
]


class UploadBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that begins an upload: what the topic will be."""

    topic: TopicName
    config: dict[str, Any] = {}


class UploadSchema(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`UploadBody` with the config spelled out, for those who read the API."""

    topic: TopicName
    config: LoadedConfig = TopicConfig()


class UploadState(Struct, frozen=True, kw_only=True):
    """A place for files that become a topic."""

    upload: str
    topic: str
    topic_id: int
    """Every frame carries it; it becomes the `epoch` of the topic."""
    directory: str | None
    """As a URI; None where no other process can write."""
    expires_in_ms: int


class UploadReply(UploadState, frozen=True, kw_only=True):
    """The body of the answer to a new upload."""

    performance: Performance


class BuiltSegment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pair of files in the directory, as its builder knows it."""

    first_seq: Seq
    last_seq: Seq
    bytes: Size
    """Of the `.data`."""
    xxh3_data: Digest
    xxh3_idx: Digest


class AttachBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that ends an upload: all its segments, in the order of seqs."""

    segments: Annotated[list[BuiltSegment], Meta(min_length=1)]


class Attached(Struct, frozen=True, kw_only=True):
    """The topic is there, whole."""

    topic: str
    epoch: int
    head_seq: int
    records: int
    bytes: int
    segments: int


class AttachReply(Attached, frozen=True, kw_only=True):
    """The body of the answer to the end of an upload."""

    performance: Performance


class UploadDeleteReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to an upload that is given up."""

    upload: str
    deleted: bool
    performance: Performance
