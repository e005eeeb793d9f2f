"""Batch queries of a real Spark over a real server, by file and by HTTP."""

import contextlib
import io
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.feed import Feed
from tests.pipeline.losses import LOSSES, RECORDS, crash, fill

import topics
from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIAS = ["segments", "http", "auto"]


def load(spark: "SparkSession", feed: Feed, **options: Any) -> "DataFrame":  # noqa: ANN401 - any option
    given = {"url": feed.url, "topic": feed.topic, **options}
    return spark.read.format("topics").options(**given).load()


def numbers(frame: "DataFrame") -> list[int]:
    """Return the seqs, sorted."""
    return sorted(row.seq for row in frame.select("seq").collect())


@pytest.fixture
def filled(feed: Feed) -> Feed:
    return fill(feed)


@pytest.mark.parametrize("via", VIAS)
def test_every_way_gives_the_records_as_they_were_written_but_the_deleted_ones(
    spark: "SparkSession", filled: Feed, via: str
) -> None:
    filled.delete_tag("t3")
    rows = load(spark, filled, via=via).orderBy("seq").collect()
    written = filled.records()
    assert len(rows) == 315
    assert [(r.seq, r.tag, r.key, r.node) for r in rows] == [
        (w["$seq"], w["$tag"], w["$tag"], w["$node"]) for w in written
    ]
    assert [int(r.ts.timestamp() * 1000 + 0.5) for r in rows] == [w["$ts"] for w in written]
    assert rows[6].data == '{"n":7,"text":"é 7"}'
    assert rows[6].meta == '{"m":7}'
    assert {(r.topic, r.partition, r.gap_from) for r in rows} == {(filled.topic, 0, None)}


