"""A lake of one test: run into, and read back."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.feed import Feed

from topics.pipeline.jobs.job import JobRun, JobSummary
from topics.pipeline.jobs.lake import run_lake
from topics.pipeline.lake.entry import TableFormat
from topics.pipeline.lake.query import QueryOptions
from topics.pipeline.lake.tables import read_table
from topics.pipeline.lake.typed import TypedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Lake:
    """Runs the job `lake` over the topic of a feed, until all is read."""

    def __init__(self, spark: "SparkSession", root: Path, feed: Feed) -> None:
        self.spark = spark
        self.root = str(root)
        self._feed = feed

    def run(
        self,
        *typed: TypedTable,
        infer: bool = True,
        topics: str | None = None,
        tables: TableFormat | None = None,
        **options: Any,  # noqa: ANN401 - any option
    ) -> JobSummary:
        given = QueryOptions(url=self._feed.url, topics=topics or self._feed.topic, **options)
        with JobRun("lake") as run:
            run_lake(self.spark, self.root, given, run, typed=typed, infer=infer, tables=tables)
        return run.summary()

    def rows(self, table: str) -> list[Any]:
        frame = read_table(self.spark, self.root, table)
        return frame.sort("seq").collect() if "seq" in frame.columns else frame.collect()

    def seqs(self, table: str = "_raw") -> list[int]:
        return [row.seq for row in self.rows(table)]
