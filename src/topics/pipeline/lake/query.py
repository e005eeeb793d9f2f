"""A streaming query into a lake: its checkpoint, its batches, its end.

Keeps: a checkpoint and a lake that do not belong together are found out before a batch is written:
going on would write records twice, or leave some out. The offsets of every batch are in the log of
the lake as well, so that a checkpoint that was lost can be made anew (`recover`).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from topics.errors import FileMissing, LakeConflict, PipelineError
from topics.pipeline.catalog import ServerCatalog
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.lake.entry import Query
from topics.pipeline.lake.log import CHECKPOINT_DIR, LOG_DIR, LakeLog
from topics.pipeline.lake.write import Batch
from topics.pipeline.offsets import Offsets, PartState, parse_offsets
from topics.pipeline.options import Token
from topics.pipeline.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2
DEFAULT_BATCH_RECORDS: Final = 1_000_000


class QueryOptions(Struct, frozen=True, kw_only=True):
    """What is read, and how often."""

    url: str
    topics: str
    token: Token | None = None
    once: bool = True
    interval_ms: int = 1_000
    max_records: int = DEFAULT_BATCH_RECORDS
    starting: str = "earliest"
    recover: bool = False
    group: str | None = None


WriteBatch = Callable[["DataFrame", Batch], int]
Stopped = Callable[[], bool]


def never() -> bool:
    return False


def run_query(
    spark: "SparkSession",
    log: LakeLog,
    name: str,
    options: QueryOptions,
    write: WriteBatch,
    run: JobRun,
    *,
    stopped: Stopped = never,
) -> None:
    """Run until all there is was read, or until it is stopped; batches are told to `run`."""
    with log.only_writer(name):
        query = _Checkpoint(log, name)
        known = query.prepare(recover=options.recover)
        server = Server(options.url, options.token)
        starting = options.starting if known is None else _go_on(server, options.topics, known)
        told: dict[str, int] = {}

        def on_batch(frame: "DataFrame", number: int) -> None:
            places = query.places(number)
            offsets = {part: place.next_from_seq for part, place in places.items()}
            epochs = {part: place.epoch for part, place in places.items()}
            batch = Batch(
                query=name, query_id=query.id(), number=number, offsets=offsets, epochs=epochs
            )
            rows = write(frame, batch)
            if rows:  # progress is a record, too: telling of nothing would go on for ever
                lag = _lag(server, options.topics, offsets)
                tables = log.load().rows()
                news = {table: now for table, now in tables.items() if told.get(table) != now}
                told.update(news)
                run.step(rows=rows, batch=number, lag=lag, tables=news)

        reader = spark.readStream.format("topics").options(**_read_options(options, starting))
        # Where rows are read they are written: what goes to a disk of its own would be lost.
        frame = reader.option("sharedPath", f"{log.root}/{LOG_DIR}").load()
        writer = frame.writeStream.foreachBatch(on_batch).queryName(f"topics-{name}")
        writer = writer.option("checkpointLocation", f"{log.root}/{query.path}")
        if options.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{options.interval_ms} milliseconds")
        try:
            _follow(writer.start(), stopped)
        finally:
            server.close()


def _follow(query: "StreamingQuery", stopped: Stopped) -> None:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - on a driver

    try:
        while not query.awaitTermination(POLL_S):  # type: ignore[arg-type] # takes seconds, says int
            if stopped():
                return
    except StreamingQueryException as error:
        raise PipelineError(_reason(str(error))) from error
    finally:
        if query.isActive:
            query.stop()


def _reason(text: str) -> str:
    """Find our own words in the traceback that Spark hands on."""
    lines = [line.strip() for line in text.splitlines()]
    ours = [line for line in lines if line.startswith("topics.errors.")]
    return ours[-1].partition(": ")[2] if ours else text[:2_000]


def _read_options(options: QueryOptions, starting: str) -> dict[str, Any]:
    given = {
        "url": options.url,
        "topic": options.topics,
        "startingOffsets": starting,
        "failOnDataLoss": "false",  # a loss becomes a row, and that a row of `_gaps`
        "maxRecordsPerTrigger": str(options.max_records),
    }
    if options.token is not None:
        given["token"] = str.__str__(options.token)
    if options.group is not None:
        given["group"] = options.group
    return given


def _go_on(server: Server, topics: str, known: Query) -> str:
    """Return where to go on behind the last batch; what is new, or made anew, begins at 0."""
    places = {state.part.name: reached(state, known) for state in _states(server, topics)}
    return msgspec.json.encode(places).decode() if places else "earliest"


def reached(state: PartState, known: Query) -> int:
    """Return behind which seq a part goes on; one that is new, or made anew, has all to come."""
    name = state.part.name
    is_same = known.epochs.get(name, state.epoch) == state.epoch
    return known.offsets.get(name, 0) if is_same else 0


def _states(server: Server, topics: str) -> list[PartState]:
    patterns = [pattern.strip() for pattern in topics.split(",")]
    return ServerCatalog(server).states(patterns, skip_missing=True)


def _lag(server: Server, topics: str, offsets: Mapping[str, int]) -> int:
    """Count the records that a batch has not reached."""
    states = _states(server, topics)
    return sum(max(0, s.head_seq - offsets.get(s.part.name, 0)) for s in states)


class _Checkpoint:
    """What Spark remembers of a query; read here, written by Spark alone."""

    def __init__(self, log: LakeLog, name: str) -> None:
        self._log = log
        self._name = name
        self.path = f"{CHECKPOINT_DIR}/{name}"

    def prepare(self, *, recover: bool) -> Query | None:
        """Refuse what does not fit the lake; return where it was if it is made anew."""
        known = self._log.load().queries.get(self._name)
        if recover and known is not None:
            self._set_aside(known)
            return known
        done = self._last_commit()
        if known is None and done >= 0:
            raise LakeConflict(
                f"{self._where()} has done {done + 1} batches, and the lake has none of them: "
                "remove the checkpoint to read everything again"
            )
        if known is not None and self._id_or_none() != known.id:
            raise LakeConflict(
                f"{self._where()} is missing, torn, or not the one that wrote this lake: going on "
                "would write records twice. Run again with --recover to go on behind the last batch"
            )
        if known is not None and done > known.batch:
            raise LakeConflict(
                f"{self._where()} has done batch {done}, and the lake ends with {known.batch}: "
                "run again with --recover to go on behind it"
            )
        return None

    def id(self) -> str:
        found = self._id_or_none()
        assert found is not None, "Spark writes it before the first batch"
        return found

    def places(self, batch: int) -> Offsets:
        """Return how far a batch reaches; Spark has written it before the batch begins."""
        text = self._log.disk.read(f"{self.path}/offsets/{batch}").decode()
        return parse_offsets(msgspec.json.decode(text.strip().splitlines()[-1]))

    def _id_or_none(self) -> str | None:
        try:
            found = msgspec.json.decode(self._log.disk.read(f"{self.path}/metadata"))
        except (FileMissing, msgspec.DecodeError):
            return None
        return str(found["id"])

    def _last_commit(self) -> int:
        names = self._log.disk.list(f"{self.path}/commits")
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _set_aside(self, known: Query) -> None:
        if self._log.disk.exists(self.path):
            self._log.disk.rename(self.path, f"{self.path}.before-{known.id[:8]}-{known.batch}")

    def _where(self) -> str:
        return f"the checkpoint {self._log.root}/{self.path}"
