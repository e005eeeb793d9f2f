"""The job `rollup`: per topic and tag, in windows, how much came and how late.

The delay is the time from the append of a record to the batch that counts it. A window may get
several rows, as late records come: sums of `records`, `bytes` and `delay_ms_sum` are the window's.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from topics.pipeline.jobs.job import PIPELINE_TOPIC, JobRun
from topics.pipeline.lake.files import adopt
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.publish import publish
from topics.pipeline.lake.query import QueryOptions, Stopped, never, run_query
from topics.pipeline.lake.write import Batch, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROLLUP: Final = "rollup"
TABLE: Final = "_rollup"
ROLLUP_TOPIC: Final = "topics.rollup"
WINDOW_MS: Final = 60_000


def run_rollup(
    spark: "SparkSession",
    root: str,
    options: QueryOptions,
    run: JobRun,
    *,
    window_ms: int = WINDOW_MS,
    stopped: Stopped = never,
) -> None:
    """Count what comes, into the table `_rollup` and the topic `topics.rollup`."""
    log = LakeLog(root)
    publish(log)
    writer = _RollupWriter(log, options, window_ms)
    run_query(spark, log, ROLLUP, options, writer.write, run, stopped=stopped)
    run.detail["rows"] = sum(file.rows for file in log.load().files_of(TABLE))


def count_windows(frame: "DataFrame", *, window_ms: int) -> "DataFrame":
    """Count the records of a batch by window, topic and tag."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's custom; on a driver

    ours = F.col("topic").isin(PIPELINE_TOPIC, ROLLUP_TOPIC)
    start_ms = F.floor(F.unix_millis("ts") / window_ms) * window_ms
    delay_ms = F.greatest(F.unix_millis(F.current_timestamp()) - F.unix_millis("ts"), F.lit(0))
    rows = frame.where(F.col("gap_from").isNull() & ~ours).withColumn("delay_ms", delay_ms)
    grouped = rows.groupBy("topic", "tag", F.timestamp_millis(start_ms).alias("window_start"))
    return grouped.agg(
        F.lit(window_ms).cast("bigint").alias("window_ms"),
        F.count("*").alias("records"),
        F.sum(F.octet_length("data")).alias("bytes"),
        (F.count("*") * 1000 / window_ms).alias("rate_per_s"),
        F.sum("delay_ms").alias("delay_ms_sum"),
        F.max("delay_ms").alias("delay_ms_max"),
    ).withColumn("date", F.to_date("window_start"))


def _nullable(schema: "StructType") -> "StructType":
    """Return a schema as files give it back: Parquet promises no value to be there."""
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415 - on a driver

    return StructType([StructField(f.name, f.dataType, nullable=True) for f in schema.fields])


class _RollupWriter:
    """Writes the batches of the query `rollup`."""

    def __init__(self, log: LakeLog, options: QueryOptions, window_ms: int) -> None:
        self._log = log
        self._options = options
        self._window_ms = window_ms

    def write(self, frame: "DataFrame", batch: Batch) -> int:
        state = self._log.load()
        if state.has_batch(batch.change()):
            return 0
        frame.sparkSession.conf.set("spark.sql.session.timeZone", "UTC")
        rows = count_windows(frame, window_ms=self._window_ms).coalesce(1)
        schema = _nullable(rows.schema)
        save(rows, self._log, ROLLUP, TABLE)
        files = adopt(self._log, ROLLUP, TABLE, name=batch.file_name, schema=0)
        if files:
            base = f"{self._log.root}/{TABLE[1:]}"
            paths = [f"{self._log.root}/{file.path}" for file in files]
            reader = frame.sparkSession.read.schema(schema).option("basePath", base)
            self._tell(reader.parquet(*paths).coalesce(1), batch)
        schemas = {} if TABLE in state.schemas else {TABLE: schema.json()}
        change = msgspec.structs.replace(batch.change(), add=tuple(files), schemas=schemas)
        self._log.commit(change)
        publish(self._log, change)
        return sum(file.rows for file in files)

    def _tell(self, rows: "DataFrame", batch: Batch) -> None:
        """Write the rows as records; a batch that is done again writes none of them twice."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

        fields = [name for name in rows.columns if name not in ("date", "window_start")]
        start = F.unix_millis("window_start").alias("window_start")
        records = rows.select(F.struct(start, *fields).alias("data"), F.col("topic").alias("tag"))
        writer = records.write.format("topics").mode("append").option("url", self._options.url)
        if self._options.token is not None:
            writer = writer.option("token", str.__str__(self._options.token))
        writer.option("topic", ROLLUP_TOPIC).option("sinkId", batch.file_name).save()
