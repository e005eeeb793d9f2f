"""The tables of a lake for readers: the files that count, as one frame.

Keeps: a frame reads the lake as it was when the frame was made. Files of an older schema are shown
by the newest: columns they lack are null.
"""

import os
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import msgspec

from topics.errors import OptionError
from topics.pipeline.lake.entry import LakeFile, LakeState
from topics.pipeline.lake.log import GAPS, RAW, LakeLog, open_lake, table_dir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

COLUMNS: Final = {
    RAW: ("topic", "partition", "seq", "ts", "key", "tag", "node", "meta", "data", "epoch", "date"),
    GAPS: ("topic", "partition", "gap_from", "gap_to", "gap_reason"),
}
"""What readers see of tables whose files hold more."""


def list_tables(root: str) -> list[str]:
    return sorted(_open(root).load().schemas)


def table_files(root: str, table: str) -> list[str]:
    """Return the files that count now, for readers other than Spark."""
    log = _open(root)
    return [f"{log.root}/{file.path}" for file in log.load().files_of(table)]


def read_table(
    spark: "SparkSession", root: str, table: str, *, state: LakeState | None = None
) -> "DataFrame":
    """Read a table as it is now, or as it was in `state`."""
    log = _open(root)
    state = state or log.load()
    if table not in state.schemas:
        known = ", ".join(sorted(state.schemas)) or "none"
        raise OptionError(f"{root} has no table {table!r}; tables: {known}")
    whole = read_files(spark, log, state, state.files_of(table), table=table)
    return whole.select(*COLUMNS.get(table, whole.columns))


def read_files(
    spark: "SparkSession", log: LakeLog, state: LakeState, files: Sequence[LakeFile], *, table: str
) -> "DataFrame":
    """Read some files of a table, with all columns of its newest schema."""
    versions = [parse_schema(text) for text in state.schemas[table]]
    parts = []
    for number, schema in enumerate(versions):
        paths = [f"{log.root}/{file.path}" for file in files if file.schema == number]
        if paths:
            base = f"{log.root}/{table_dir(table)}"
            part = spark.read.schema(schema).option("basePath", base).parquet(*paths)
            parts.append(part.to(versions[-1]))
    if not parts:
        return spark.createDataFrame([], versions[-1])
    return reduce(lambda one, other: one.unionByName(other), parts)


def _open(root: str) -> LakeLog:
    """Open a lake that a reader names as it names any folder: here, if it is not absolute."""
    return open_lake(root if "://" in root else os.path.abspath(root))  # noqa: PTH100 - text, no file is touched


def parse_schema(text: str) -> "StructType":
    from pyspark.sql.types import StructType  # noqa: PLC0415 - on a driver

    return StructType.fromJson(msgspec.json.decode(text))
