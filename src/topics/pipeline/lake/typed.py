"""Payloads to typed rows: which table a topic goes to, by which schema, and what does not fit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from topics.pipeline.schema import CORRUPT, VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

HEAD_COLUMNS: Final = ("topic", "partition", "seq", "ts", "key", "tag", "node", "meta", "epoch")
_BAD: Final = "__topics_corrupt__"


class TypedTable(Struct, frozen=True, kw_only=True):
    """A table for topics of one shape; without a schema it takes that of what comes."""

    table: str
    topics: tuple[str, ...]
    schema: str | None = None

    def takes(self, topic: str) -> bool:
        return any(matches(pattern, topic) for pattern in self.topics)


def matches(pattern: str, topic: str) -> bool:
    if pattern.endswith("*"):
        return topic.startswith(pattern[:-1])
    return topic == pattern


def tables_of(
    topics: Sequence[str], given: Sequence[TypedTable], *, infer: bool
) -> list[tuple[TypedTable, list[str]]]:
    """Return the typed tables that topics go to; one that no table asks for gets its own."""
    found: dict[str, tuple[TypedTable, list[str]]] = {}
    for topic in topics:
        tables = [table for table in given if table.takes(topic)]
        if not tables and infer:
            tables = [TypedTable(table=topic, topics=(topic,))]
        for table in tables:
            found.setdefault(table.table, (table, []))[1].append(topic)
    return list(found.values())


def infer_schema(rows: "DataFrame") -> "StructType":
    """Return the shape of all payloads that are objects."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's custom; only on a driver
    from pyspark.sql.types import StructType  # noqa: PLC0415

    objects = rows.select("data").where(F.ltrim("data").startswith("{"))
    reader = rows.sparkSession.read.option("dropFieldIfAllNull", "true")
    found = reader.option("columnNameOfCorruptRecord", _BAD).json(objects).schema
    return StructType([field for field in found.fields if field.name != _BAD])


def parse(rows: "DataFrame", schema: "StructType") -> "DataFrame":
    """Return typed rows: `value`, or the text in `_corrupt`; JSON `null` is neither."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415

    head = [F.col(name) for name in HEAD_COLUMNS]
    is_object = F.ltrim("data").startswith("{")
    other: Column = F.when(F.trim("data") != "null", F.col("data"))
    if not schema.fields:
        return rows.select(*head, F.when(~is_object, other).alias(CORRUPT), "date")
    full = StructType([*schema.fields, StructField(_BAD, StringType())])
    parsed = F.from_json("data", full, {"columnNameOfCorruptRecord": _BAD})
    fits = is_object & F.col("_parsed")[_BAD].isNull()
    value = F.struct(*[F.col("_parsed")[field.name].alias(field.name) for field in schema.fields])
    return rows.withColumn("_parsed", parsed).select(
        *head,
        F.when(fits, value).alias(VALUE),
        F.when(~fits, F.when(is_object, F.col("data")).otherwise(other)).alias(CORRUPT),
        "date",
    )
