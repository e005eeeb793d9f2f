"""A lake against the log it was made from: each record in it once, and unchanged.

Both sides are summed up in stretches of seqs, a count and a sum of hashes each, which moves no
rows. Only stretches that differ are joined row by row to say what is wrong.
Keeps: what the log no longer has (floors, deletes) may be in the lake; what it has must be.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from topics.pipeline.jobs.job import PIPELINE_TOPIC
from topics.pipeline.lake.entry import Query
from topics.pipeline.lake.log import LOG_DIR, RAW, LakeLog
from topics.pipeline.lake.tables import read_table
from topics.pipeline.lake.write import epoch_of
from topics.pipeline.local_files import file_exists
from topics.pipeline.offsets import Offsets, PartState, Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LAKE_QUERY: Final = "lake"
UNKNOWN_EPOCH: Final = 0
"""Of a cold directory, which does not tell, and in lakes of before it was kept."""
STRETCH: Final = 100_000
SHOWN_MAX: Final = 100
Fault: TypeAlias = Literal["missing", "doubled", "altered"]
_CONTENT: Final = ("ts", "tag", "node", "meta", "data")


class LakeFault(Struct, frozen=True, kw_only=True):
    """One record that is not in the lake as it is in the log."""

    topic: str
    partition: int
    seq: int
    fault: Fault


class LakeVerdict(Struct, frozen=True, kw_only=True):
    """What a comparison found; the first faults are spelled out."""

    table: str
    log_records: int
    lake_rows: int
    missing: int = 0
    doubled: int = 0
    altered: int = 0
    only_in_lake: int = 0
    """Rows of records that the log has dropped since: no fault."""
    dropped_topics: list[str] = []
    """Topics that are gone: nothing is left to compare their rows with, which is no fault."""
    earlier_lives: list[str] = []
    """Topics that were dropped and made anew: the rows of before are not compared."""
    faults: list[LakeFault] = []

    @property
    def healthy(self) -> bool:
        return not (self.missing or self.doubled or self.altered)


class LakeRows(Struct, frozen=True):
    """The raw rows of a lake, and how far it reaches in which life of each part."""

    frame: "DataFrame"
    places: Offsets | None
    """None for bare Parquet, which does not tell."""


def read_lake(spark: "SparkSession", path: str) -> LakeRows:
    if not file_exists(f"{path}/{LOG_DIR}"):
        return LakeRows(spark.read.parquet(path), None)
    state = LakeLog(path).load()
    query = state.queries.get(LAKE_QUERY, Query("", -1))
    places = {
        part: Place(query.epochs.get(part, UNKNOWN_EPOCH), offset)
        for part, offset in query.offsets.items()
    }
    return LakeRows(read_table(spark, path, RAW, state=state), places)


def reach(state: PartState, places: Offsets | None) -> int:
    """Return up to which seq the lake should have what the log has of a part. Pure."""
    if places is None:
        return state.head_seq
    before_first = min(state.earliest_seq - 1, state.head_seq)
    place = places.get(state.part.name)
    if place is None or place.epoch not in (state.epoch, UNKNOWN_EPOCH):
        return before_first  # the lake has not come to this life of it
    return max(before_first, min(place.next_from_seq, state.head_seq))


def split_rows(
    lake: "DataFrame", states: Sequence[PartState]
) -> tuple["DataFrame", dict[str, int]]:
    """Return the rows that the log can be asked for, and how many others each topic has."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    here = f.col("topic").isin(sorted({state.part.topic for state in states}))
    if "epoch" in lake.columns:
        epochs = {s.part.name: s.epoch for s in states if s.epoch != UNKNOWN_EPOCH}
        now = epoch_of(epochs)
        here = here & (f.col("epoch").isNull() | now.isNull() | (f.col("epoch") == now))
    rows = lake.where(f.col("seq").isNotNull() & (f.col("topic") != PIPELINE_TOPIC))
    others = {row[0]: row[1] for row in rows.where(~here).groupBy("topic").count().collect()}
    return rows.where(here), others


def compare_rows(log: "DataFrame", lake: "DataFrame", *, table: str) -> LakeVerdict:
    """Compare rows of the log with those of a table that was made from it."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    rows, kept = _rows(log), _rows(lake)
    sums = _sums(rows, "log").join(_sums(kept, "lake"), ["topic", "partition", "stretch"], "full")
    differs = sums.where(
        ~f.col("log_count").eqNullSafe(f.col("lake_count"))
        | ~f.col("log_sum").eqNullSafe(f.col("lake_sum"))
    ).select("topic", "partition", "stretch")
    total = sums.agg(f.sum("log_count"), f.sum("lake_count")).collect()[0]
    stretches = [tuple(row) for row in differs.collect()]
    verdict = LakeVerdict(table=table, log_records=total[0] or 0, lake_rows=total[1] or 0)
    if not stretches:
        return verdict
    return _spell_out(rows, kept, stretches, verdict)


def _rows(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    return frame.where(f.col("topic") != PIPELINE_TOPIC).select(
        "topic",
        "partition",
        "seq",
        _hash().alias("hash"),
        f.floor(f.col("seq") / STRETCH).alias("stretch"),
    )


def _hash() -> "Column":
    """Hash what a record says; a part that is not there differs from an empty one."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    parts = [f.unix_millis("ts")]
    for name in _CONTENT[1:]:
        parts += [f.col(name).isNull(), f.coalesce(f.col(name), f.lit(""))]
    return f.xxhash64(*parts)


def _sums(rows: "DataFrame", side: str) -> "DataFrame":
    """Add up hashes, mixed with the seq: rows that swapped their content differ."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    mixed = f.xxhash64("seq", "hash").cast("decimal(20,0)")
    return rows.groupBy("topic", "partition", "stretch").agg(
        f.count("*").alias(f"{side}_count"), f.sum(mixed).alias(f"{side}_sum")
    )


def _spell_out(
    rows: "DataFrame", kept: "DataFrame", stretches: list[tuple[str, int, int]], known: LakeVerdict
) -> LakeVerdict:
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    spark = rows.sparkSession
    ddl = "topic string, partition int, stretch bigint"
    wanted = f.broadcast(spark.createDataFrame(stretches, ddl))
    place = ["topic", "partition", "stretch"]
    one = rows.join(wanted, place).select("topic", "partition", "seq", f.col("hash").alias("log"))
    other = (
        kept.join(wanted, place)
        .groupBy("topic", "partition", "seq")
        .agg(f.count("*").alias("times"), f.min("hash").alias("low"), f.max("hash").alias("high"))
    )
    joined = one.join(other, ["topic", "partition", "seq"], "full").select(
        "topic",
        "partition",
        "seq",
        f.when(f.col("times").isNull(), "missing")
        .when(f.col("times") > 1, "doubled")
        .when(f.col("log").isNull(), "only_in_lake")
        .when((f.col("low") != f.col("log")) | (f.col("high") != f.col("log")), "altered")
        .alias("fault"),
    )
    joined = joined.where(f.col("fault").isNotNull()).persist()
    try:
        counts = {row[0]: row[1] for row in joined.groupBy("fault").count().collect()}
        shown = joined.where("fault != 'only_in_lake'").orderBy("topic", "partition", "seq")
        faults = [LakeFault(**row.asDict()) for row in shown.limit(SHOWN_MAX).collect()]
    finally:
        joined.unpersist()
    return replace(known, faults=faults, **counts)
