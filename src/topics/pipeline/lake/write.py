"""One batch of a query into the tables of a lake.

Keeps: the batch is read once, from the log of topics into `_raw`; typed tables are made from what
was just written. Nothing counts before the one commit at the end, and everything does after it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from topics.errors import LakeConflict, OptionError, PipelineError
from topics.pipeline.jobs.job import PIPELINE_TOPIC
from topics.pipeline.lake.columns import changed_types
from topics.pipeline.lake.entry import Change, LakeFile, LakeState, TableFormat
from topics.pipeline.lake.files import adopt, staging
from topics.pipeline.lake.log import GAPS, RAW, LakeLog
from topics.pipeline.lake.publish import check_format, publish
from topics.pipeline.lake.tables import read_files
from topics.pipeline.lake.typed import TypedTable, infer_schema, parse, tables_of
from topics.pipeline.schema import ROW_DDL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

RAW_DDL: Final = f"{ROW_DDL}, epoch bigint, date date"
COMPRESSION: Final = "zstd"
_TRIES: Final = 3
_logger = logging.getLogger("topics.pipeline")


class Batch(Struct, frozen=True, kw_only=True):
    """Which batch of which query."""

    query: str
    query_id: str
    number: int
    offsets: Mapping[str, int]
    epochs: Mapping[str, int] = {}

    @property
    def file_name(self) -> str:
        """Return the start of the names of its files; a new checkpoint counts from 0 again."""
        return f"{self.query}-{self.query_id[:8]}-{self.number:08}"

    def change(self) -> Change:
        return Change(
            query=self.query,
            query_id=self.query_id,
            batch=self.number,
            offsets=self.offsets,
            epochs=self.epochs,
        )


def begin(log: LakeLog, wanted: TableFormat | None) -> None:
    """Make the tables that every lake has, and settle its format; later runs find both."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - on a driver

    state = log.load()
    chosen = wanted or state.format
    check_format(chosen)
    if chosen != state.format and state.files:
        raise OptionError(
            f"the tables in {log.root} are kept in {state.format.name}: the format of a lake is "
            "chosen with its first run; make another lake"
        )
    schema = StructType.fromDDL(RAW_DDL)
    assert isinstance(schema, StructType)
    schemas = {
        table: schema.json()
        for table in (RAW, GAPS)
        if table not in state.schemas or not _same(state.schemas[table][-1], schema)
    }
    if schemas or chosen != state.format:
        log.commit(Change(schemas=schemas, format=chosen))
    publish(log)


