"""From a request body to unstamped WAL frames.

The grammar is in `json_reader`, the order in which faults are reported in `topics.kernel.refusals`.
"""

from typing import NamedTuple

from topics.kernel import refusals
from topics.kernel.batch import Batch
from topics.kernel.layout import (
    FLAG_BATCH_OPEN,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    FRAME_APPEND,
    FRAME_OVERHEAD_BYTES,
    IDX_ENTRY,
    KEY_BYTES_MAX,
    META_KEYS_MAX,
    NO_HASH,
    SIZE_BYTES,
    U16_MAX,
    U32,
    U32_MAX,
    U64,
    WAL_HEADER,
    Buffer,
)
from topics.kernel.pure.frame import open_view
from topics.kernel.pure.json_reader import JsonReader, decode_string, names_dead_letter
from topics.kernel.pure.partition import fnv1a_32
from topics.kernel.refusals import field_refusal, refusal

_NO_CHECKSUM = bytes(8)
_KEY_MEMBER = b'{"$key":'


class _Limits(NamedTuple):
    records: int
    record_bytes: int
    meta_bytes: int
    tag_bytes: int
    node_bytes: int
    keyed: bool
    dead_letters: bool


class _Record(NamedTuple):
    """Raw JSON of the known fields, None where a field was not sent."""

    data: bytes | None
    tag: bytes | None
    key: bytes | None
    node: bytes | None
    meta: bytes | None
    meta_keys: int


class _Body:
    """The grammar of a write: collects raw slices, judges nothing but syntax."""

    def __init__(self, body: bytes, records_max: int) -> None:
        self.reader = JsonReader(body)
        self.records_max = records_max
        self.count = -1  # no `records`; -2 for one that is not an array
        self.records: list[_Record | None] = []
        self.node: bytes | None = None
        self.envelope: dict[str, bytes] = {}
        self._fields: dict[str, bytes] = {}
        self._meta_keys = 0

    def read(self) -> bool:
        """Read all of it; False if it is JSON, but no object."""
        reader = self.reader
        reader.skip_ws()
        is_object = reader.peek() == b"{"
        if is_object:
            reader.read_members(self._read_top)
        else:
            reader.read_value(0)
        reader.finish()
        return is_object

    def _read_top(self, key: str) -> None:
        if key == "records":
            self._read_records()
        elif key == "node":
            self.node = self.reader.read_value(1)
        elif key in refusals.ENVELOPE_FIELDS:
            self.envelope[key] = self.reader.read_value(1)
        else:
            raise field_refusal(self.reader.key, None)

    def _read_records(self) -> None:
        self.records = []
        if self.reader.peek() == b"[":
            self.count = 0
            self.reader.read_elements(self._read_record)
        else:
            self.count = -2
            self.reader.read_value(1)

    def _read_record(self) -> None:
        record = None
        if self.reader.peek() == b"{":
            self._fields = {}
            self.reader.read_members(self._read_field)
            get = self._fields.get
            record = _Record(
                get("data"),
                get("tag"),
                get("key"),
                get("node"),
                get("meta"),
                self._meta_keys,
            )
        else:
            self.reader.read_value(2)
        self.count += 1
        if self.count <= self.records_max:
            self.records.append(record)

    def _read_field(self, key: str) -> None:
        reader = self.reader
        if key not in refusals.RECORD_FIELDS:
            raise field_refusal(reader.key, self.count)
        if key == "meta" and reader.peek() == b"{":
            start = reader.at
            self._meta_keys = reader.read_members(lambda _: reader.read_value(4))
            self._fields[key] = reader.text[start : reader.at]
        else:
            self._fields[key] = reader.read_value(3)


def parse_batch(
    body: Buffer,
    *,
    max_records: int,
    max_record_bytes: int,
    max_meta_bytes: int,
    max_tag_bytes: int,
    max_node_bytes: int,
    keyed: bool = False,
    dead_letters: bool = False,
) -> Batch:
    """Read a write into frames whose topic, seq, ts and checksum are still zero.

    `keyed` is for partitions: `key` is a field then, kept as the tag, or beside another tag as
    `$key` in the meta; and the batch has hashes. `dead_letters` is for the server's own writes:
    only their meta may say which queue a record comes from.
    """
    limits = _Limits(
        max_records,
        min(max_record_bytes, U32_MAX - SIZE_BYTES),
        max_meta_bytes,
        min(max_tag_bytes, U16_MAX),
        min(max_node_bytes, U16_MAX),
        keyed,
        dead_letters,
    )
    parsed = _Body(bytes(open_view(body)), limits.records)
    if not parsed.read():
        raise refusal(refusals.NOT_AN_OBJECT)
    _check_records(parsed.count, limits)
    default_node = _default_node(parsed.node, limits)
    return _encode(parsed, default_node, limits)


def _check_records(count: int, limits: _Limits) -> None:
    if count == -1:
        raise refusal(refusals.NO_RECORDS)
    if count == -2:
        raise refusal(refusals.RECORDS_NOT_AN_ARRAY)
    if count == 0:
        raise refusal(refusals.RECORDS_EMPTY)
    if count > limits.records:
        raise refusal(refusals.TOO_MANY_RECORDS, count, limits.records)


