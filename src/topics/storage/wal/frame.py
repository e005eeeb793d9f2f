"""Control frames of the WAL: everything on the log that is not a record.

Owns the frame types and the msgpack bodies of control frames. Append frames are made in bulk by
`topics.kernel`.
Keeps: a frame decodes to the very body that was encoded.
Byte reference: docs/internals/formats/wal.md.
"""

import struct
from enum import IntEnum
from typing import Any

import msgspec
from msgspec import Struct, field

from topics.kernel import xxh3_64
from topics.storage.disk.disk import Buffer

HEADER = struct.Struct("<IBBQQQHHI")
CHECKSUM = struct.Struct("<Q")
OVERHEAD_BYTES = HEADER.size + CHECKSUM.size
LEN_FIELD_BYTES = 4


class FrameType(IntEnum):
    """What a frame says."""

    APPEND = 1
    TOPIC_CREATE = 2
    TOPIC_DELETE = 3
    ROUTER_CREATE = 4
    ROUTER_DELETE = 5
    DELETE = 6
    EVICT_WATERMARK = 7
    CHECKPOINT_MARK = 8
    CONFIG_UPDATE = 9
    LEASE = 10
    HEAD_WATERMARK = 11
    DEDUPE = 12
    GROUP = 13
    HOLE = 14
    TIER = 15
    SYNC_MARK = 16


class Body(Struct, frozen=True, array_like=True):
    """The msgpack body of a control frame: fields by place, new ones only at the end."""


class TopicCreate(Body, frozen=True):
    """A topic begins: with `partitions` a partitioned one, with a `parent_id` one of its parts.

    Without a name its id is only taken: an upload may use it.
    """

    name: str
    config: dict[str, Any]
    created_ts: int
    partitions: int = 0
    parent_id: int = 0
    partition: int = 0


class TopicDelete(Body, frozen=True):
    """A topic ends, with all that it holds."""


class RouterCreate(Body, frozen=True):
    """A router begins or changes, or, without a definition, all routers of a destination move on.

    The frame belongs to the destination: copies from `dest_seq` on are of source records behind
    `cursor`.
    """

    name: str
    definition: dict[str, Any]
    number: int = 0
    """Grows with each frame that has a definition: of two routers of one name the last counts."""
    source_id: int = 0
    cursor: int = 0
    dest_seq: int = 0


class RouterDelete(Body, frozen=True):
    """A router ends."""

    name: str


class Delete(Body, frozen=True):
    """Records are deleted: the predicate, and the head when it was decided."""

    before_seq: int
    match: tuple[str, str] | None
    upto_seq: int


class EvictWatermark(Body, frozen=True):
    """Live records were lost to cap or TTL."""

    evict_floor: int
    earliest_seq: int
    reason: str


class CheckpointMark(Body, frozen=True):
    """Per topic the highest seq that synced segments hold."""

    absorbed: dict[int, int]
    cursors: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Per destination of routers the source, and the source seq whose copies are among them."""


class ConfigUpdate(Body, frozen=True):
    """The whole config of a topic from here on; of a partitioned one the partitions, too."""

    config: dict[str, Any]
    partitions: int = 0


class Lease(Body, frozen=True):
    """One event of a queue: `ack`, `dead`, `dead_done`, and with durable leases the others.

    A frame says what is so from here on, so that a replay may meet it twice.
    """

    event: str
    node: str
    seqs: list[int]
    lease_ids: list[str]
    deadline: int
    deliveries: list[int] = field(default_factory=list)
    number: int = 0


class HeadWatermark(Body, frozen=True):
    """Seqs up to `ceiling` may have been handed out."""

    ceiling: int


class Dedupe(Body, frozen=True):
    """The write that follows in the same batch must not happen twice."""

    key: str | None
    producer_id: str | None
    producer_seq: int
    first_seq: int
    count: int


class Group(Body, frozen=True):
    """One event of a consumer group."""

    group: str
    event: str
    fields: dict[str, Any]


class Hole(Body, frozen=True):
    """Seqs that no file holds any more."""

    first_seq: int
    last_seq: int
    reason: str


class Tier(Body, frozen=True):
    """Where a sealed segment lives."""

    first_seq: int
    tier: str


class SyncMark(Body, frozen=True):
    """Everything before this place was synced when the mark was written."""

    file: int
    offset: int


BODY_TYPES: dict[FrameType, type[Body]] = {
    FrameType.TOPIC_CREATE: TopicCreate,
    FrameType.TOPIC_DELETE: TopicDelete,
    FrameType.ROUTER_CREATE: RouterCreate,
    FrameType.ROUTER_DELETE: RouterDelete,
    FrameType.DELETE: Delete,
    FrameType.EVICT_WATERMARK: EvictWatermark,
    FrameType.CHECKPOINT_MARK: CheckpointMark,
    FrameType.CONFIG_UPDATE: ConfigUpdate,
    FrameType.LEASE: Lease,
    FrameType.HEAD_WATERMARK: HeadWatermark,
    FrameType.DEDUPE: Dedupe,
    FrameType.GROUP: Group,
    FrameType.HOLE: Hole,
    FrameType.TIER: Tier,
    FrameType.SYNC_MARK: SyncMark,
}
_TYPE_OF_BODY = {body: frame_type for frame_type, body in BODY_TYPES.items()}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[int, msgspec.msgpack.Decoder[Body]] = {
    int(t): msgspec.msgpack.Decoder(body) for t, body in BODY_TYPES.items()
}


_SYNC_MARK_BYTES = 19
_SYNC_MARK_HEAD = HEADER.pack(
    OVERHEAD_BYTES - LEN_FIELD_BYTES + _SYNC_MARK_BYTES,
    FrameType.SYNC_MARK,
    0,
    0,
    0,
    0,
    0,
    0,
    _SYNC_MARK_BYTES,
)


def encode_control(body: Body, *, topic_id: int = 0, ts: int = 0, flags: int = 0) -> bytes:
    data = _ENCODER.encode(body)
    frame_type = _TYPE_OF_BODY[type(body)]
    frame_len = OVERHEAD_BYTES - LEN_FIELD_BYTES + len(data)
    head = HEADER.pack(frame_len, frame_type, flags, topic_id, 0, ts, 0, 0, len(data))
    checksum = xxh3_64(head[LEN_FIELD_BYTES:] + data)
    return head + data + CHECKSUM.pack(checksum)


def encode_sync_mark(file: int, offset: int) -> bytes:
    """Encode a SyncMark by hand: each synced write of a lone writer starts with one."""
    data = b"\x92\xcf%b\xcf%b" % (file.to_bytes(8), offset.to_bytes(8))
    head = _SYNC_MARK_HEAD
    return head + data + CHECKSUM.pack(xxh3_64(head[LEN_FIELD_BYTES:] + data))


def decode_control(buffer: Buffer, offset: int) -> Body:
    """Decode the body of a control frame that a scan has already found whole."""
    _, frame_type, _, _, _, _, node_len, tag_len, data_len = HEADER.unpack_from(buffer, offset)
    start = offset + HEADER.size + node_len + tag_len
    decoder = _DECODERS.get(frame_type) or _DECODERS[FrameType(frame_type)]
    return decoder.decode(bytes(buffer[start : start + data_len]))


def frame_ts(buffer: Buffer, offset: int) -> int:
    ts: int = HEADER.unpack_from(buffer, offset)[5]
    return ts
