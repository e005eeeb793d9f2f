"""A range of a topic as raw frames: what `GET /v0/topics/:topic/range` answers with.

    "TPR1" | u32 length of the head | head as JSON | per part: its idx entries, then its frames

Owns the constants and the pure encode and decode of that body. Checksums of frames, and what is
deleted (a flag of the idx entry), are the reader's to look at.
Keeps: what decodes is whole: every part has the bytes its entries point to.
Byte reference: docs/reference/segments.md.
"""

from struct import Struct as Layout
from typing import Final, Literal

import msgspec
from msgspec import Struct

from topics.errors import CorruptData
from topics.model.diff import Tombstone

MEDIA_TYPE: Final = "application/vnd.topics.frames"
MAGIC: Final = b"TPR1"
IDX_ENTRY: Final = Layout("<IIQB3x")
_PREFIX: Final = Layout("<4sI")

FrameLayout = Literal["wal", "segment"]
Bytes = bytes | bytearray | memoryview


class PartHead(Struct, frozen=True, kw_only=True):
    """Frames of one layout and of seqs without a gap; offsets of entries count from `base`."""

    layout: FrameLayout
    first_seq: int
    count: int
    base: int
    idx_bytes: int
    data_bytes: int


class RangeHead(Struct, frozen=True, kw_only=True):
    """What a page of frames says besides the frames."""

    topic: str
    epoch: int
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    parts: list[PartHead]


class RangePart(Struct, frozen=True):
    """One part with its bytes: the frame of entry i is `data[offset - base :][:len]`."""

    head: PartHead
    idx: Bytes
    data: Bytes


class RangePage(Struct, frozen=True):
    """One page of frames."""

    head: RangeHead
    parts: tuple[RangePart, ...]


_DECODE_HEAD = msgspec.json.Decoder(RangeHead).decode


def encode_range(page: RangePage) -> list[Bytes]:
    """Return the body in pieces: the bytes of the parts are not copied."""
    head = msgspec.json.encode(page.head)
    pieces: list[Bytes] = [_PREFIX.pack(MAGIC, len(head)) + head]
    for part in page.parts:
        pieces += [part.idx, part.data]
    return pieces


def decode_range(body: Bytes) -> RangePage:
    """Read a body; the parts are views of it. Raises `CorruptData` if it is not whole."""
    view = memoryview(body).cast("B")
    if len(view) < _PREFIX.size:
        raise CorruptData("a range of frames is cut short")
    magic, head_bytes = _PREFIX.unpack_from(view)
    at = _PREFIX.size + head_bytes
    if magic != MAGIC or at > len(view):
        raise CorruptData("this is no range of frames, or it is cut short")
    try:
        head = _DECODE_HEAD(view[_PREFIX.size : at])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"the head of a range of frames is damaged: {error}") from None
    parts = []
    for part_head in head.parts:
        part = _cut_part(view, at, part_head)
        at += part_head.idx_bytes + part_head.data_bytes
        parts.append(part)
    if at != len(view):
        raise CorruptData(f"a range of frames has {len(view) - at} bytes behind its end")
    return RangePage(head, tuple(parts))


def _cut_part(view: memoryview, at: int, head: PartHead) -> RangePart:
    data_at = at + head.idx_bytes
    end = data_at + head.data_bytes
    sizes_hold = head.count > 0 and head.base >= 0 and head.data_bytes >= 0
    if not sizes_hold or head.idx_bytes != head.count * IDX_ENTRY.size or end > len(view):
        raise CorruptData(f"a range of frames is cut short at seq {head.first_seq}")
    idx = view[at:data_at]
    first_offset = IDX_ENTRY.unpack_from(idx)[0]
    offset, size, _, _ = IDX_ENTRY.unpack_from(idx, head.idx_bytes - IDX_ENTRY.size)
    if first_offset != head.base or offset + size != head.base + head.data_bytes:
        raise CorruptData(f"the entries from seq {head.first_seq} on do not fit their frames")
    return RangePart(head, idx, view[data_at:end])