class LakeWriter:
    """Writes the batches of the query `lake`."""

    def __init__(self, log: LakeLog, typed: Sequence[TypedTable], *, infer: bool) -> None:
        self._log = log
        self._typed = typed
        self._infer = infer

    def write(self, frame: "DataFrame", batch: Batch) -> int:
        """Write and commit a batch; return its rows, 0 if it was committed before."""
        for _ in range(_TRIES - 1):
            try:
                return self._write(frame, batch)
            except LakeConflict as conflict:  # a compaction replaced files that it was to replace
                _logger.info("topics: batch %d begins again: %s", batch.number, conflict)
        return self._write(frame, batch)

    def _write(self, frame: "DataFrame", batch: Batch) -> int:
        state = self._log.load()
        if state.has_batch(batch.change()):
            return 0
        # This session is the query's own: a day is one of UTC, and names of payloads that differ in
        # case are two names until one is chosen.
        frame.sparkSession.conf.set("spark.sql.session.timeZone", "UTC")
        frame.sparkSession.conf.set("spark.sql.caseSensitive", "true")
        files = self._write_raw(frame, batch, state)
        raw = [file for file in files if file.table == RAW]
        topics = sorted({_topic_of(file.path) for file in raw})
        change = msgspec.structs.replace(batch.change(), add=tuple(files))
        # What was written has its place already: typed rows come from there.
        for table, names in tables_of(topics, self._typed, infer=self._infer):
            of_table = [file for file in raw if _topic_of(file.path) in names]
            change = self._write_typed(frame.sparkSession, batch, state, change, table, of_table)
        self._log.commit(change)
        publish(self._log, change)
        return sum(file.rows for file in raw)

    def _write_raw(self, frame: "DataFrame", batch: Batch, state: LakeState) -> list[LakeFile]:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's custom; on a driver

        rows = frame.where(F.col("topic") != PIPELINE_TOPIC)
        rows = rows.withColumn("epoch", F.when(F.col("seq").isNotNull(), epoch_of(batch.epochs)))
        rows = rows.withColumn("date", F.to_date("ts"))
        save(rows, self._log, batch.query, RAW)
        schema = len(state.schemas[RAW]) - 1
        return adopt(self._log, batch.query, RAW, name=batch.file_name, schema=schema)

    def _write_typed(
        self,
        spark: "SparkSession",
        batch: Batch,
        state: LakeState,
        change: Change,
        table: TypedTable,
        raw: Sequence[LakeFile],
    ) -> Change:
        """Stage the rows of a typed table; return the change with them in it."""
        reader = spark.read.schema(RAW_DDL).option("basePath", f"{self._log.root}/raw")
        rows = reader.parquet(*[f"{self._log.root}/{file.path}" for file in raw])
        typed = parse(rows, self._schema(rows, table, state))
        name, schema = table.table, typed.schema
        versions = state.schemas.get(name, ())
        is_new = not versions or not _same(versions[-1], schema)
        replaced = self._unreadable(state, name, schema) if is_new else []
        if replaced:
            before = read_files(spark, self._log, state, replaced, table=name)
            typed = typed.unionByName(before.to(schema))
        save(typed, self._log, batch.query, name)
        version = len(versions) - (not is_new)
        made = adopt(self._log, batch.query, name, name=batch.file_name, schema=version)
        check_rows(name, [*raw, *replaced], made)
        return msgspec.structs.replace(
            change,
            add=(*change.add, *made),
            remove=(*change.remove, *(file.path for file in replaced)),
            schemas={**change.schemas, name: schema.json()} if is_new else change.schemas,
        )

    def _unreadable(self, state: LakeState, table: str, schema: "StructType") -> list[LakeFile]:
        """Return the files that others could not read by a new schema: they are written anew."""
        if state.format.name == "parquet" or table not in state.schemas:
            return []
        known = msgspec.json.decode(state.schemas[table][-1])["fields"]
        wanted = msgspec.json.decode(schema.json())["fields"]
        return state.files_of(table) if changed_types(known, wanted) else []

    def _schema(self, rows: "DataFrame", table: TypedTable, state: LakeState) -> "StructType":
        """Return what payloads are read as: what the table has, and what this batch adds."""
        from pyspark.sql.types import StructType  # noqa: PLC0415 - on a driver

        from topics.pipeline.lake.widen import widen  # noqa: PLC0415 - needs pyspark

        found = infer_schema(rows) if table.schema is None else StructType.fromDDL(table.schema)
        if not isinstance(found, StructType):
            raise OptionError(f"the schema of {table.table} names no columns: {table.schema}")
        return widen(value_schema(state, table.table), found)


def value_schema(state: LakeState, table: str) -> "StructType":
    """Return what a table has under `value` so far."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - on a driver

    versions = state.schemas.get(table)
    if not versions:
        return StructType()
    schema = StructType.fromJson(msgspec.json.decode(versions[-1]))
    if "value" not in schema.names:
        return StructType()
    value = schema["value"].dataType
    assert isinstance(value, StructType)
    return value


def epoch_of(epochs: Mapping[str, int]) -> "Column":
    """Tell the life of the topic that a row is of, by the part it comes from."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    known = F.from_json(F.lit(msgspec.json.encode(epochs).decode()), "map<string, bigint>")
    part = F.concat_ws("-", "topic", "partition")  # a topic that has partitions is no part itself
    return F.coalesce(F.try_element_at(known, F.col("topic")), F.try_element_at(known, part))


def check_rows(table: str, given: Sequence[LakeFile], made: Sequence[LakeFile]) -> None:
    expected, found = sum(f.rows for f in given), sum(f.rows for f in made)
    if expected != found:
        raise PipelineError(f"{table} should get {expected} rows, and got {found}: not committed")


def save(rows: "DataFrame", log: LakeLog, query: str, table: str) -> None:
    """Stage the rows of a table."""
    # Readers other than Spark know no INT96, which is its default.
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    writer = rows.write.mode("overwrite").partitionBy("topic", "date")
    target = f"{log.root}/{staging(query, table)}"
    writer.option("compression", COMPRESSION).parquet(target)


def _topic_of(path: str) -> str:
    """Read the name of a topic in a path, which Spark escapes like a URL."""
    name = next(part for part in path.split("/") if part.startswith("topic="))
    return unquote(name.removeprefix("topic="))


def _same(stored: str, schema: "StructType") -> bool:
    same: bool = msgspec.json.decode(stored) == msgspec.json.decode(schema.json())
    return same
