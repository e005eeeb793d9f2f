"""Frames as the format pages describe them, built without the kernel; and ways to harm bytes."""

import struct
from typing import NamedTuple

from hypothesis.strategies import (
    DrawFn,
    SearchStrategy,
    binary,
    booleans,
    builds,
    composite,
    integers,
    lists,
    none,
    sampled_from,
    text,
    tuples,
)
from xxhash import xxh3_64_intdigest

U64 = integers(0, 2**64 - 1)
FLAG_TAG, FLAG_NODE, FLAG_DELETED, FLAG_META, FLAG_OPEN = 1, 2, 8, 16, 32


class Record(NamedTuple):
    """One Append as its writer thinks of it."""

    data: bytes = b"null"
    tag: bytes | None = None
    node: bytes | None = None
    meta: bytes | None = None
    deleted: bool = False

    @property
    def flags(self) -> int:
        return (
            (FLAG_TAG if self.tag is not None else 0)
            | (FLAG_NODE if self.node is not None else 0)
            | (FLAG_META if self.meta is not None else 0)
        )

    @property
    def payload(self) -> bytes:
        if self.meta is None:
            return self.data
        return struct.pack("<I", len(self.data)) + self.data + self.meta


def wal_frame(
    record: Record,
    *,
    kind: int = 1,
    topic_id: int = 0,
    seq: int = 0,
    ts: int = 0,
    flags: int = 0,
    stamped: bool = True,
) -> bytes:
    node, tag, payload = record.node or b"", record.tag or b"", record.payload
    lengths = struct.pack("<HHI", len(node), len(tag), len(payload))
    head = struct.pack("<BBQQQ", kind, record.flags | flags, topic_id, seq, ts)
    body = head + lengths + node + tag + payload
    checksum = xxh3_64_intdigest(body) if stamped else 0
    return struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", checksum)


def segment_frame(record: Record, *, topic_id: int, seq: int, ts: int, flags: int = 0) -> bytes:
    node, tag, payload = record.node or b"", record.tag or b"", record.payload
    lengths = struct.pack("<HHI", len(node), len(tag), len(payload))
    body = struct.pack("<BQQQ", record.flags | flags, topic_id, seq, ts)
    body += lengths + node + tag + payload
    checksum = struct.pack("<Q", xxh3_64_intdigest(body))
    delete_byte = b"\xd5" if record.deleted else b"\0"
    return struct.pack("<I", len(body) + 9) + body + checksum + delete_byte


def idx_entry(offset: int, size: int, ts: int, flags: int) -> bytes:
    return struct.pack("<IIQB3x", offset, size, ts, flags)


class Chunk(NamedTuple):
    """Records as frames of one layout, with the idx that belongs to them."""

    records: list[Record]
    frames: bytes
    idx: bytes
    first_seq: int
    topic_id: int
    timestamps: list[int]


def build_chunk(
    records: list[Record], timestamps: list[int], *, first_seq: int, topic_id: int, layout: int
) -> Chunk:
    frames, idx = bytearray(), bytearray()
    for i, (record, ts) in enumerate(zip(records, timestamps, strict=True)):
        if layout == 0:
            frame = wal_frame(record, topic_id=topic_id, seq=first_seq + i, ts=ts, flags=FLAG_OPEN)
        else:
            frame = segment_frame(record, topic_id=topic_id, seq=first_seq + i, ts=ts)
        flags = record.flags | (FLAG_DELETED if record.deleted else 0)
        idx += idx_entry(len(frames), len(frame), ts, flags)
        frames += frame
    return Chunk(records, bytes(frames), bytes(idx), first_seq, topic_id, timestamps)


names = text(max_size=12).map(str.encode)
few_names = sampled_from([b"", b"a", b"ab", b"abc", b"b", b'q"\\\n\x01', "é".encode()])
json_pieces = sampled_from([b"null", b"1", b'"x"', b'{"a":[1,2]}', b"[" + b"1," * 150 + b"1]"])
metas = sampled_from([b"{}", b'{"k":1}'])


def records_strategy(tags: SearchStrategy[bytes] = few_names) -> SearchStrategy[Record]:
    return builds(
        Record,
        data=json_pieces,
        tag=none() | tags,
        node=none() | few_names,
        meta=none() | metas,
        deleted=booleans(),
    )


@composite
def chunks(draw: DrawFn, *, layout: int, max_size: int = 12) -> Chunk:
    records = draw(lists(records_strategy(), max_size=max_size))
    steps = draw(lists(integers(0, 3), min_size=len(records), max_size=len(records)))
    start = draw(integers(0, 2**41) | integers(2**64 - 100, 2**64 - 50))
    timestamps = [start + sum(steps[: i + 1]) for i in range(len(steps))]
    first_seq = draw(integers(1, 2**40) | integers(2**64 - 100, 2**64 - 20))
    topic_id = draw(U64)
    return build_chunk(records, timestamps, first_seq=first_seq, topic_id=topic_id, layout=layout)


edits = lists(
    tuples(integers(0, 2**16), integers(0, 3), binary(max_size=9)), min_size=1, max_size=3
)


def harm(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Flip, overwrite, cut out or insert, at places taken modulo the length."""
    harmed = bytearray(data)
    for place, way, piece in changes:
        at = place % (len(harmed) + 1)
        if way == 0 and harmed:
            harmed[at % len(harmed)] ^= 1 << (place % 8)
        elif way == 1:
            harmed[at : at + len(piece)] = piece
        elif way == 2:
            del harmed[at : at + 1 + len(piece)]
        else:
            harmed[at:at] = piece
    return bytes(harmed)
