"""A record as it stands in a file: the names of the wire, and the very bytes of data and meta."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from topics.errors import RequestError
from topics.model.dead_letters import drop_letter_keys, find_letter_key
from topics.model.diff import NO_META, Record

KEY_FIELD: Final = "$key"
_KEY_START: Final = b'{"$key":'


class FileRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record; `$` names are those of a record that was read, the others of one to write."""

    topic: str | None = None
    seq: int | None = field(name="$seq", default=None)
    ts: int | None = field(name="$ts", default=None)
    shown_node: str | None = field(name="$node", default=None)
    shown_tag: str | None = field(name="$tag", default=None)
    node: str | None = None
    tag: str | None = None
    key: str | None = None
    meta: Raw = NO_META
    data: Raw

    def as_written(self, *, keyed: bool) -> dict[str, object]:
        """Return what to append; `keyed`: the topic has partitions, so a key is its own field."""
        meta, key = self.meta, self.key
        if keyed and key is None:
            meta, key = split_key(meta)
        tag = self.tag if self.shown_tag is None else self.shown_tag
        node = self.node if self.shown_node is None else self.shown_node
        fields: dict[str, object] = {"data": self.data, "tag": tag, "node": node, "key": key}
        if bytes(meta) != b"null":
            fields["meta"] = meta
        return {name: value for name, value in fields.items() if value is not None}


class _Loss(Struct, frozen=True):
    tombstone: dict[str, Any]


_decode_record = msgspec.json.Decoder(FileRecord).decode
_decode_loss = msgspec.json.Decoder(_Loss).decode


def file_record(topic: str, record: Record) -> FileRecord:
    return FileRecord(
        topic=topic,
        seq=record.seq,
        ts=record.ts,
        shown_node=record.node,
        shown_tag=record.tag,
        meta=record.meta_json,
        data=record.data_json,
    )


def split_key(meta: Raw) -> tuple[Raw, str | None]:
    """Return a meta without the key that a partition has put in front of it, and the key.

    What is left are the bytes that were sent: the partition adds the same again.
    """
    text = bytes(meta)
    if not text.startswith(_KEY_START):
        return meta, None
    raw_key = bytes(msgspec.json.decode(text, type=dict[str, Raw])[KEY_FIELD])
    key = msgspec.json.decode(raw_key)
    if not isinstance(key, str):
        return meta, None
    rest = text[len(_KEY_START) + len(raw_key) :]
    return (Raw(b"{" + rest[1:]) if rest.startswith(b",") else NO_META), key


def settle_letter(record: FileRecord, *, drop: bool, where: str) -> FileRecord:
    """Return a dead letter as it was before it died, or refuse it: the server would, too."""
    key = find_letter_key(record.meta)
    if key is None:
        return record
    if not drop:
        raise RequestError(
            f"{where} is a dead letter: its meta has {key!r}, which only the server writes. Rename "
            "the key, or give --drop-dead-letter-meta to import the record as it was before it died"
        )
    return msgspec.structs.replace(record, meta=drop_letter_keys(record.meta))


def encode_line(record: FileRecord) -> bytes:
    fields: dict[str, object] = {
        "topic": record.topic,
        "$seq": record.seq,
        "$ts": record.ts,
        "$node": record.shown_node,
        "$tag": record.shown_tag,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if bytes(record.meta) != b"null":
        given["meta"] = record.meta
    return msgspec.json.encode({**given, "data": record.data}) + b"\n"


def parse_line(line: bytes, *, where: str) -> FileRecord | None:
    """Return what a line says; None for one that tells of a loss, as `topics tail` prints them."""
    try:
        return _decode_record(line)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        try:
            _decode_loss(line)
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise RequestError(f"{where} is no record: {error}") from None
        return None
