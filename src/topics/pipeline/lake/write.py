"""One batch of a query into the tables of a lake.

Keeps: the batch is read once, from the log of topics into `_raw`; typed tables are made from what
was just written. Nothing counts before the one commit at the end, and everything does after it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from topics.errors import OptionError
from topics.pipeline.jobs.job import PIPELINE_TOPIC
from topics.pipeline.lake.entry import Change, LakeFile, LakeState
from topics.pipeline.lake.files import adopt, staging
from topics.pipeline.lake.log import GAPS, RAW, LakeLog
from topics.pipeline.lake.typed import TypedTable, infer_schema, parse, tables_of
from topics.pipeline.schema import ROW_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RAW_DDL: Final = f"{ROW_DDL}, date date"
COMPRESSION: Final = "zstd"


class Batch(Struct, frozen=True, kw_only=True):
    """Which batch of which query."""

    query: str
    query_id: str
    number: int
    offsets: Mapping[str, int]

    @property
    def file_name(self) -> str:
        """Return the start of the names of its files; a new checkpoint counts from 0 again."""
        return f"{self.query}-{self.query_id[:8]}-{self.number:08}"

    def change(self) -> Change:
        return Change(
            query=self.query, query_id=self.query_id, batch=self.number, offsets=self.offsets
        )


class LakeWriter:
    """Writes the batches of the query `lake`."""

    def __init__(self, log: LakeLog, typed: Sequence[TypedTable], *, infer: bool) -> None:
        self._log = log
        self._typed = typed
        self._infer = infer

    def write(self, frame: "DataFrame", batch: Batch) -> int:
        """Write and commit a batch; return its rows, 0 if it was committed before."""
        state = self._log.load()
        if state.has_batch(batch.change()):
            return 0
        # This session is the query's own: a day is one of UTC, and names of payloads that differ in
        # case are two names until one is chosen.
        frame.sparkSession.conf.set("spark.sql.session.timeZone", "UTC")
        frame.sparkSession.conf.set("spark.sql.caseSensitive", "true")
        schemas: dict[str, str] = {}
        files = self._write_raw(frame, batch, state, schemas)
        topics = self._staged_topics(files)
        # What was read back has its place already: typed rows come from there.
        for table, names in tables_of(topics, self._typed, infer=self._infer):
            paths = [f.path for f in files if f.table == RAW and _topic_of(f.path) in names]
            files += self._write_typed(frame, batch, state, schemas, table, paths)
        change = msgspec.structs.replace(batch.change(), add=tuple(files), schemas=schemas)
        self._log.commit(change)
        return sum(file.rows for file in files if file.table == RAW)

    def _write_raw(
        self, frame: "DataFrame", batch: Batch, state: LakeState, schemas: dict[str, str]
    ) -> list[LakeFile]:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's custom; on a driver
        from pyspark.sql.types import StructType  # noqa: PLC0415

        rows = frame.where(F.col("topic") != PIPELINE_TOPIC).withColumn("date", F.to_date("ts"))
        save(rows, self._log, batch.query, RAW)
        for table in (RAW, GAPS):
            if table not in state.schemas:
                schemas[table] = StructType.fromDDL(RAW_DDL).json()
        return adopt(self._log, batch.query, RAW, name=batch.file_name, schema=0)

    def _write_typed(
        self,
        frame: "DataFrame",
        batch: Batch,
        state: LakeState,
        schemas: dict[str, str],
        table: TypedTable,
        paths: Sequence[str],
    ) -> list[LakeFile]:
        reader = frame.sparkSession.read.schema(RAW_DDL)
        base = f"{self._log.root}/raw"
        rows = reader.option("basePath", base).parquet(*[f"{self._log.root}/{p}" for p in paths])
        schema = self._schema(rows, table, state)
        typed = parse(rows, schema)
        versions = state.schemas.get(table.table, ())
        version = len(versions) - 1
        if not versions or not _same(versions[-1], typed.schema):
            schemas[table.table] = typed.schema.json()
            version += 1
        save(typed, self._log, batch.query, table.table)
        name = batch.file_name
        return adopt(self._log, batch.query, table.table, name=name, schema=version)

    def _schema(self, rows: "DataFrame", table: TypedTable, state: LakeState) -> "StructType":
        """Return what payloads are read as: what the table has, and what this batch adds."""
        from pyspark.sql.types import StructType  # noqa: PLC0415 - on a driver

        from topics.pipeline.lake.widen import widen  # noqa: PLC0415 - needs pyspark

        found = infer_schema(rows) if table.schema is None else StructType.fromDDL(table.schema)
        if not isinstance(found, StructType):
            raise OptionError(f"the schema of {table.table} names no columns: {table.schema}")
        return widen(value_schema(state, table.table), found)

    def _staged_topics(self, files: Sequence[LakeFile]) -> list[str]:
        return sorted({_topic_of(file.path) for file in files if file.table == RAW})


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


def save(rows: "DataFrame", log: LakeLog, query: str, table: str) -> None:
    """Stage the rows of a table."""
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
