"""Schemas that only grow: what a table has, and what a batch brings, made one. Pure.

Keeps: a column never changes into a type that its old values do not fit, and none goes away. A
value that fits no more is no reason to change: its row keeps its text in `_corrupt`.
"""

import logging
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

LEAVES_MAX: Final = 1_000
"""Payloads whose keys are data would make a table of any width: what is behind stays in `_raw`."""
_log = logging.getLogger("topics.pipeline")


def widen(known: StructType, found: StructType) -> StructType:
    """Return `known` with what is new in `found`; whole numbers may become fractions."""
    wider = _widen_struct(known, clean(found))
    if known.fields and wider != known and count_leaves(wider) > LEAVES_MAX:
        _log.warning("topics: a table has %d columns already: no more are added", LEAVES_MAX)
        return known
    return wider


def clean(schema: StructType) -> StructType:
    """Return a schema that Parquet can hold: no empty structs, no names that differ in case."""
    fields: dict[str, StructField] = {}
    for field in schema.fields:
        if field.name:
            cleaned = StructField(field.name, _clean_type(field.dataType), nullable=True)
            fields.setdefault(field.name.lower(), cleaned)
    return StructType(list(fields.values()))


def count_leaves(kind: DataType) -> int:
    if isinstance(kind, StructType):
        return sum(count_leaves(field.dataType) for field in kind.fields)
    return count_leaves(kind.elementType) if isinstance(kind, ArrayType) else 1


def _clean_type(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        cleaned = clean(kind)
        return cleaned if cleaned.fields else StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_clean_type(kind.elementType), containsNull=True)
    return kind


def _widen_struct(known: StructType, found: StructType) -> StructType:
    new = {field.name.lower(): field for field in found.fields}
    fields = []
    for field in known.fields:
        other = new.pop(field.name.lower(), None)
        kind = field.dataType if other is None else _widen_type(field.dataType, other.dataType)
        fields.append(StructField(field.name, kind, nullable=True))
    return StructType([*fields, *new.values()])


def _widen_type(known: DataType, found: DataType) -> DataType:
    if isinstance(known, StructType) and isinstance(found, StructType):
        return _widen_struct(known, found)
    if isinstance(known, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(_widen_type(known.elementType, found.elementType), containsNull=True)
    if isinstance(known, LongType) and isinstance(found, DoubleType):
        return found
    return known
