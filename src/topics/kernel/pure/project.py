"""Frames to reply JSON: payloads are spliced as they were sent, never parsed again."""

import re
from typing import NamedTuple

from topics.errors import CorruptData
from topics.kernel.batch import Projection
from topics.kernel.layout import (
    FLAG_DELETED,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    FRAME_APPEND,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    MATCH_EQ,
    MATCH_PREFIX,
    U32,
    U64_MAX,
    Buffer,
    Match,
)
from topics.kernel.pure.frame import Frame, check_range, is_intact, open_view, read_frame

_ESCAPES = {
    **{bytes([code]): b"\\u%04x" % code for code in range(0x20)},
    b"\b": b"\\b",
    b"\t": b"\\t",
    b"\n": b"\\n",
    b"\f": b"\\f",
    b"\r": b"\\r",
    b'"': b'\\"',
    b"\\": b"\\\\",
}
_must_escape = re.compile(rb'["\\\x00-\x1f]')


class Source(NamedTuple):
    """The bytes that entries point into, and how far they are trusted."""

    view: memoryview
    base: int
    layout: int
    verify: bool


class _Shown(NamedTuple):
    meta: bool
    tags: bool
    data: bool


def project_records(  # noqa: PLR0913 - one call a page, each choice by name
    buffer: Buffer,
    idx: Buffer,
    *,
    base: int,
    layout: int,
    first_seq: int,
    start: int,
    stop: int,
    limit: int,
    budget: int,
    skip_nodes: tuple[bytes, ...],
    match: Match | None,
    include_meta: bool,
    include_tags: bool,
    include_data: bool,
    verify: bool,
) -> Projection:
    """Show entries [start, stop) up to `limit` records and `budget` bytes, at least one record."""
    source = Source(open_view(buffer), base, layout, verify)
    shown = _Shown(include_meta, include_tags, include_data)
    entries = open_view(idx)
    check_range(start, stop, len(entries) // IDX_ENTRY_BYTES)
    check_match(match)
    parts: list[bytes] = []
    emitted_bytes = -1  # the first record has no comma
    i = start
    while i < stop and len(parts) < limit:
        offset, size, _, flags = IDX_ENTRY.unpack_from(entries, i * IDX_ENTRY_BYTES)
        if not flags & FLAG_DELETED:
            seq = (first_seq + i) & U64_MAX
            frame = frame_at(source, offset, size, seq)
            if _is_wanted(source.view, frame, skip_nodes, match):
                record = _format_record(source.view, frame, shown)
                if parts and emitted_bytes + 1 + len(record) > budget:
                    break
                emitted_bytes += 1 + len(record)
                parts.append(record)
        i += 1
    return Projection(b",".join(parts), len(parts), i)


def frame_at(source: Source, offset: int, size: int, seq: int) -> Frame:
    """Return the frame of a live entry; CorruptData if it is not there or not itself."""
    view = source.view
    frame = read_frame(view, offset - source.base, len(view), layout=source.layout)
    if frame is None or frame.size != size or frame.type != FRAME_APPEND or frame.seq != seq:
        raise CorruptData(f"record {seq} is not at byte {offset}, where its index says it is")
    if frame.flags & FLAG_META and meta_at(view, frame) > frame.checksum_at:
        raise CorruptData(f"record {seq} at byte {offset} has a payload that does not add up")
    if source.verify and not is_intact(view, frame):
        raise CorruptData(f"record {seq} at byte {offset} does not match its checksum")
    return frame


def meta_at(view: memoryview, frame: Frame) -> int:
    """Where meta begins in a payload that has one; behind the frame if that is a lie."""
    if frame.checksum_at - frame.data_at < U32.size:
        return frame.end
    (data_len,) = U32.unpack_from(view, frame.data_at)
    begins: int = frame.data_at + U32.size + data_len
    return begins


def _is_wanted(
    view: memoryview, frame: Frame, skip_nodes: tuple[bytes, ...], match: Match | None
) -> bool:
    if skip_nodes and frame.flags & FLAG_NODE and view[frame.node_at : frame.tag_at] in skip_nodes:
        return False
    return match is None or tag_matches(view, frame, match)


def tag_matches(view: memoryview, frame: Frame, match: Match) -> bool:
    """Compare the tag; an untagged record matches nothing, not even an empty prefix."""
    if not frame.flags & FLAG_TAG:
        return False
    operator, needle = match
    if operator == MATCH_EQ:
        return view[frame.tag_at : frame.data_at] == needle
    return frame.data_at - frame.tag_at >= len(needle) and (
        view[frame.tag_at : frame.tag_at + len(needle)] == needle
    )


def check_match(match: Match | None) -> None:
    if match is not None and match[0] not in (MATCH_EQ, MATCH_PREFIX):
        raise ValueError(f"{match[0]} is no match operator")


def _format_record(view: memoryview, frame: Frame, shown: _Shown) -> bytes:
    parts = [b'{"$seq":%d,"$ts":%d' % (frame.seq, frame.ts)]
    if frame.flags & FLAG_NODE:
        parts += b',"$node":"', _escape(view[frame.node_at : frame.tag_at]), b'"'
    if shown.tags and frame.flags & FLAG_TAG:
        parts += b',"$tag":"', _escape(view[frame.tag_at : frame.data_at]), b'"'
    data_at, data_end = frame.data_at, frame.checksum_at
    if frame.flags & FLAG_META:
        data_at, data_end = data_at + U32.size, meta_at(view, frame)
        if shown.meta:
            parts += b',"meta":', bytes(view[data_end : frame.checksum_at])
    if shown.data:
        parts += b',"data":', bytes(view[data_at:data_end])
    parts.append(b"}")
    return b"".join(parts)


def _escape(text: memoryview) -> bytes:
    return _must_escape.sub(lambda found: _ESCAPES[found.group()], bytes(text))
