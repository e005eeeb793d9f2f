"""Snapshots of the metadata: what lets a start skip the old part of the WAL.

Owns the files `meta/snapshot.*.bin`. Keeps: a snapshot is there whole or not at all, and the one
before it stays too.
Byte reference: docs/internals/formats/snapshot.md.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import msgspec
from msgspec import Struct

from topics.errors import CorruptData, UnknownFormat
from topics.kernel import xxh3_64
from topics.storage.disk import paths
from topics.storage.disk.data_dir import write_file
from topics.storage.disk.disk import Disk, ReadableDisk
from topics.storage.segments.segment import SegmentSums

MAGIC = b"TPSN"
VERSION = 2
READABLE_VERSIONS = (1, 2)
HEADER = struct.Struct("<4sIQQ")
KEPT_SNAPSHOTS = 2
ENCODED_ENTRIES = 4096
FIXED_MAP_ENTRIES = 16
"""A map of msgpack with fewer has a head of one byte, others of up to 65535 have one of three."""


class DedupeEntry(Struct, frozen=True, array_like=True):
    """A write that must not happen twice."""

    first_seq: int
    count: int
    ts: int


class JobSnapshot(Struct, frozen=True, array_like=True):
    """A job of a queue with durable leases; without a lease id it is ready from `until` on."""

    seq: int
    node: str
    lease_id: str
    until: int
    deliveries: int


class MoveSnapshot(Struct, frozen=True, array_like=True):
    """A job on its way to a dead-letter topic."""

    number: int
    seq: int
    dead_letter: str
    deliveries: int


class QueueSnapshot(Struct, frozen=True, array_like=True):
    """What a queue knows besides its records."""

    fresh_seq: int
    next_move: int
    dead_lettered: int
    jobs: list[JobSnapshot]
    moves: list[MoveSnapshot]


class RouterSnapshot(Struct, frozen=True, array_like=True):
    """One router."""

    name: str
    definition: dict[str, Any]
    number: int
    forwarded_total: int


class LinkSnapshot(Struct, frozen=True, array_like=True):
    """The routers into one topic: all have one source."""

    source_id: int
    cursor: int
    """The source seq whose copies are within `absorbed_seq`."""
    routers: list[RouterSnapshot]


class RestSnapshot(Struct, frozen=True, array_like=True):
    """What a stop knows of the records of a topic, so that the next start need not read them."""

    live_records: int
    live_bytes: int
    oldest_ts: int
    has_tag_runs: bool
    segments: list[SegmentSums]
    """Those on the hot disk, ascending: all there are."""


class TopicSnapshot(Struct, frozen=True, array_like=True):
    """One topic as it was when the snapshot was taken."""

    topic_id: int
    name: str
    created_ts: int
    config: dict[str, Any]
    head_seq: int
    reserved_seq: int
    last_ts: int
    evict_floor: int
    earliest_seq: int
    evict_reason: str
    delete_below: int
    absorbed_seq: int
    holes: list[tuple[int, int, str]]
    cold_segments: list[int]
    idempotency: dict[str, DedupeEntry | bytes]
    """As `engine.topics.idempotency` packs them; version 1 had objects."""
    producers: dict[str, list[tuple[int, DedupeEntry]] | bytes]
    queue: QueueSnapshot | None = None
    link: LinkSnapshot | None = None
    parent_id: int = 0
    """The partitioned topic that this is a partition of."""
    partition: int = 0
    rest: RestSnapshot | None = None
    """Only of a stop."""


class PartitionedSnapshot(Struct, frozen=True, array_like=True):
    """One partitioned topic; its partitions are topics that name it."""

    topic_id: int
    name: str
    created_ts: int
    config: dict[str, Any]
    counts: list[int]
    """Every number of partitions it ever had, oldest first."""


class ShardSnapshot(Struct, frozen=True, array_like=True):
    """Where the replay of one WAL directory starts."""

    directory: str
    file: int
    offset: int


class GroupSnapshot(Struct, frozen=True, array_like=True):
    """One consumer group: its membership as a `state` frame has it, and its progress."""

    name: str
    membership: dict[str, Any]
    committed: list[tuple[str, int, int, int]]
    """Topic, partition, topic id, seq."""


class GroupsSnapshot(Struct, frozen=True, array_like=True):
    """All consumer groups, and the highest generation of a deleted one."""

    floor: int = 0
    groups: list[GroupSnapshot] = msgspec.field(default_factory=list)


class Snapshot(Struct, frozen=True, array_like=True):
    """Everything that the WAL before the shards' places would have told."""

    next_topic_id: int
    shards: list[ShardSnapshot]
    topics: list[TopicSnapshot]
    clean: bool
    """The log ended exactly at the shards' places: a clean stop."""
    partitioned: list[PartitionedSnapshot] = msgspec.field(default_factory=list)
    groups: GroupsSnapshot = msgspec.field(default_factory=GroupsSnapshot)
    ends: list[ShardSnapshot] = msgspec.field(default_factory=list)
    """Only of a stop: where each log ended. Records that no segment holds may be before."""
    former: dict[str, int] = msgspec.field(default_factory=dict)
    """The highest seqs that topics had which are gone, by name."""
    former_rest: int | None = None
    """That of all others. None: the snapshot is older than the knowledge."""


