"""Columns to a segment: the way back from `decode_columns`, for those who load in bulk."""

from struct import Struct

from topics.kernel import refusals
from topics.kernel.batch import Column, Columns
from topics.kernel.layout import (
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    FRAME_OVERHEAD_BYTES,
    IDX_ENTRY,
    SEGMENT_HEADER,
    SIZE_BYTES,
    U32,
    U32_MAX,
    U64,
    U64_MAX,
)
from topics.kernel.pure.frame import check_range, xxh3_64
from topics.kernel.pure.judge import Bounds, Parts, judge
from topics.kernel.refusals import refusal

_I32 = Struct("<i")
_I64 = Struct("<q")
_WHITESPACE = b" \t\n\r"


def encode_columns(  # noqa: PLR0913 - one call a batch, each choice by name
    columns: Columns,
    *,
    start: int,
    stop: int,
    topic_id: int,
    first_seq: int,
    base: int,
    max_record_bytes: int,
    max_meta_bytes: int,
    max_tag_bytes: int,
    max_node_bytes: int,
) -> tuple[bytearray, bytearray]:
    """Make segment frames of the rows [start, stop), and their idx, offsets from `base`.

    The first row gets `first_seq`; the column `seq` is not looked at. Whitespace around `data` and
    `meta` is left out. A row that no append would take is refused by its number.
    """
    check_range(start, stop, columns.count)
    check_range(0, base, U32_MAX)
    _check_columns(columns, topic_id, first_seq)
    bounds = Bounds(max_record_bytes, max_meta_bytes, max_tag_bytes, max_node_bytes)
    data, idx = bytearray(), bytearray()
    before = 0
    for i in range(start, stop):
        parts = _trimmed(
            _cell(columns.data, i), _cell(columns.meta, i), _cell(columns.tag, i),
            _cell(columns.node, i),
        )  # fmt: skip
        judge(parts, i, bounds)
        (ts,) = _I64.unpack_from(columns.ts, i * 8)
        if ts < before:
            raise refusal(refusals.TIME_STEPS_BACK, i)
        before = ts
        frame, flags = _frame(parts, topic_id=topic_id, seq=first_seq + i - start, ts=ts)
        if base + len(data) + len(frame) > U32_MAX:
            raise refusal(refusals.SEGMENT_TOO_WIDE, i)
        idx += IDX_ENTRY.pack(base + len(data), len(frame), ts, flags)
        data += frame
    return data, idx


def _check_columns(columns: Columns, topic_id: int, first_seq: int) -> None:
    if columns.data is None or len(columns.ts) != columns.count * 8:
        raise ValueError("records need a column of data, and a time each")
    if not (0 <= topic_id <= U64_MAX and 0 <= first_seq <= U64_MAX - columns.count):
        raise OverflowError("topic_id and seq are u64")
    for column in (columns.data, columns.meta, columns.tag, columns.node):
        if column is None:
            continue
        wanted = (columns.count + 7) // 8
        if len(column.offsets) != (columns.count + 1) * 4 or (
            column.validity and len(column.validity) < wanted
        ):
            raise ValueError("a column does not have one text a record")


def _cell(column: Column | None, i: int) -> bytes | None:
    if column is None:
        return None
    if column.validity and not column.validity[i >> 3] >> (i & 7) & 1:
        return None
    (at,) = _I32.unpack_from(column.offsets, i * 4)
    (end,) = _I32.unpack_from(column.offsets, i * 4 + 4)
    if not 0 <= at <= end <= len(column.heap):
        raise ValueError(f"text {i} of a column is outside its heap")
    return bytes(column.heap[at:end])


def _trimmed(
    data: bytes | None, meta: bytes | None, tag: bytes | None, node: bytes | None
) -> Parts:
    return Parts(
        None if data is None else data.strip(_WHITESPACE),
        None if meta is None else meta.strip(_WHITESPACE),
        tag,
        node,
    )


def _frame(parts: Parts, *, topic_id: int, seq: int, ts: int) -> tuple[bytearray, int]:
    assert parts.data is not None
    node, tag, payload = parts.node or b"", parts.tag or b"", parts.data
    flags = (FLAG_NODE if parts.node is not None else 0) | (
        FLAG_TAG if parts.tag is not None else 0
    )
    if parts.meta is not None:
        flags |= FLAG_META
        payload = U32.pack(len(parts.data)) + parts.data + parts.meta
    size = FRAME_OVERHEAD_BYTES + len(node) + len(tag) + len(payload)
    frame = bytearray(
        SEGMENT_HEADER.pack(
            size - SIZE_BYTES, flags, topic_id, seq, ts, len(node), len(tag), len(payload)
        )
    )
    frame += node + tag + payload
    frame += U64.pack(xxh3_64(memoryview(frame)[SIZE_BYTES:]))
    frame.append(0)
    return frame, flags
