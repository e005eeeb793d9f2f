"""The lake: every record in it once, whatever shape it has and whatever was lost."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.feed import Feed
from tests.pipeline.lakes import Lake

from topics.errors import LakeConflict, OptionError
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.tables import list_tables, read_table, table_files
from topics.pipeline.lake.typed import TypedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(spark: "SparkSession", feed: Feed, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "lake", feed)


def append(feed: Feed, *data: object) -> None:
    feed.append([{"data": one} for one in data])


def test_every_record_is_in_the_raw_table_once_with_all_it_has(lake: Lake, feed: Feed) -> None:
    feed.number(250)
    summary = lake.run(max_records=100)
    rows = lake.rows("_raw")
    assert [row.seq for row in rows] == list(range(1, 251))
    first = rows[0]
    assert (first.topic, first.partition, first.tag, first.node) == (feed.topic, 0, "t0", "x")
    assert (first.data, first.meta) == ('{"n":0,"text":"é 0"}', '{"m":0}')
    assert first.date == first.ts.date()
    assert (summary.rows, summary.batches, summary.lag) == (250, 3, 0)
    assert summary.detail["tables"]["_raw"] == 250


def test_a_second_run_goes_on_behind_the_first(lake: Lake, feed: Feed) -> None:
    feed.number(10)
    lake.run()
    assert lake.run().rows == 0
    feed.number(5, start=10)
    assert lake.run().rows == 5
    assert lake.seqs() == list(range(1, 16))
    assert lake.seqs(feed.topic) == list(range(1, 16))


def test_files_lie_by_topic_and_date(lake: Lake, feed: Feed) -> None:
    feed.number(3)
    lake.run()
    (path,) = table_files(lake.root, "_raw")
    below = Path(path).relative_to(lake.root)
    assert [part.partition("=")[0] for part in below.parts[:3]] == ["raw", "topic", "date"]
    assert list_tables(lake.root) == ["_gaps", "_raw", feed.topic]


def test_a_table_takes_the_shape_of_what_comes_and_grows_with_it(lake: Lake, feed: Feed) -> None:
    append(feed, {"n": 1, "who": {"name": "ann"}})
    lake.run()
    append(feed, {"n": 2.5, "who": {"name": "bob", "age": 4}, "late": [1, 2]})
    lake.run()
    one, two = [row.value.asDict(recursive=True) for row in lake.rows(feed.topic)]
    assert one == {"n": 1.0, "who": {"name": "ann", "age": None}, "late": None}
    assert two == {"n": 2.5, "who": {"name": "bob", "age": 4}, "late": [1, 2]}


def test_what_does_not_fit_keeps_its_text(lake: Lake, feed: Feed) -> None:
    append(feed, {"n": 1})
    lake.run()
    append(feed, {"n": "many"}, 7, [1], "text", None, {})
    lake.run()
    rows = lake.rows(feed.topic)
    assert [row._corrupt for row in rows] == [
        None, '{"n":"many"}', "7", "[1]", '"text"', None, None,
    ]  # fmt: skip
    assert [row.value and row.value.n for row in rows] == [1, None, None, None, None, None, None]


def test_shapes_that_parquet_cannot_hold_lose_nothing(lake: Lake, feed: Feed) -> None:
    append(feed, {}, {"empty": {}}, {"A": 1, "a": 2}, {"none": None})
    lake.run()
    assert lake.seqs(feed.topic) == [1, 2, 3, 4]
    assert [row.data for row in lake.rows("_raw")][2] == '{"A":1,"a":2}'
    assert lake.spark.conf.get("spark.sql.caseSensitive") == "false", "the setting is the query's"


def test_payloads_without_any_field_make_a_table_that_grows_later(lake: Lake, feed: Feed) -> None:
    append(feed, 1, {})
    lake.run()
    assert [row._corrupt for row in lake.rows(feed.topic)] == ["1", None]
    append(feed, {"n": 3})
    lake.run()
    assert [row.value and row.value.n for row in lake.rows(feed.topic)] == [None, None, 3]


def test_a_given_schema_reads_what_it_names(lake: Lake, feed: Feed) -> None:
    append(feed, {"n": 1, "other": 2}, {"n": "x"})
    table = TypedTable(table="numbers", topics=(feed.topic,), schema="n INT")
    lake.run(table)
    rows = lake.rows("numbers")
    assert [row.value and row.value.asDict() for row in rows] == [{"n": 1}, None]
    assert rows[1]._corrupt == '{"n":"x"}'
    wider = TypedTable(table="numbers", topics=(feed.topic,), schema="n INT, other BIGINT")
    append(feed, {"n": 2, "other": 3})
    lake.run(wider)
    assert [row.value and row.value.other for row in lake.rows("numbers")] == [None, None, 3]


def test_a_loss_is_a_row_of_the_gaps_table_and_of_no_other(lake: Lake, feed: Feed) -> None:
    feed.create(cap_records=5)
    feed.number(2)
    lake.run(infer=False)
    feed.number(12, start=2)
    lake.run(infer=False)
    assert lake.seqs() == [1, 2, 10, 11, 12, 13, 14]
    (gap,) = lake.rows("_gaps")
    assert (gap.topic, gap.gap_from, gap.gap_to) == (feed.topic, 3, 9)
    assert gap.gap_reason


def test_the_topic_of_the_progress_does_not_feed_itself(lake: Lake, feed: Feed) -> None:
    feed.number(2, topic="topics.pipeline")
    feed.number(2)
    lake.run(infer=False, topics=f"{feed.topic},topics.*")
    assert {row.topic for row in lake.rows("_raw")} == {feed.topic}


def test_a_topic_with_partitions_is_one_table(lake: Lake, feed: Feed) -> None:
    feed.create(partitions=3)
    records = [{"data": {"n": n}, "tag": f"k{n}"} for n in range(30)]
    feed.call("POST", f"/v0/topics/{feed.topic}", json={"records": records})
    lake.run()
    rows = lake.rows(feed.topic)
    assert sorted(row.value.n for row in rows) == list(range(30))
    assert {row.partition for row in rows} == {0, 1, 2}


def test_a_frame_reads_the_lake_as_it_was(lake: Lake, feed: Feed) -> None:
    feed.number(3)
    lake.run(infer=False)
    before = read_table(lake.spark, lake.root, "_raw")
    feed.number(3, start=3)
    lake.run(infer=False)
    assert before.count() == 3
    assert len(lake.seqs()) == 6


def test_a_lake_without_its_checkpoint_is_not_written_twice(lake: Lake, feed: Feed) -> None:
    feed.number(5)
    lake.run(infer=False)
    shutil.rmtree(f"{lake.root}/_checkpoints/lake")
    with pytest.raises(LakeConflict, match="--recover"):
        lake.run(infer=False)
    feed.number(5, start=5)
    lake.run(infer=False, recover=True)
    assert lake.seqs() == list(range(1, 11))
    lake.run(infer=False)
    assert lake.seqs() == list(range(1, 11))


def test_a_checkpoint_without_its_lake_leaves_nothing_out(lake: Lake, feed: Feed) -> None:
    feed.number(5)
    lake.run(infer=False)
    shutil.rmtree(f"{lake.root}/_log")
    with pytest.raises(LakeConflict, match="the lake has none of them"):
        lake.run(infer=False)


def test_a_second_run_into_the_same_lake_is_refused(lake: Lake, feed: Feed) -> None:
    feed.number(1)
    with LakeLog(lake.root).only_writer("lake"), pytest.raises(LakeConflict, match="already runs"):
        lake.run(infer=False)


def test_a_table_that_is_not_there_is_refused_with_those_that_are(lake: Lake, feed: Feed) -> None:
    feed.number(1)
    lake.run(infer=False)
    with pytest.raises(OptionError, match="_gaps, _raw"):
        lake.rows("nowhere")


def test_a_lake_that_is_not_there_is_not_made_by_its_readers(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no lake"):
        list_tables(str(tmp_path / "typo"))
    assert not (tmp_path / "typo").exists()
