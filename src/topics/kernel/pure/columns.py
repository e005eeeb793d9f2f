"""Frames to columns: the buffers of Arrow arrays, so that nobody makes an object a record."""

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from topics.errors import CorruptData
from topics.kernel.batch import Column, Columns
from topics.kernel.layout import (
    COLUMN_BYTES_MAX,
    COLUMN_DATA,
    COLUMN_META,
    COLUMN_NODE,
    COLUMN_TAG,
    FLAG_DELETED,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    I64_MAX,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    U32,
    U64_MAX,
    Buffer,
    Match,
)
from topics.kernel.pure.frame import Frame, check_range, open_view
from topics.kernel.pure.project import Source, check_match, frame_at, meta_at, tag_matches


class _Found(NamedTuple):
    seqs: list[int]
    times: list[int]
    frames: list[Frame]


def decode_columns(  # noqa: PLR0913 - one call a window, each choice by name
    buffer: Buffer,
    idx: Buffer,
    *,
    base: int,
    layout: int,
    first_seq: int,
    start: int,
    stop: int,
    columns: int,
    match: Match | None,
    verify: bool,
) -> Columns:
    """Show the live entries [start, stop) as columns, those whose tag matches.

    Without payload columns, match and verify the entries alone answer, and `buffer` is not read.
    """
    source = Source(open_view(buffer), base, layout, verify)
    entries = open_view(idx)
    check_range(start, stop, len(entries) // IDX_ENTRY_BYTES)
    check_match(match)
    reads_frames = bool(columns) or match is not None or verify
    found = _Found([], [], [])
    for i in range(start, stop):
        offset, size, ts, flags = IDX_ENTRY.unpack_from(entries, i * IDX_ENTRY_BYTES)
        if flags & FLAG_DELETED:
            continue
        seq = (first_seq + i) & U64_MAX
        if reads_frames:
            frame = frame_at(source, offset, size, seq)
            if match is not None and not tag_matches(source.view, frame, match):
                continue
            ts = frame.ts
            found.frames.append(frame)
        if seq > I64_MAX or ts > I64_MAX:
            raise CorruptData(f"record {seq} at byte {offset} has a seq or a time that is too big")
        found.seqs.append(seq)
        found.times.append(ts)
    return _fill(source.view, found, columns)


def _fill(view: memoryview, found: _Found, columns: int) -> Columns:
    def column(wanted: int, part: Callable[[memoryview, Frame], bytes | None]) -> Column | None:
        if not columns & wanted:
            return None
        return _column([part(view, frame) for frame in found.frames])

    return Columns(
        count=len(found.seqs),
        seq=array("q", found.seqs).tobytes(),
        ts=array("q", found.times).tobytes(),
        data=column(COLUMN_DATA, _data),
        meta=column(COLUMN_META, _meta),
        tag=column(COLUMN_TAG, _tag),
        node=column(COLUMN_NODE, _node),
    )


def _column(parts: Sequence[bytes | None]) -> Column:
    offsets = array("i", [0])
    end = 0
    validity = bytearray((len(parts) + 7) // 8)
    nulls = 0
    for i, part in enumerate(parts):
        if part is None:
            nulls += 1
        else:
            validity[i >> 3] |= 1 << (i & 7)
            end += len(part)
            if end > COLUMN_BYTES_MAX:
                raise ValueError("a column takes more than 2 GiB: decode fewer records at a time")
        offsets.append(end)
    heap = b"".join(part for part in parts if part is not None)
    return Column(offsets.tobytes(), heap, bytes(validity) if nulls else b"", nulls)


def _data(view: memoryview, frame: Frame) -> bytes:
    if frame.flags & FLAG_META:
        return bytes(view[frame.data_at + U32.size : meta_at(view, frame)])
    return bytes(view[frame.data_at : frame.checksum_at])


def _meta(view: memoryview, frame: Frame) -> bytes | None:
    if not frame.flags & FLAG_META:
        return None
    return bytes(view[meta_at(view, frame) : frame.checksum_at])


def _tag(view: memoryview, frame: Frame) -> bytes | None:
    return bytes(view[frame.tag_at : frame.data_at]) if frame.flags & FLAG_TAG else None


def _node(view: memoryview, frame: Frame) -> bytes | None:
    return bytes(view[frame.node_at : frame.tag_at]) if frame.flags & FLAG_NODE else None