ANY_SEQ = 2**64 - 1
"""As `former_rest`: of a copy that others may be ahead of, whatever it says of itself."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Snapshot)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    body = b"".join(_encode_body(snapshot))
    return HEADER.pack(MAGIC, VERSION, len(body), xxh3_64(body)) + body


def encode_topic(topic: TopicSnapshot) -> TopicSnapshot:
    """Return what stands for a topic in a snapshot that is only to be saved, in less memory."""
    fields = [getattr(topic, name) for name in topic.__struct_fields__]
    encoded = [_head_of_array(len(fields))]
    for field in fields:
        if isinstance(field, dict) and len(field) > ENCODED_ENTRIES:
            encoded += _encode_large_map(field)
        else:
            encoded.append(_ENCODER.encode(field))
    return cast("TopicSnapshot", msgspec.Raw(b"".join(encoded)))


def _encode_large_map(entries: dict[str, bytes]) -> Iterator[bytes]:
    """Encode some entries at a time: a call keeps all other threads waiting."""
    yield b"\xdf" + len(entries).to_bytes(4, "big")
    items = iter(entries.items())
    while some := dict(islice(items, ENCODED_ENTRIES)):
        head_bytes = 1 if len(some) < FIXED_MAP_ENTRIES else 3
        yield _ENCODER.encode(some)[head_bytes:]


def _encode_body(snapshot: Snapshot) -> Iterator[bytes]:
    """Encode many topics one after the other: other threads have their turn between them."""
    fields = [getattr(snapshot, name) for name in snapshot.__struct_fields__]
    yield _head_of_array(len(fields))
    for field in fields:
        if field is snapshot.topics:
            yield _head_of_array(len(field))
            yield from map(_ENCODER.encode, field)
        else:
            yield _ENCODER.encode(field)


def _head_of_array(count: int) -> bytes:
    """Return what msgpack has in front of the items of an array."""
    return b"\xdd" + count.to_bytes(4, "big")


def decode_snapshot(content: bytes, *, name: str) -> Snapshot:
    if len(content) < HEADER.size:
        raise CorruptData(f"{name} is cut short", segment=name)
    magic, version, body_len, checksum = HEADER.unpack_from(content, 0)
    body = content[HEADER.size :]
    if magic != MAGIC or len(body) != body_len or xxh3_64(body) != checksum:
        raise CorruptData(f"{name} does not match its checksum", segment=name)
    if version not in READABLE_VERSIONS:
        raise UnknownFormat(
            f"{name} has snapshot version {version}, this is {VERSION}: use a newer topics"
        )
    return _DECODER.decode(body)


def list_snapshots(disk: ReadableDisk) -> list[int]:
    """Return the numbers of the snapshots there are, newest first."""
    numbers = map(paths.parse_snapshot_name, disk.list(paths.META_DIR))
    return sorted((n for n in numbers if n is not None), reverse=True)


def load_newest_snapshot(disk: ReadableDisk) -> tuple[int, Snapshot] | None:
    """Load the newest whole snapshot; one damaged snapshot is made good by the one before it."""
    damage: CorruptData | None = None
    for number in list_snapshots(disk):
        path = paths.snapshot_path(number)
        try:
            return number, decode_snapshot(disk.read(path), name=path)
        except CorruptData as error:
            damage = damage or error
    if damage is not None:
        raise CorruptData(
            f"{damage}, and no older snapshot is whole: run topics repair", segment=damage.segment
        )
    return None


def save_snapshot(disk: Disk, number: int, snapshot: Snapshot) -> None:
    """Write a snapshot and remove all but the newest two."""
    write_file(disk, paths.snapshot_path(number), encode_snapshot(snapshot))
    for old in list_snapshots(disk)[KEPT_SNAPSHOTS:]:
        disk.unlink(paths.snapshot_path(old))
