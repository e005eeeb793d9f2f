"""`replay`: a range of a topic, or a lake, back into a topic, no faster than allowed.

One task writes everything, in the order of the source, as the producer `<name>`: run again under
the same name and with the same range it writes only what is missing.
Keeps: each record once, also across kills of any process.
Reference: docs/reference/pipeline-jobs.md.
"""

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from topics.errors import OptionError, RequestError
from topics.limits import check_topic_name
from topics.pipeline.audit.lake import read_lake
from topics.pipeline.catalog import ServerCatalog
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.options import Token, parse_sink_options
from topics.pipeline.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNK_S = 1
"""At a bounded rate an append holds what may be written in so many seconds."""
_ALL = 2**62


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """What is replayed: `topic`, or the rows of `lake`, both with seqs from `first` to `last`."""

    url: str
    into: str
    name: str
    """Of this replay: what was written under it is not written again."""
    token: Token | None = None
    topic: str | None = None
    lake: str | None = None
    where: str | None = None
    """A condition on the rows, as SQL."""
    first_seq: int = 1
    last_seq: int | None = None
    records_per_second: int | None = None
    drop_dead_letter_meta: bool = False
    """Dead letters become again what they were before they died."""


def replay(spark: "SparkSession", options: ReplayOptions, run: JobRun) -> None:
    """Replay; the summary says how many records were asked for."""
    check_replay(options)
    frame = _read(spark, options)
    rows = frame.count()
    run.detail.update(into=options.into, name=options.name, records=rows)
    if run.dry_run:
        return
    with closing(Server(options.url, options.token)) as server:
        before = _head(server, options.into)
        frame.write.format("topics").options(**_sink(options)).mode("append").save()
        run.detail["head_moved"] = _head(server, options.into) - before
    run.step(rows=rows)


def check_replay(options: ReplayOptions) -> None:
    """Refuse what cannot be replayed before a session is asked."""
    if (options.topic is None) == (options.lake is None):
        raise OptionError("give either a topic or a lake to be replayed")
    if options.topic == options.into:
        raise OptionError("a topic cannot be replayed into itself: it would never end")
    if options.last_seq is not None and options.last_seq < options.first_seq:
        raise OptionError(f"the range ends at {options.last_seq}, before {options.first_seq}")
    if options.lake is not None and not options.lake.startswith("/"):
        raise OptionError(f"{options.lake} must be absolute: executors have other directories")
    try:
        check_topic_name(options.into)
    except RequestError as error:
        raise OptionError(str(error)) from None
    parse_sink_options(_sink(options), read_file=lambda _: b"")


def _sink(options: ReplayOptions) -> dict[str, str]:
    given = {"url": options.url, "topic": options.into, "sinkId": options.name}
    if options.token is not None:
        given["token"] = options.token
    if options.records_per_second is not None:
        given["recordsPerSecond"] = str(options.records_per_second)
        given["batchRecords"] = str(options.records_per_second * CHUNK_S)
    if options.drop_dead_letter_meta:
        given["dropDeadLetterMeta"] = "true"
    return given


def _read(spark: "SparkSession", options: ReplayOptions) -> "DataFrame":
    """Return the rows in one task and in one order, the same each time."""
    frame = _of_topic(spark, options) if options.topic is not None else _of_lake(spark, options)
    if options.where is not None:
        frame = frame.where(options.where)
    lives = [name for name in ("epoch",) if name in frame.columns]  # the lake has all of them
    frame = frame.coalesce(1).sortWithinPartitions("topic", "partition", *lives, "seq")
    return frame.select("data", "key", "tag", "node", "meta")


def _of_topic(spark: "SparkSession", options: ReplayOptions) -> "DataFrame":
    assert options.topic is not None
    with closing(Server(options.url, options.token)) as server:
        states = ServerCatalog(server).states([options.topic])
    first = {s.part.name: min(options.first_seq - 1, s.head_seq) for s in states}
    last = {
        s.part.name: s.head_seq if options.last_seq is None else min(options.last_seq, s.head_seq)
        for s in states
    }
    given = {
        "url": options.url,
        "topic": options.topic,
        "startingOffsets": msgspec.json.encode(first).decode(),
        "endingOffsets": msgspec.json.encode(last).decode(),
        "recordsPerPartition": str(_ALL),
    }
    if options.token is not None:
        given["token"] = options.token
    return spark.read.format("topics").options(**given).load()


def _of_lake(spark: "SparkSession", options: ReplayOptions) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    assert options.lake is not None
    frame = read_lake(spark, options.lake).frame
    return frame.where(f.col("seq").between(options.first_seq, options.last_seq or 2**63 - 1))


def _head(server: Server, topic: str) -> int:
    states = ServerCatalog(server).states([topic], skip_missing=True)
    return sum(state.head_seq for state in states)