def test_a_closed_directory_gives_the_same_rows_as_its_server(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with ServerProcess(str(tmp_path / "data")) as server, Feed(server.url, "orders") as feed:
        feed.number(50)
        feed.delete_tag("t3")
        by_server = load(spark, feed).orderBy("seq").collect()
        server.terminate()
        path = str(tmp_path / "data")
        by_path = spark.read.format("topics").options(path=path, topic="ord*").load()
        assert by_path.orderBy("seq").collect() == by_server
        assert len(by_server) == 45


def test_a_cold_directory_goes_by_topic_id(spark: "SparkSession", tmp_path: Path) -> None:
    with topics.open(str(tmp_path / "data")) as log:
        log.append("orders", [{"data": n} for n in range(10)])
    shutil.copytree(tmp_path / "data" / "topics", tmp_path / "cold" / "topics")
    reader = spark.read.format("topics").options(path=str(tmp_path / "cold"), topic="0" * 15 + "1")
    assert [row.data for row in reader.load().orderBy("seq").collect()] == [
        str(n) for n in range(10)
    ]


def test_offsets_and_times_bound_a_query(spark: "SparkSession", filled: Feed) -> None:
    name = filled.topic
    starting, ending = f'{{"{name}": 100}}', f'{{"{name}": 110}}'
    bounded = load(spark, filled, startingOffsets=starting, endingOffsets=ending)
    assert numbers(bounded) == list(range(101, 111))
    assert numbers(load(spark, filled, startingOffsets="latest")) == []
    late = next(r for r in filled.records() if r["$seq"] == 321)["$ts"]
    since = [r["$seq"] for r in filled.records() if r["$ts"] >= late]
    assert numbers(load(spark, filled, startingTimestamp=str(late))) == since
    before = [r["$seq"] for r in filled.records() if r["$ts"] <= late - 1]
    assert numbers(load(spark, filled, endingTimestamp=str(late - 1), via="http")) == before


def test_partitions_are_as_large_or_as_many_as_asked_for(
    spark: "SparkSession", filled: Feed
) -> None:
    assert load(spark, filled).rdd.getNumPartitions() == 1
    assert load(spark, filled, recordsPerPartition=100).rdd.getNumPartitions() == 4
    many = load(spark, filled, minPartitions=7)
    assert many.rdd.getNumPartitions() == 7
    assert numbers(many) == list(range(1, 351))


def test_a_frame_sees_one_range_however_often_it_is_used(
    spark: "SparkSession", filled: Feed
) -> None:
    frame = load(spark, filled)
    pruned = spark.read.format("topics").schema("seq bigint").options(
        url=filled.url, topic=filled.topic
    ).load()  # fmt: skip
    assert pruned.count() == 350  # with a given schema the first use fixes the range
    filled.number(10, start=350)
    assert frame.count() == pruned.count() == 350
    filled.number(10, start=360)
    assert frame.where("seq > 300").count() == 50
    assert pruned.where("seq > 300").count() == 50
    assert frame.where("seq <= 10").union(frame.where("seq > 340")).count() == 20
    assert frame.count() == 350


@pytest.mark.parametrize("via", ["segments", "http"])
def test_columns_that_need_no_payload_are_read_alone(
    spark: "SparkSession", filled: Feed, via: str
) -> None:
    options = {"url": filled.url, "topic": filled.topic, "via": via}
    frame = spark.read.format("topics").schema("ts timestamp, seq bigint").options(**options).load()
    assert frame.count() == 350
    assert frame.columns == ["ts", "seq"]


def test_every_kind_of_loss_fails_a_query_or_becomes_a_row(
    spark: "SparkSession", feed: Feed, server: ServerProcess
) -> None:
    """One query over a topic for each kind; one by one, in every way: `test_losses.py`."""
    with ExitStack() as stack:
        topics_of = {
            lose: fill(
                stack.enter_context(Feed(feed.url, f"{feed.topic}.{lose.__name__}")),
                in_memory=lose is crash,
            )
            for lose in LOSSES
        }
        strict = load(spark, feed, topic=f"{feed.topic}.*", startingOffsets="earliest")
        lenient = load(spark, feed, topic=f"{feed.topic}.*", failOnDataLoss="false")
        told = {(one.topic, *gap) for lose, one in topics_of.items() for gap in lose(one, server)}
    with pytest.raises(Exception, match="DataLoss") as failed:
        strict.collect()
    for name, gap_from, gap_to, reason in told:
        assert f"'{name}' lost records {gap_from} to {gap_to} ({reason})" in str(failed.value)
    rows = lenient.collect()
    assert {
        (r.topic, r.gap_from, r.gap_to, r.gap_reason) for r in rows if r.gap_from is not None
    } == told
    left = {(r.topic, r.seq) for r in rows if r.gap_from is None}
    evicted_to = next(gap_to for _, _, gap_to, reason in told if reason == "cap")
    assert evicted_to is not None
    assert left == {(f"{feed.topic}.evict", seq) for seq in range(evicted_to + 1, RECORDS + 1)}


def test_a_file_that_is_gone_is_read_over_http(spark: "SparkSession", filled: Feed) -> None:
    files = [Path(s["location"]["data"].removeprefix("file://")) for s in filled.sealed()]
    assert len(filled.records()) == 350  # the server has its files open from now on
    for file in files:
        file.rename(file.with_suffix(".elsewhere"))
    try:
        with pytest.raises(Exception, match=r"OptionError: .*\.data is not there on .* share"):
            load(spark, filled, via="segments").collect()
        assert numbers(load(spark, filled, via="auto")) == list(range(1, 351))
    finally:
        for file in files:
            file.with_suffix(".elsewhere").rename(file)


def test_several_topics_are_read_by_list_and_by_prefix(spark: "SparkSession", feed: Feed) -> None:
    for name in ("x", "y"):
        feed.number(10, topic=f"{feed.topic}.{name}")
    by_prefix = load(spark, feed, topic=f"{feed.topic}.*")
    assert {r.topic: r["count"] for r in by_prefix.groupBy("topic").count().collect()} == {
        f"{feed.topic}.x": 10,
        f"{feed.topic}.y": 10,
    }
    by_list = load(spark, feed, topic=f"{feed.topic}.x,{feed.topic}.y")
    assert by_list.count() == 20
    with pytest.raises(Exception, match=r"TopicNotFound.*no-such"):
        load(spark, feed, topic="no-such").collect()


def test_a_schema_parses_the_payload(spark: "SparkSession", feed: Feed) -> None:
    feed.append([{"data": {"n": 1, "text": "a"}}, {"data": "else"}, {"data": {"n": "x"}}])
    frame = load(spark, feed, schema="n int, text string")
    rows = frame.orderBy("seq").select("value.n", "value.text", "_corrupt").collect()
    assert [tuple(row) for row in rows] == [
        (1, "a", None),
        (None, None, '"else"'),
        (None, None, '{"n":"x"}'),
    ]


def test_filters_may_be_pushed_down_and_change_no_row(spark: "SparkSession", filled: Feed) -> None:
    whole = load(spark, filled).cache()
    for condition in (
        "seq > 340",
        "seq between 95 and 105 and tag = 't3'",
        "tag like 't3%'",
        f"topic = '{filled.topic}' and partition = 0 and seq = 200",
        "topic = 'other'",
        "ts >= current_timestamp() - interval 1 hour and seq < 5",
        "ts < timestamp '2020-01-01'",
    ):
        pushed = numbers(load(spark, filled, pushDown="true").where(condition))
        assert pushed == numbers(whole.where(condition)), condition
    whole.unpersist()
    plan = load(spark, filled, pushDown="true").where("seq > 340")
    with contextlib.redirect_stdout(io.StringIO()) as explained:
        plan.explain()
    assert "Filter (" not in explained.getvalue()


def test_bad_options_are_refused_with_a_hint(spark: "SparkSession", feed: Feed) -> None:
    with pytest.raises(Exception, match="did you mean `failOnDataLoss`"):
        load(spark, feed, failOnLoss="true").collect()
    feed.number(1)
    with pytest.raises(Exception, match="`group` is for streams"):
        load(spark, feed, group="readers").collect()
