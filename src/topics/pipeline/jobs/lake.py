"""The job `lake`: topics to tables, once or on and on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topics.pipeline.jobs.job import JobRun
from topics.pipeline.lake.entry import TableFormat
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.query import QueryOptions, Stopped, never, run_query
from topics.pipeline.lake.typed import TypedTable
from topics.pipeline.lake.write import LakeWriter, begin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE = "lake"


def run_lake(
    spark: "SparkSession",
    root: str,
    options: QueryOptions,
    run: JobRun,
    *,
    typed: Sequence[TypedTable] = (),
    infer: bool = True,
    tables: TableFormat | None = None,
    stopped: Stopped = never,
) -> None:
    """Write what topics have into `_raw`, typed tables and `_gaps`, each record once.

    `tables` is the format of a lake that is made; one that is there keeps its own.
    """
    log = LakeLog(root)
    begin(log, tables)
    writer = LakeWriter(log, typed, infer=infer)
    run_query(spark, log, LAKE, options, writer.write, run, stopped=stopped)
    run.detail["tables"] = log.load().rows()
