"""Compaction: fewer files, the same rows, and no reader that notices."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.feed import Feed
from tests.pipeline.lakes import Lake

from topics.pipeline.jobs.job import JobRun, JobSummary
from topics.pipeline.lake.compact import CompactOptions, run_compact
from topics.pipeline.lake.entry import Change
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.tables import read_table, table_files
from topics.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


@pytest.fixture
def lake(spark: "SparkSession", feed: Feed, tmp_path: Path) -> Lake:
    made = Lake(spark, tmp_path / "lake", feed)
    feed.number(90)
    made.run(max_records=30)
    return made


def compact(lake: Lake, clock: ManualClock, *, dry_run: bool = False) -> JobSummary:
    with JobRun("compact", dry_run=dry_run) as run:
        run_compact(lake.spark, lake.root, CompactOptions(grace_ms=HOUR_MS), run, clock=clock)
    return run.summary()


def parquet_files(lake: Lake) -> int:
    tables = ("raw", "typed")
    return sum(len(list(Path(lake.root, table).rglob("*.parquet"))) for table in tables)


def test_a_reader_in_the_middle_of_a_scan_does_not_notice(lake: Lake, feed: Feed) -> None:
    clock = ManualClock()
    assert len(table_files(lake.root, "_raw")) >= 3
    rows = read_table(lake.spark, lake.root, "_raw").toLocalIterator(prefetchPartitions=False)
    seen = [next(rows).seq]
    planned = read_table(lake.spark, lake.root, feed.topic)

    summary = compact(lake, clock)

    seen += [row.seq for row in rows]
    assert sorted(seen) == list(range(1, 91))
    assert planned.count() == 90
    assert summary.detail["files_after"] == 2
    assert len(table_files(lake.root, "_raw")) == len(table_files(lake.root, feed.topic)) == 1
    assert lake.seqs() == lake.seqs(feed.topic) == list(range(1, 91))

    # The files that were replaced go when nobody can be reading them any more, and not before.
    before = parquet_files(lake)
    assert compact(lake, clock).detail["files_deleted"] == 0
    clock.advance_ms(HOUR_MS)
    assert compact(lake, clock).detail["files_deleted"] == before - 2
    assert parquet_files(lake) == 2
    assert lake.seqs() == list(range(1, 91))

    # The stream goes on as if nothing had happened.
    feed.number(10, start=90)
    lake.run()
    assert lake.seqs() == lake.seqs(feed.topic) == list(range(1, 101))


def test_leftovers_of_a_try_that_failed_go_and_files_to_come_stay(lake: Lake) -> None:
    known = LakeLog(lake.root).load().queries["lake"]
    folder = Path(table_files(lake.root, "_raw")[0]).parent
    over = folder / f"lake-{known.id[:8]}-{known.batch:08}-00099.parquet"
    coming = folder / f"lake-{known.id[:8]}-{known.batch + 1:08}-00000.parquet"
    cut = folder / "compact-000000000000-00000.parquet"
    for path in (over, coming, cut):
        path.write_bytes(b"")
    compact(lake, ManualClock())
    assert [path.exists() for path in (over, coming, cut)] == [False, True, False]


def test_a_dry_run_counts_and_changes_nothing(lake: Lake) -> None:
    before = LakeLog(lake.root).load()
    summary = compact(lake, ManualClock(), dry_run=True)
    assert summary.rows == 180
    assert summary.detail["files_before"] >= 6
    assert LakeLog(lake.root).load() == before


def test_a_commit_of_the_stream_in_between_is_kept(lake: Lake, feed: Feed) -> None:
    log = LakeLog(lake.root)
    old = log.load()
    feed.number(5, start=90)
    lake.run()
    # What compaction of the older state would commit now:
    first = old.files_of("_raw")[0]
    log.commit(Change(remove=(first.path,), add=(first,)))
    assert lake.seqs() == list(range(1, 96))
