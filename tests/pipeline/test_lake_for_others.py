"""A lake in Delta or Iceberg, written by Spark and read by readers that know nothing of us."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.feed import Feed
from tests.pipeline.lakes import Lake

from topics.errors import OptionError, PipelineError
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.jobs.rollup import run_rollup
from topics.pipeline.lake import write as writing
from topics.pipeline.lake.compact import CompactOptions, run_compact
from topics.pipeline.lake.entry import TableFormat
from topics.pipeline.lake.log import table_dir
from topics.pipeline.lake.publish import publish
from topics.pipeline.lake.query import QueryOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake", reason="pip install topics-log[delta]")
pytest.importorskip("pyiceberg", reason="pip install topics-log[iceberg]")
FORMATS = [TableFormat("delta"), TableFormat("iceberg")]
SETTINGS = {"TOPICS_SEGMENT_MAX_EVENTS": "10"}


@pytest.fixture
def lake(spark: "SparkSession", tmp_path: Path, feed: Feed) -> Lake:
    return Lake(spark, tmp_path / "lake", feed)


def read(lake: Lake, tables: TableFormat, table: str) -> list[dict[str, Any]]:
    """Read a table by its own package."""
    if tables.name == "delta":
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        found = DeltaTable(f"{lake.root}/{table_dir(table)}").to_pyarrow_table()
    else:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - an extra

        catalog = SqlCatalog("topics", uri=f"sqlite:///{lake.root}/_iceberg/catalog.db")
        found = catalog.load_table(("topics", table)).scan().to_arrow()
        catalog.close()
    rows: list[dict[str, Any]] = found.to_pylist()
    return sorted(rows, key=lambda row: row.get("seq") or 0)


def ours(lake: Lake, table: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in lake.rows(table)]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the zone that readers hang on a time: Spark shows it in its own."""
    return [
        {name: value.replace(tzinfo=None) if name == "ts" else value for name, value in row.items()}
        for row in rows
    ]


@pytest.mark.parametrize("tables", FORMATS, ids=lambda tables: tables.name)
def test_others_read_the_rows_that_the_lake_has(
    lake: Lake, feed: Feed, tables: TableFormat
) -> None:
    feed.create(cap_records=20)
    lake.run(tables=tables)
    assert read(lake, tables, "_raw") == read(lake, tables, "_gaps") == []
    feed.append([{"data": {"n": n, "who": {"a": 1}}, "tag": f"t{n}"} for n in range(3)])
    lake.run()
    feed.append([{"data": {"n": 1.5, "who": {"b": "x"}, "list": [1]}}, {"data": "text"}])
    lake.run()
    feed.number(60)
    lake.run()
    for table in ("_raw", "_gaps", feed.topic):
        found, expected = read(lake, tables, table), ours(lake, table)
        assert expected
        assert plain(found) == plain(expected), table
    assert lake.seqs(feed.topic) == lake.seqs("_raw")
    with pytest.raises(OptionError, match="chosen with its first run"):
        lake.run(tables=TableFormat("parquet"))


@pytest.mark.parametrize("tables", FORMATS, ids=lambda tables: tables.name)
def test_a_driver_that_ends_between_the_two_commits_leaves_nothing_out_and_nothing_twice(
    lake: Lake, feed: Feed, tables: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.number(5)
    with monkeypatch.context() as patch:
        calls: list[object] = []

        def end(*given: Any) -> None:  # noqa: ANN401 - as it was called
            calls.append(given)
            if len(calls) > 1:  # the first one makes the tables
                raise PipelineError("ended")
            publish(*given)

        patch.setattr(writing, "publish", end)
        with pytest.raises(PipelineError, match="ended"):
            lake.run(infer=False, tables=tables)
    assert read(lake, tables, "_raw") == []
    feed.number(5, start=5)
    lake.run(infer=False)
    assert [row["seq"] for row in read(lake, tables, "_raw")] == list(range(1, 11))
    with JobRun("compact") as run:
        run_compact(lake.spark, lake.root, CompactOptions(grace_ms=0), run)
    assert run.summary().detail["files_deleted"] >= 2
    assert [row["seq"] for row in read(lake, tables, "_raw")] == list(range(1, 11))


@pytest.mark.parametrize("tables", FORMATS, ids=lambda tables: tables.name)
def test_others_read_what_a_rollup_counted_also_after_a_compaction(
    lake: Lake, feed: Feed, tables: TableFormat
) -> None:
    options = QueryOptions(url=feed.url, topics=feed.topic)
    lake.run(infer=False, tables=tables)
    for batch in range(2):
        feed.append([{"data": n, "tag": f"t{n % 2}"} for n in range(4 + batch)])
        with JobRun("rollup") as run:
            run_rollup(lake.spark, lake.root, options, run, window_ms=86_400_000)
    counted = [(row["tag"], row["records"]) for row in read(lake, tables, "_rollup")]
    assert sorted(counted) == [("t0", 2), ("t0", 3), ("t1", 2), ("t1", 2)]
    assert sorted(counted) == sorted((row["tag"], row["records"]) for row in ours(lake, "_rollup"))
    with JobRun("compact") as run:
        run_compact(lake.spark, lake.root, CompactOptions(grace_ms=0), run)
    assert run.summary().detail["files_deleted"] >= 2
    again = [(row["tag"], row["records"]) for row in read(lake, tables, "_rollup")]
    assert sorted(again) == sorted(counted)
