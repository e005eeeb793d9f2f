"""Structs, maps, arrays and variants of a column to JSON.

Keeps: a value that JSON cannot say (a date before year 1, a struct as the key of a map) spoils its
own row alone.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa

from topics.errors import BadRow, RequestError
from topics.model.encode import check_finite

Change = Callable[[Any], Any]
_encode = msgspec.json.Encoder(decimal_format="number").encode
_UNFIT: Final = (TypeError, ValueError, OverflowError, KeyError, RequestError)


def value_texts(column: pa.Array) -> list[str | BadRow | None]:
    """Return the JSON of each value, or why there is none."""
    change = variants_of(column.type)
    try:
        return _texts(column, change)
    except _UNFIT:
        return [_text(column.slice(at, 1), change) for at in range(len(column))]


def _texts(column: pa.Array, change: Change | None) -> list[str | BadRow | None]:
    values = column.to_pylist(maps_as_pydicts="strict")
    if change is not None:
        values = [None if value is None else change(value) for value in values]
    return [None if value is None else _encode_one(value) for value in values]


def _encode_one(value: object) -> str:
    text = _encode(value)
    if b"null" in text:
        check_finite(value, what="it")
    return text.decode()


def _text(cell: pa.Array, change: Change | None) -> str | BadRow | None:
    try:
        return _texts(cell, change)[0]
    except _UNFIT as error:
        return BadRow(f"a {cell.type} that JSON cannot say: {error}")


def variants_of(kind: pa.DataType) -> Change | None:
    """Return what makes JSON of the variants inside a value; None where there are none."""
    if _is_variant(kind):
        return _variant
    if pa.types.is_struct(kind):
        return _in_struct({field.name: variants_of(field.type) for field in kind})
    if pa.types.is_map(kind):
        inner = variants_of(kind.item_type)
        return None if inner is None else _in_map(inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = variants_of(kind.value_type)
        return None if inner is None else _in_list(inner)
    return None


def _is_variant(kind: pa.DataType) -> bool:
    """Tell a variant: it comes as a struct of two fields in bytes, one of them marked."""
    if not pa.types.is_struct(kind):
        return False
    place = kind.get_field_index("metadata")
    return place >= 0 and (kind.field(place).metadata or {}).get(b"variant") == b"true"


def _variant(value: dict[str, bytes]) -> msgspec.Raw:
    from pyspark.sql.types import VariantVal  # noqa: PLC0415 - the rest of this file needs no Spark

    return msgspec.Raw(VariantVal(value["value"], value["metadata"]).toJson().encode())


def _in_struct(fields: dict[str, Change | None]) -> Change | None:
    changes = {name: change for name, change in fields.items() if change is not None}

    def change(value: dict[str, Any]) -> dict[str, Any]:
        made = {name: _or_none(inner, value[name]) for name, inner in changes.items()}
        return value | made

    return change if changes else None


def _in_map(inner: Change) -> Change:
    return lambda value: {key: _or_none(inner, one) for key, one in value.items()}


def _in_list(inner: Change) -> Change:
    return lambda value: [_or_none(inner, one) for one in value]


def _or_none(change: Change, value: object) -> object:
    return None if value is None else change(value)
