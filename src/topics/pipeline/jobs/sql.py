"""The job `sql`: topics and tables of a lake by their names.

Only what a query names is looked up; which names mean what is in `sql_names.py`.
Reference: docs/reference/pipeline.md.
"""

import csv
import io
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from topics.errors import PipelineError, ServerRefused
from topics.pipeline.jobs.sql_names import Named, find_all, names_in
from topics.pipeline.lake.tables import list_tables, read_table
from topics.pipeline.options import Token
from topics.pipeline.server import Server
from topics.pipeline.session import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S: Final = 5.0
_log = logging.getLogger("topics.pipeline")
Format: TypeAlias = Literal["table", "csv", "json"]


class SqlOptions(Struct, frozen=True, kw_only=True):
    """Where names are looked up."""

    url: str | None = None
    token: Token | None = None
    lake: str | None = None


def run_query(spark: "SparkSession", query: str, options: SqlOptions) -> "DataFrame":
    """Make views of what a query names, and run it."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - on a driver

    unclear: dict[str, str] = {}
    try:
        unclear = _make_views(spark, names_in(query), options)
        return spark.sql(query)
    except PySparkException as error:
        said = first_line(error)
        raise PipelineError(
            next((why for word, why in unclear.items() if f"`{word}`" in said), said)
        ) from error


def rows_of(frame: "DataFrame") -> Iterator[dict[str, Any]]:
    """Yield the rows of a result, as JSON has them."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - on a driver

    try:
        for row in frame.toLocalIterator():
            yield row.asDict(recursive=True)
    except PySparkException as error:
        raise PipelineError(first_line(error)) from error


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


def _make_views(spark: "SparkSession", words: set[str], options: SqlOptions) -> dict[str, str]:
    """Make the views that a query names; return the words that stay without one, and why."""
    tables = [] if options.lake is None else list_tables(options.lake)
    known = [Named("lake", table) for table in tables]
    known += [Named("topic", topic) for topic in _topics(options)]
    clear, unclear = find_all(words, known)
    for word in unclear:
        spark.catalog.dropTempView(word)  # of an earlier query, when the word was clear
    for word, meant in clear.items():
        if meant.kind == "topic":
            frame = _read_topic(spark, meant.name, options)
        else:
            assert options.lake is not None
            frame = read_table(spark, options.lake, meant.name)
        frame.createOrReplaceTempView(f"`{word}`")
    return unclear


def _topics(options: SqlOptions) -> list[str]:
    """List the topics; a lake can be asked while its server is away."""
    if options.url is None:
        return []
    with closing(Server(options.url, options.token, patience_s=PATIENCE_S)) as server:
        try:
            return server.list_topics("")
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