def _default_node(raw: bytes | None, limits: _Limits) -> bytes | None:
    return _text(raw, refusals.DEFAULT_NODE_NOT_A_STRING, 0, limits.node_bytes)


def _text(raw: bytes | None, not_a_string: int, where: int, limit: int) -> bytes | None:
    """Decode a tag or node; the two reasons behind `not_a_string` are its other faults."""
    if raw is None or raw == b"null":
        return None
    if raw[:1] != b'"':
        raise refusal(not_a_string, where)
    try:
        text = decode_string(raw).encode()
    except UnicodeEncodeError:
        raise refusal(not_a_string + 1, where) from None
    if len(text) > limit:
        raise refusal(not_a_string + 2, where, limit)
    return text


def _encode(parsed: _Body, default_node: bytes | None, limits: _Limits) -> Batch:
    frames, idx, hashes = bytearray(), bytearray(), bytearray()
    last = parsed.count - 1
    for where, record in enumerate(parsed.records):
        if record is None:
            raise refusal(refusals.RECORD_NOT_AN_OBJECT, where)
        if record.data is None:
            raise refusal(refusals.NO_DATA, where)
        tag = _text(record.tag, refusals.TAG_NOT_A_STRING, where, limits.tag_bytes)
        key = _key(record, where) if limits.keyed else None
        node = _text(record.node, refusals.NODE_NOT_A_STRING, where, limits.node_bytes)
        meta = _meta(record, where, limits)
        _check_size(record.data, meta, where, limits)
        if limits.keyed:
            hashes += U64.pack(_hash(tag if key is None else key))
        if key is not None and tag is not None and key != tag:
            meta = _with_key(record, meta)
        tag = key if tag is None else tag
        payload = _payload(record.data, meta)
        start = len(frames)
        flags = _append_frame(frames, default_node if node is None else node, tag, payload)
        if where != last:
            frames[start + 5] |= FLAG_BATCH_OPEN
        idx += IDX_ENTRY.pack(start, len(frames) - start, 0, flags)
    payload_bytes = len(frames) - FRAME_OVERHEAD_BYTES * parsed.count
    return Batch(frames, idx, parsed.count, payload_bytes, parsed.envelope, bytes(hashes))


def _key(record: _Record, where: int) -> bytes | None:
    return _text(record.key, refusals.KEY_NOT_A_STRING, where, KEY_BYTES_MAX)


def _hash(key: bytes | None) -> int:
    return NO_HASH if key is None else fnv1a_32(key)


def _with_key(record: _Record, meta: bytes | None) -> bytes:
    """Return the meta with the key as its first member, spelled as it was sent."""
    assert record.key is not None
    rest = b"}" if meta is None or not record.meta_keys else b"," + meta[1:]
    return _KEY_MEMBER + record.key + rest


def _meta(record: _Record, where: int, limits: _Limits) -> bytes | None:
    raw = record.meta
    if raw is None or raw == b"null":
        return None
    if raw[:1] != b"{":
        raise refusal(refusals.META_NOT_AN_OBJECT, where)
    if record.meta_keys > META_KEYS_MAX:
        raise refusal(refusals.META_TOO_MANY_KEYS, where, META_KEYS_MAX)
    if len(raw) > limits.meta_bytes:
        raise refusal(refusals.META_TOO_LONG, where, limits.meta_bytes)
    if not limits.dead_letters and names_dead_letter(raw):
        raise refusal(refusals.META_OF_SERVER, where)
    return raw


def _check_size(data: bytes, meta: bytes | None, where: int, limits: _Limits) -> None:
    if len(data) + len(meta or b"") > limits.record_bytes:
        raise refusal(refusals.RECORD_TOO_LARGE, where, limits.record_bytes)


def _payload(data: bytes, meta: bytes | None) -> tuple[int, tuple[bytes, ...]]:
    """Return the flags and the pieces of an Append's payload."""
    if meta is None:
        return 0, (data,)
    return FLAG_META, (U32.pack(len(data)), data, meta)


def _append_frame(
    frames: bytearray,
    node: bytes | None,
    tag: bytes | None,
    payload: tuple[int, tuple[bytes, ...]],
) -> int:
    """Add one frame and return its flags."""
    flags, pieces = payload
    flags |= (FLAG_TAG if tag is not None else 0) | (FLAG_NODE if node is not None else 0)
    node, tag, data = node or b"", tag or b"", b"".join(pieces)
    frame_len = FRAME_OVERHEAD_BYTES - SIZE_BYTES + len(node) + len(tag) + len(data)
    if len(frames) + SIZE_BYTES + frame_len > U32_MAX:
        raise refusal(refusals.BATCH_TOO_WIDE, 0, U32_MAX)
    frames += WAL_HEADER.pack(
        frame_len, FRAME_APPEND, flags, 0, 0, 0, len(node), len(tag), len(data)
    )
    frames += node
    frames += tag
    frames += data
    frames += _NO_CHECKSUM
    return flags
