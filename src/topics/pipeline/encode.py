"""Rows to records: the columns of a batch become the JSON of an append, row by row.

Keeps: what a row becomes depends on the row alone, so that a task that runs again writes the same.
A row that the server would refuse is found here, with the reason.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, Struct, UnsetType

from topics.errors import BadRow, OptionError, RequestError
from topics.limits import MAX_KEY_BYTES, MAX_META_KEYS, Limits, check_topic_name
from topics.model.dead_letters import drop_letter_keys, find_letter_key
from topics.pipeline.encode_value import value_texts
from topics.pipeline.letter_meta import letter_reason

COLUMNS: Final = ("data", "topic", "key", "tag", "node", "meta")
_LIMITS: Final = Limits()
_TYPES: Final = {
    "data": ("string", "variant", "struct", "map", "array"),
    "meta": ("string", "variant", "struct", "map"),
}


class OutRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record on its way out; `data` and `meta` are JSON already."""

    data: Raw
    key: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    node: str | UnsetType = UNSET
    meta: Raw | UnsetType = UNSET


class OutRow(Struct, frozen=True):
    """A record and where it goes, or why it goes nowhere."""

    topic: str | None
    record: OutRecord | None
    reason: str = ""
    text: str = ""


def check_columns(types: dict[str, str], *, topic: str | None) -> None:
    """Refuse a frame that no record can be made of; types are Spark's simple names."""
    unknown = sorted(set(types) - set(COLUMNS))
    if unknown:
        raise OptionError(f"topics takes the columns {', '.join(COLUMNS)}, not {unknown}")
    if "data" not in types:
        raise OptionError("the column `data` is missing: to_json(struct(*)) makes one")
    if "topic" not in types and topic is None:
        raise OptionError("say where to write: the option `topic` or a column `topic`")
    for name, kind in types.items():
        if not kind.startswith(_TYPES.get(name, ("string",))):
            raise OptionError(f"the column `{name}` is a {kind}: make it a string first")


def encode_rows(
    batch: pa.RecordBatch, *, topic: str | None, drop_dead_letter_meta: bool = False
) -> Iterator[OutRow]:
    """Make a record of each row, in their order."""
    columns = {
        name: _cells(batch.column(name), as_json=name in ("data", "meta"))
        for name in batch.schema.names
    }
    absent: list[Any] = [None] * batch.num_rows
    for data, to, key, tag, node, meta in zip(
        *(columns.get(name, absent) for name in COLUMNS), strict=True
    ):
        try:
            target = _check_target(topic if to is None else to)
            if isinstance(meta, str):
                meta = _settle_letter(meta, drop=drop_dead_letter_meta)  # noqa: PLW2901 - the same, settled
            record = _record(data, key, tag, node, meta)
        except BadRow as error:
            yield OutRow(None, None, str(error), _shown(data))
        else:
            yield OutRow(target, record)


def _cells(column: pa.Array, *, as_json: bool) -> list[Any]:
    """Return texts; what is no text yet is encoded."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or not as_json:
        cells: list[Any] = column.to_pylist()
        return cells
    return value_texts(column)


def _record(
    data: str | BadRow | None,
    key: str | None,
    tag: str | None,
    node: str | None,
    meta: str | BadRow | None,
) -> OutRecord:
    if isinstance(data, BadRow):
        raise data
    if isinstance(meta, BadRow):
        raise meta
    if data is None:
        raise BadRow("`data` is null: the text 'null' is a JSON null")
    _decode("data", data)
    _check_size("tag", tag, _LIMITS.max_tag_bytes)
    _check_size("node", node, _LIMITS.max_node_bytes)
    _check_size("key", key, MAX_KEY_BYTES)
    _check_meta(meta)
    if len(data.encode()) + len((meta or "").encode()) > _LIMITS.max_record_bytes:
        raise BadRow(f"`data` and `meta` are longer than {_LIMITS.max_record_bytes} bytes")
    return OutRecord(
        data=Raw(data.encode()),
        key=UNSET if key is None else key,
        # A record without a tag goes by its key: so a plain topic keeps it, too.
        tag=(UNSET if key is None else key) if tag is None else tag,
        node=UNSET if node is None else node,
        meta=UNSET if meta is None else Raw(meta.encode()),
    )


def _settle_letter(meta: str, *, drop: bool) -> str | None:
    """Return the meta that a dead letter had before, or refuse it: the server would, too."""
    text = meta.encode()
    key = find_letter_key(text)
    if key is None:
        return meta
    if not drop:
        raise BadRow(letter_reason(key))
    kept = bytes(drop_letter_keys(text))
    return None if kept == b"null" else kept.decode()


def _check_target(topic: str | None) -> str:
    if topic is None:
        raise BadRow("`topic` is null, and there is no option `topic`")
    try:
        return check_topic_name(topic)
    except RequestError as error:
        raise BadRow(f"`topic`: {error}") from None


def _check_meta(meta: str | None) -> None:
    if meta is None:
        return
    found = _decode("meta", meta)
    if not isinstance(found, dict) or len(found) > MAX_META_KEYS:
        raise BadRow(f"`meta` must be a JSON object of at most {MAX_META_KEYS} keys")
    _check_size("meta", meta, _LIMITS.max_meta_bytes)


def _decode(name: str, text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRow(f"`{name}` is not JSON: {error}") from None


def _check_size(name: str, text: str | None, limit: int) -> None:
    if text is not None and len(text.encode()) > limit:
        raise BadRow(f"`{name}` is longer than {limit} bytes")


def _shown(data: str | BadRow | None) -> str:
    return data[:1_000] if isinstance(data, str) else ""
