"""Schemas only grow."""

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install topics-log[spark]")

from pyspark.sql.types import LongType, StringType, StructField, StructType

from topics.pipeline.lake.widen import LEAVES_MAX, clean, count_leaves, widen


def schema(ddl: str) -> StructType:
    """Read `a:bigint,b:struct<c:string>` without a session."""
    return StructType.fromJson(_parse(ddl))


def _parse(text: str) -> dict[str, object]:
    fields, depth, start = [], 0, 0
    for at, sign in enumerate(text + ","):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and depth == 0:
            if text[start:at]:
                fields.append(_field(text[start:at]))
            start = at + 1
    return {"type": "struct", "fields": fields}


def _field(text: str) -> dict[str, object]:
    name, _, kind = text.partition(":")
    return {"name": name, "type": _kind(kind), "nullable": True, "metadata": {}}


def _kind(kind: str) -> object:
    if kind.startswith("struct<"):
        return _parse(kind[len("struct<") : -1])
    if kind.startswith("array<"):
        return {
            "type": "array",
            "elementType": _kind(kind[len("array<") : -1]),
            "containsNull": True,
        }
    return {"bigint": "long"}.get(kind, kind)


@pytest.mark.parametrize(
    ("known", "found", "wider"),
    [
        ("a:bigint", "b:string", "a:bigint,b:string"),
        ("a:bigint", "a:double", "a:double"),
        ("a:double", "a:bigint", "a:double"),
        ("a:bigint", "a:string", "a:bigint"),
        ("a:string", "a:bigint", "a:string"),
        ("a:bigint", "a:struct<b:bigint>", "a:bigint"),
        ("a:struct<b:bigint>", "a:struct<b:double,c:string>", "a:struct<b:double,c:string>"),
        ("a:array<bigint>", "a:array<double>", "a:array<double>"),
        ("a:bigint,b:string", "", "a:bigint,b:string"),
        ("A:bigint", "a:bigint", "A:bigint"),
        ("", "a:bigint", "a:bigint"),
    ],
)
def test_a_schema_takes_what_fits_and_keeps_what_it_has(known: str, found: str, wider: str) -> None:
    assert widen(schema(known), schema(found)) == schema(wider)


def test_what_parquet_cannot_hold_is_text_or_one_of_two() -> None:
    assert clean(schema("e:struct<>,l:array<struct<>>")) == schema("e:string,l:array<string>")
    assert clean(schema("A:bigint,a:string")) == schema("A:bigint")
    assert clean(StructType([StructField("", LongType())])) == StructType()


def test_a_table_does_not_grow_without_end() -> None:
    wide = StructType([StructField(f"c{n}", StringType()) for n in range(LEAVES_MAX)])
    assert count_leaves(widen(wide, schema("one:bigint"))) == LEAVES_MAX
    assert widen(wide, wide) == wide
