"""The job `sql`: topics and tables of a lake by their names.

A topic is a view of its own name, a table of the lake one with `lake_` in front; what is not a
letter, a digit or a `_` may be written as `_`. Only what a query names is looked up.
"""

import csv
import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from topics.errors import PipelineError, ServerRefused
from topics.pipeline.lake.tables import list_tables, read_table
from topics.pipeline.options import Token
from topics.pipeline.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S: Final = 5.0
_log = logging.getLogger("topics.pipeline")
Format: TypeAlias = Literal["table", "csv", "json"]
_NAME: Final = re.compile(r"`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*)")


class SqlOptions(Struct, frozen=True, kw_only=True):
    """Where names are looked up."""

    url: str | None = None
    token: Token | None = None
    lake: str | None = None


def names_in(query: str) -> set[str]:
    """Return all words of a query that may be names."""
    return {quoted or word for quoted, word in _NAME.findall(query)}


def view_name(name: str) -> str:
    """Return a name as SQL takes it without quotes."""
    return re.sub(r"\W", "_", name)


def run_query(spark: "SparkSession", query: str, options: SqlOptions) -> "DataFrame":
    """Make views of what a query names, and run it."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - on a driver

    wanted = names_in(query)
    try:
        for view, frame in _views(spark, wanted, options):
            frame.createOrReplaceTempView(f"`{view}`")
        return spark.sql(query)
    except PySparkException as error:
        raise PipelineError(_first_line(error)) from error


def rows_of(frame: "DataFrame") -> Iterator[dict[str, Any]]:
    """Yield the rows of a result, as JSON has them."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - on a driver

    try:
        for row in frame.toLocalIterator():
            yield row.asDict(recursive=True)
    except PySparkException as error:
        raise PipelineError(_first_line(error)) from error


def format_csv(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines, the names first; what is no plain value is JSON."""
    names = list(columns)
    yield _csv_line(names)
    for row in rows:
        yield _csv_line([_plain(row[name]) for name in names])


def _csv_line(values: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(values)
    return out.getvalue()


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    text = msgspec.json.encode(value).decode()
    return text.strip('"') if text.startswith('"') else text


def _views(
    spark: "SparkSession", wanted: set[str], options: SqlOptions
) -> Iterator[tuple[str, "DataFrame"]]:
    if options.lake is not None:
        for table in list_tables(options.lake):
            name = f"lake_{table.lstrip('_')}"
            for view in {name, view_name(name)} & wanted:
                yield view, read_table(spark, options.lake, table)
    for topic in _topics(options):
        for view in {topic, view_name(topic)} & wanted:
            yield view, _read_topic(spark, topic, options)


def _topics(options: SqlOptions) -> list[str]:
    """List the topics; a lake can be asked while its server is away."""
    if options.url is None:
        return []
    with closing(Server(options.url, options.token, patience_s=PATIENCE_S)) as server:
        try:
            return list(server.list_topics(""))
        except ServerRefused as error:
            if options.lake is None:
                raise
            _log.warning("topics: only tables of the lake can be asked: %s", error)
            return []


def _read_topic(spark: "SparkSession", topic: str, options: SqlOptions) -> "DataFrame":
    assert options.url is not None
    reader = spark.read.format("topics").option("url", options.url).option("topic", topic)
    if options.token is not None:
        reader = reader.option("token", str.__str__(options.token))
    return reader.option("failOnDataLoss", "false").load()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("topics.errors.")]
    return ours[-1].partition(": ")[2] if ours else (lines or ["the query failed"])[0]
