"""Batch writes of a real Spark."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = "reader-and-writer:rw+a,nobody:r:other,writer:w"


@pytest.fixture
def feed(request: pytest.FixtureRequest, server: Any) -> Any:  # noqa: ANN401 - as the one it replaces
    name = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")[:60]
    with Feed(server.url, name, token="reader-and-writer") as opened:
        yield opened


def save(frame: "DataFrame", feed: Feed, **options: Any) -> None:  # noqa: ANN401 - any option
    given = {"url": feed.url, "token": "reader-and-writer", "topic": feed.topic, **options}
    frame.write.format("topics").options(**given).mode("append").save()


def test_text_is_json_and_the_other_columns_are_what_they_say(
    spark: "SparkSession", feed: Feed
) -> None:
    rows = [('{"b" : 1.0}', "t", "n", '{"k": 1}'), ("null", None, None, None)]
    columns = "data string, tag string, node string, meta string"
    save(spark.createDataFrame(rows, columns).coalesce(1), feed)
    found = feed.records()
    assert [{k: v for k, v in r.items() if k not in ("$seq", "$ts")} for r in found] == [
        {"data": {"b": 1.0}, "$tag": "t", "$node": "n", "meta": {"k": 1}},
        {"data": None},
    ]


def test_structs_maps_arrays_and_variants_are_encoded(spark: "SparkSession", feed: Feed) -> None:
    for expression in (
        "named_struct('n', 1, 'd', date '2026-01-02')",
        "map('a', array(1, 2))",
        "array(1, 2)",
        """parse_json('{"v": [1, null]}')""",
        """named_struct('variant', parse_json('{"v": 1}'))""",
    ):
        save(spark.range(1).selectExpr(f"{expression} as data"), feed)
    assert [record["data"] for record in feed.records()] == [
        {"n": 1, "d": "2026-01-02"}, {"a": [1, 2]}, [1, 2], {"v": [1, None]}, {"variant": {"v": 1}},
    ]  # fmt: skip


def test_many_rows_of_many_tasks_are_all_there_once(spark: "SparkSession", feed: Feed) -> None:
    save(spark.range(25_000).repartition(3).selectExpr("cast(id as string) as data"), feed)
    assert sorted(record["data"] for record in feed.records()) == list(range(25_000))


def test_the_column_topic_says_where_each_row_goes(spark: "SparkSession", feed: Feed) -> None:
    expression = f"concat('{feed.topic}.', id % 2) as topic"
    rows = spark.range(0, 10, 1, 1)
    save(rows.selectExpr("cast(id as string) as data", expression), feed)
    assert [r["data"] for r in feed.records(f"{feed.topic}.0")] == [0, 2, 4, 6, 8]
    assert [r["data"] for r in feed.records(f"{feed.topic}.1")] == [1, 3, 5, 7, 9]


def test_a_write_that_fails_halfway_and_runs_again_writes_nothing_twice(
    spark: "SparkSession", feed: Feed
) -> None:
    """The write is named; the bad row comes behind three chunks of twenty."""
    rows = spark.range(0, 100, 1, 1)
    bad = rows.selectExpr("if(id = 70, '{', cast(id as string)) as data")
    good = rows.selectExpr("cast(id as string) as data")
    with pytest.raises(Exception, match="BadRow"):
        save(bad, feed, sinkId="nightly", batchRecords=20)
    assert [record["data"] for record in feed.records()] == list(range(60))
    save(good, feed, sinkId="nightly", batchRecords=20)
    assert [record["data"] for record in feed.records()] == list(range(100))
    save(good, feed, sinkId="nightly", batchRecords=20)
    assert len(feed.records()) == 100


def test_two_writes_without_a_name_are_two_writes(spark: "SparkSession", feed: Feed) -> None:
    frame = spark.range(0, 5, 1, 1).selectExpr("cast(id as string) as data")
    save(frame, feed)
    save(frame, feed)
    assert len(feed.records()) == 10


def test_a_bad_row_fails_the_write_or_goes_to_its_own_topic(
    spark: "SparkSession", feed: Feed
) -> None:
    frame = spark.createDataFrame([("1",), ("{",), ("3",)], "data string").coalesce(1)
    with pytest.raises(Exception, match=r"BadRow.*not JSON"):
        save(frame, feed)
    save(frame, feed, onBadRow="deadLetter")
    assert [record["data"] for record in feed.records()] == [1, 3]
    (dead,) = feed.records(f"{feed.topic}.dead-letter")
    assert dead["data"]["text"] == "{"


def test_a_wrong_key_is_refused_and_not_shown(spark: "SparkSession", feed: Feed) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) as data")
    with pytest.raises(Exception, match="403 forbidden") as refused:
        save(frame, feed, token="nobody")
    assert "nobody" not in str(refused.value)


def test_a_plan_or_an_error_shows_no_key(
    spark: "SparkSession", feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.append([{"data": 1}])
    options = {"url": feed.url, "topic": feed.topic, "token": "reader-and-writer"}
    frame = spark.read.format("topics").options(**options).load()
    frame.explain(extended=True)
    frame.createOrReplaceTempView("read_with_a_key")
    spark.sql("describe extended read_with_a_key").show(100, truncate=False)
    shown = capsys.readouterr().out + repr(frame) + frame._jdf.queryExecution().toString()
    assert "topics" in shown
    assert "reader-and-writer" not in shown
    with pytest.raises(Exception, match="no key has") as refused:
        spark.read.format("topics").options(**options | {"token": "bad\nkey"}).load().count()
    assert "bad" not in str(refused.value)


def test_a_key_that_may_only_write_can_write(spark: "SparkSession", feed: Feed) -> None:
    save(spark.range(1).selectExpr("cast(id as string) as data"), feed, token="writer")
    assert [record["data"] for record in feed.records()] == [0]
    options = {"url": feed.url, "topic": feed.topic, "token": "writer"}
    with pytest.raises(Exception, match="403 forbidden"):
        spark.read.format("topics").options(**options).load().count()


def test_a_token_may_be_in_a_file(spark: "SparkSession", feed: Feed, tmp_path: Path) -> None:
    feed.append([{"data": 1}])
    (tmp_path / "key").write_text("reader-and-writer\n")
    options = {"url": feed.url, "topic": feed.topic, "tokenFile": str(tmp_path / "key")}
    assert spark.read.format("topics").options(**options).load().count() == 1


def test_a_frame_that_does_not_fit_is_refused(spark: "SparkSession", feed: Feed) -> None:
    with pytest.raises(Exception, match="`data` is a int"):
        save(spark.range(1).selectExpr("1 as data"), feed)


def test_a_log_is_not_overwritten(spark: "SparkSession", feed: Feed) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) as data")
    options = {"url": feed.url, "token": "reader-and-writer", "topic": feed.topic}
    with pytest.raises(Exception, match="not overwritten"):
        frame.write.format("topics").options(**options).mode("overwrite").save()


def test_what_is_read_can_be_written_back(spark: "SparkSession", feed: Feed) -> None:
    feed.number(20)
    options = {"url": feed.url, "token": "reader-and-writer", "topic": feed.topic}
    frame = spark.read.format("topics").options(**options).load()
    save(frame.select("data", "key", "tag", "node", "meta"), feed, topic=f"{feed.topic}.copy")
    shown = [
        [json.dumps({k: v for k, v in r.items() if k[0] != "$" or k == "$tag"}) for r in records]
        for records in (feed.records(), feed.records(f"{feed.topic}.copy"))
    ]
    assert shown[0] == shown[1]


def test_keys_place_the_rows_of_a_partitioned_topic(spark: "SparkSession", feed: Feed) -> None:
    feed.create(partitions=3)
    rows = spark.range(0, 60, 1, 2).selectExpr(
        "cast(id as string) as data", "concat('k', id % 7) as key", "'t' as tag"
    )
    for _ in range(2):  # the second time it is a repeat
        save(rows, feed, sinkId="nightly", batchRecords=7)
    options = {"url": feed.url, "token": "reader-and-writer", "topic": feed.topic}
    found = spark.read.format("topics").options(**options).load().collect()
    assert sorted(int(row.data) for row in found) == list(range(60))
    assert {row.topic for row in found} == {feed.topic}
    assert all(row.key == f"k{int(row.data) % 7}" and row.tag == "t" for row in found)
    placed: dict[str, set[int]] = {}
    for row in found:
        placed.setdefault(row.key, set()).add(row.partition)
    assert all(len(partitions) == 1 for partitions in placed.values())
    assert len({row.partition for row in found}) > 1
