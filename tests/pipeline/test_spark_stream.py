"""Streaming queries of a real Spark: batches, restarts, losses, and exactly once into topics."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.feed import Feed, wait_until

from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def stream(spark: "SparkSession", feed: Feed, **options: Any) -> "DataFrame":  # noqa: ANN401 - any option
    given = {"url": feed.url, "topic": feed.topic, "startingOffsets": "earliest", **options}
    return spark.readStream.format("topics").options(**given).load()


class Batches:
    """Keeps the rows of every batch by its number, as an idempotent sink would."""

    def __init__(self, checkpoint: Path) -> None:
        self.rows: dict[int, list[Any]] = {}
        self._checkpoint = str(checkpoint)

    def writer(self, frame: "DataFrame") -> "DataStreamWriter":
        def keep(batch: "DataFrame", number: int) -> None:
            self.rows[number] = batch.collect()

        return frame.writeStream.foreachBatch(keep).option("checkpointLocation", self._checkpoint)

    def run(self, frame: "DataFrame") -> None:
        """Run until everything that is there now was read."""
        finish(self.writer(frame).trigger(availableNow=True).start())

    @property
    def seqs(self) -> list[int]:
        return [row.seq for number in sorted(self.rows) for row in self.rows[number]]

    @property
    def sizes(self) -> list[int]:
        return [len(self.rows[number]) for number in sorted(self.rows)]


def finish(query: "StreamingQuery") -> None:
    assert query.awaitTermination(60), "the query did not end"


def test_batches_are_as_large_as_allowed_and_a_restart_goes_on_behind_them(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(250)
    batches = Batches(tmp_path / "checkpoint")
    frame = stream(spark, feed, maxRecordsPerTrigger=100, group=feed.topic)
    batches.run(frame)
    assert batches.sizes == [100, 100, 50]
    feed.number(30, start=250)
    batches.run(frame)
    assert batches.sizes == [100, 100, 50, 30]
    assert batches.seqs == list(range(1, 281))
    newest = (tmp_path / "checkpoint" / "offsets" / "3").read_text().splitlines()[-1]
    epoch = feed.manifest()["epoch"]
    assert json.loads(newest) == {feed.topic: {"epoch": epoch, "next_from_seq": 280}}
    # Told of the last batch too, although none came behind it.
    (shown,) = feed.call("GET", f"/v0/groups/{feed.topic}")["partitions"]
    assert (shown["committed"], shown["lag"]) == (280, 0)


def test_an_idle_stream_waits_for_records_and_gets_them(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(5)
    batches = Batches(tmp_path / "checkpoint")
    behind = json.dumps({feed.topic: 5})
    query = batches.writer(stream(spark, feed, startingOffsets=behind)).start()
    try:
        wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "idleness")
        assert batches.seqs == []
        feed.number(7, start=5)
        wait_until(lambda: len(batches.seqs) >= 7, "new records")
    finally:
        query.stop()
    assert batches.seqs == list(range(6, 13))


def test_new_topics_of_a_prefix_are_read_from_their_first_record(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    batches = Batches(tmp_path / "checkpoint")
    frame = stream(spark, feed, topic=f"{feed.topic}.*")
    feed.number(5, topic=f"{feed.topic}.a")
    batches.run(frame)
    feed.number(3, topic=f"{feed.topic}.b")
    batches.run(frame)
    found = [(row.topic, row.seq) for rows in batches.rows.values() for row in rows]
    assert sorted(found) == [
        *((f"{feed.topic}.a", n) for n in range(1, 6)),
        *((f"{feed.topic}.b", n) for n in range(1, 4)),
    ]


def lose_the_topic(feed: Feed) -> tuple[int, int | None, str]:
    feed.drop()
    feed.number(5)
    return 11, None, "recreated"


def lose_to_a_cap(feed: Feed) -> tuple[int, int | None, str]:
    feed.number(300)
    feed.create(cap_records=50)
    wait_until(lambda: feed.manifest()["evict_floor"] > 11, "evicted records")
    return 11, feed.manifest()["earliest_seq"] - 1, "cap"


def test_a_loss_between_two_runs_fails_the_query_or_is_a_row(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    """One query over a topic for each kind; within a batch: `test_losses.py`."""
    names = {lose: f"{feed.topic}.{lose.__name__}" for lose in (lose_the_topic, lose_to_a_cap)}
    batches = Batches(tmp_path / "checkpoint")
    told = set()
    for name in names.values():
        feed.number(10, topic=name)
    batches.run(stream(spark, feed, topic=f"{feed.topic}.*"))
    for lose, name in names.items():
        with Feed(feed.url, name) as one:
            told.add((name, *lose(one)))
    with pytest.raises(Exception, match="DataLoss") as failed:
        batches.run(stream(spark, feed, topic=f"{feed.topic}.*"))
    for name, gap_from, _, reason in told:
        assert f"'{name}' lost records {gap_from} to " in str(failed.value)
        assert f"({reason})" in str(failed.value)
    batches.run(stream(spark, feed, topic=f"{feed.topic}.*", failOnDataLoss="false"))
    rows = batches.rows[1]
    assert {(r.topic, r.gap_from, r.gap_to, r.gap_reason) for r in rows if r.gap_from} == told
    left = [(name, r["$seq"]) for name in names.values() for r in feed.records(name)]
    assert sorted((r.topic, r.seq) for r in rows if r.seq) == sorted(left)


def test_a_stream_into_files_has_every_record_once(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    frame = stream(spark, feed).select("seq", "data")
    for start in (0, 100):
        feed.number(100, start=start)
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(writer.trigger(availableNow=True).start())
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.seq for row in rows) == list(range(1, 201))


def test_a_stream_into_memory_shows_as_a_table(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(20)
    writer = stream(spark, feed, schema="n int").selectExpr("value.n").writeStream
    writer = writer.format("memory").queryName("numbers_in_memory")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(writer.trigger(availableNow=True).start())
    assert sorted(row.n for row in spark.table("numbers_in_memory").collect()) == list(range(20))


def copy_to(frame: "DataFrame", feed: Feed, checkpoint: Path) -> "DataStreamWriter":
    writer = frame.select("data", "tag", "node", "meta").writeStream.format("topics")
    return writer.options(
        url=feed.url, topic=f"{feed.topic}.out", checkpointLocation=str(checkpoint), batchRecords=7
    ).trigger(availableNow=True)


def test_a_batch_that_is_run_again_writes_nothing_twice(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = stream(spark, feed, maxRecordsPerTrigger=60, recordsPerPartition=40)
    feed.number(100)
    finish(copy_to(frame, feed, checkpoint).start())
    # As after a kill between the work of the last batch and the note that it is done.
    newest = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    for file in (checkpoint / "commits").glob(f"*{newest}*"):
        file.unlink()
    feed.number(15, start=100)
    feed.wait_for_sealed(1)
    finish(copy_to(frame, feed, checkpoint).start())
    copied = feed.records(f"{feed.topic}.out")
    assert sorted(record["data"]["n"] for record in copied) == list(range(115))
    assert {record["$tag"] for record in copied} == {f"t{n}" for n in range(10)}
    assert copied[0]["meta"] == {"m": copied[0]["data"]["n"]}


def test_a_stream_survives_a_killed_server(spark: "SparkSession", tmp_path: Path) -> None:
    with ServerProcess(str(tmp_path / "data")) as server, Feed(server.url, "in") as feed:
        feed.number(200)
        frame = stream(spark, feed, maxRecordsPerTrigger=40)
        query = copy_to(frame, feed, tmp_path / "checkpoint").start()
        wait_until(lambda: query.lastProgress is not None, "a first batch")
        server.kill9()
        server.start()
        finish(query)
        written = [record["data"]["n"] for record in feed.records("in.out")]
        assert sorted(written) == list(range(200))


def test_a_stream_refuses_options_it_cannot_keep(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(1)
    with pytest.raises(Exception, match="a stream has no end"):
        Batches(tmp_path / "checkpoint").run(stream(spark, feed, endingOffsets="latest"))
