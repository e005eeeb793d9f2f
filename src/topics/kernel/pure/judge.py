"""Could these records have been appended? For frames that somebody else has built."""

from typing import NamedTuple

from topics.errors import RequestError
from topics.kernel import refusals
from topics.kernel.layout import (
    FLAG_DURABLE,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    META_KEYS_MAX,
    SEGMENT_LAYOUT,
    U32,
    Buffer,
)
from topics.kernel.pure.frame import Frame, open_view, read_frame
from topics.kernel.pure.json_reader import JsonReader, names_dead_letter
from topics.kernel.refusals import refusal

KNOWN_FLAGS = FLAG_TAG | FLAG_NODE | FLAG_META | FLAG_DURABLE
_DATA_DEPTH = 3
"""As deep as `data` stands in the body of an append."""


class Bounds(NamedTuple):
    """How large the parts of a record may be, in bytes."""

    record: int
    meta: int
    tag: int
    node: int


class Parts(NamedTuple):
    """One record; None is a part that it does not have."""

    data: bytes | None
    meta: bytes | None
    tag: bytes | None
    node: bytes | None


def check_records(
    data: Buffer,
    idx: Buffer,
    *,
    topic_id: int,
    max_record_bytes: int,
    max_meta_bytes: int,
    max_tag_bytes: int,
    max_node_bytes: int,
) -> None:
    """Refuse a segment with a record that no append could have made; checksums are not looked at.

    The error names the first such record by its place in the segment.
    """
    view, entries = open_view(data), open_view(idx)
    bounds = Bounds(max_record_bytes, max_meta_bytes, max_tag_bytes, max_node_bytes)
    for i in range(len(entries) // IDX_ENTRY_BYTES):
        offset, size, _, _ = IDX_ENTRY.unpack_from(entries, i * IDX_ENTRY_BYTES)
        frame = read_frame(view, offset, len(view), layout=SEGMENT_LAYOUT)
        if frame is None or frame.size != size or frame.topic_id != topic_id:
            raise refusal(refusals.RECORD_STRANGE, i)
        judge(_parts_of(view, frame, i), i, bounds)


def _parts_of(view: memoryview, frame: Frame, where: int) -> Parts:
    flags = frame.flags
    if flags & ~KNOWN_FLAGS:
        raise refusal(refusals.RECORD_STRANGE, where)
    tag, node = view[frame.tag_at : frame.data_at], view[frame.node_at : frame.tag_at]
    if len(tag) and not flags & FLAG_TAG:
        raise refusal(refusals.TAG_NOT_TEXT, where)
    if len(node) and not flags & FLAG_NODE:
        raise refusal(refusals.NODE_NOT_TEXT, where)
    payload, meta = view[frame.data_at : frame.checksum_at], None
    if flags & FLAG_META:
        if len(payload) < U32.size or U32.unpack_from(payload)[0] > len(payload) - U32.size:
            raise refusal(refusals.RECORD_STRANGE, where)
        meta_at = U32.size + U32.unpack_from(payload)[0]
        payload, meta = payload[U32.size : meta_at], bytes(payload[meta_at:])
    return Parts(
        bytes(payload),
        meta,
        bytes(tag) if flags & FLAG_TAG else None,
        bytes(node) if flags & FLAG_NODE else None,
    )


def judge(parts: Parts, where: int, bounds: Bounds) -> None:
    """Refuse what an append would refuse."""
    if parts.data is None:
        raise refusal(refusals.NO_DATA, where)
    if not _is_json(parts.data):
        raise refusal(refusals.DATA_NOT_JSON, where)
    _check_text(parts.tag, where, bounds.tag, refusals.TAG_NOT_TEXT, refusals.TAG_TOO_LONG)
    _check_text(parts.node, where, bounds.node, refusals.NODE_NOT_TEXT, refusals.NODE_TOO_LONG)
    if parts.meta is not None:
        _check_meta(parts.meta, where, bounds.meta)
    if len(parts.data) + len(parts.meta or b"") > bounds.record:
        raise refusal(refusals.RECORD_TOO_LARGE, where, bounds.record)


def _is_json(text: bytes) -> bool:
    reader = JsonReader(text)
    try:
        reader.read_value(_DATA_DEPTH)
    except RequestError:
        return False
    return reader.at == reader.size


def _check_text(text: bytes | None, where: int, limit: int, no_text: int, too_long: int) -> None:
    if text is None:
        return
    try:
        text.decode()
    except UnicodeDecodeError:
        raise refusal(no_text, where) from None
    if len(text) > limit:
        raise refusal(too_long, where, limit)


def _check_meta(text: bytes, where: int, limit: int) -> None:
    reader = JsonReader(text)
    keys = -1
    if reader.peek() == b"{":
        try:
            keys = reader.read_members(lambda _: reader.read_value(_DATA_DEPTH + 1))
        except RequestError:
            keys = -1
    if keys < 0 or reader.at != reader.size:
        raise refusal(refusals.META_NOT_AN_OBJECT, where)
    if keys > META_KEYS_MAX:
        raise refusal(refusals.META_TOO_MANY_KEYS, where, META_KEYS_MAX)
    if len(text) > limit:
        raise refusal(refusals.META_TOO_LONG, where, limit)
    if names_dead_letter(text):
        raise refusal(refusals.META_OF_SERVER, where)
