"""Files to rows that a loader takes: `data` as JSON text, and `tag`, `node`, `meta`, `ts` if any.

A table that has a text column `data` holds records already; of any other the whole row becomes
`data`. JSON lines are not parsed here: the kernel checks them where frames are made.
"""

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from topics.errors import ConfigError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Format: TypeAlias = Literal["jsonl", "csv", "parquet", "kafka"]
FORMATS: Final = ("jsonl", "csv", "parquet", "kafka")
PARTS: Final = ("data", "meta", "tag", "node", "ts")


class LoadInput(Struct, frozen=True, kw_only=True):
    """What is loaded. Of JSON lines `tag` and `ts` are members, `a.b`; else they are columns."""

    format: Format
    path: str | None = None
    schema: str | None = None
    """Of CSV, as DDL; without it every column is text."""
    tag: str | None = None
    ts: str | None = None
    options: dict[str, str] = {}
    """For Spark's own reader."""


def parse_input(kind: str, **given: Any) -> LoadInput:  # noqa: ANN401 - the other fields
    """Return what is loaded, by the name of its format."""
    if kind not in FORMATS:
        raise OptionError(f"{kind!r} cannot be loaded: use one of {', '.join(FORMATS)}")
    parsed = LoadInput(format=cast("Format", kind), **given)
    check_input(parsed)
    return parsed


def check_input(given: LoadInput) -> None:
    """Refuse what cannot be read before a session is asked."""
    if given.format == "kafka":
        return
    if given.path is None:
        raise OptionError(f"{given.format} needs a path")
    if "://" not in given.path and not given.path.startswith("/"):
        raise OptionError(
            f"{given.path} must be absolute: executors have other working directories than you"
        )


def read_input(spark: "SparkSession", given: LoadInput) -> "DataFrame":
    """Return rows with some of the columns data, meta, tag, node, ts; sorted by time if it has."""
    check_input(given)
    frame = _READERS[given.format](spark, given)
    frame = frame.select(*(name for name in PARTS if name in frame.columns))
    return frame.orderBy("ts") if "ts" in frame.columns else frame


def _read_lines(spark: "SparkSession", given: LoadInput) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    line = f.col("value")
    frame = spark.read.options(**given.options).text(str(given.path)).where(f.trim(line) != "")
    columns = [line.alias("data")]
    if given.tag is not None:
        columns.append(f.get_json_object(line, f"$.{given.tag}").alias("tag"))
    if given.ts is not None:
        columns.append(_time(f.get_json_object(line, f"$.{given.ts}")))
    return frame.select(*columns)


def _read_csv(spark: "SparkSession", given: LoadInput) -> "DataFrame":
    reader = spark.read.option("header", "true").options(**given.options)
    if given.schema is not None:
        reader = reader.schema(given.schema)
    return _of_rows(reader.csv(str(given.path)), given)


def _read_parquet(spark: "SparkSession", given: LoadInput) -> "DataFrame":
    return _of_rows(spark.read.options(**given.options).parquet(str(given.path)), given)


def _read_kafka(spark: "SparkSession", given: LoadInput) -> "DataFrame":
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - needs pyspark

    try:
        frame = spark.read.format("kafka").options(**given.options).load()
    except AnalysisException as error:
        raise ConfigError(
            "Spark cannot read Kafka: start it with --packages "
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version} ({error})"
        ) from None
    return frame.selectExpr(
        "cast(value as string) as data", "cast(key as string) as tag", "timestamp as ts"
    )


def _of_rows(frame: "DataFrame", given: LoadInput) -> "DataFrame":
    """Take records as they are; of other rows all columns become `data`."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    if dict(frame.dtypes).get("data") == "string":
        found = {name: f.col(name) for name in frame.columns if name in PARTS}
        if "key" in frame.columns:
            key = f.col("key")
            found["tag"] = f.coalesce(found["tag"], key) if "tag" in found else key
        if "ts" in found:
            found["ts"] = _time(found["ts"], dict(frame.dtypes)["ts"])
        return frame.select(*(column.alias(name) for name, column in found.items()))
    columns = [f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("data")]
    if given.tag is not None:
        columns.append(f.col(given.tag).cast("string").alias("tag"))
    if given.ts is not None:
        columns.append(_time(f.col(given.ts), dict(frame.dtypes).get(given.ts, "string")))
    return frame.select(*columns)


def _time(column: Any, kind: str = "string") -> Any:  # noqa: ANN401 - Columns of Spark
    """Read a time: a timestamp, ISO 8601, or milliseconds since the epoch."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    if kind.startswith("timestamp"):
        return column.alias("ts")
    millis = column.cast("string").try_cast("bigint")
    return f.coalesce(f.timestamp_millis(millis), column.cast("string").cast("timestamp")).alias(
        "ts"
    )


_READERS: Final = {
    "jsonl": _read_lines,
    "csv": _read_csv,
    "parquet": _read_parquet,
    "kafka": _read_kafka,
}
