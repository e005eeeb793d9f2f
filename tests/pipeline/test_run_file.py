"""A file of jobs: those that run once, those that run on, and those that fail."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.feed import Feed

from topics.errors import PipelineError
from topics.pipeline.file import parse_pipeline
from topics.pipeline.jobs.job import Progress
from topics.pipeline.lake.tables import list_tables, read_table
from topics.pipeline.run_file import run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FILE = """
lake = "{lake}"
url = "{url}"
[schemas]
number = "n INT"
[sources.one]
topics = ["{topic}"]
[tables.numbers]
topics = ["{topic}"]
schema = "number"
[jobs.lake]
kind = "lake"
source = "one"
trigger = "{trigger}"
infer = false
[jobs.tidy]
kind = "compact"
"""


def test_jobs_that_run_once_run_in_their_order(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(20)
    text = FILE.format(lake=tmp_path / "lake", url=feed.url, topic=feed.topic, trigger="once")
    told: list[Progress] = []
    summaries = run_pipeline(
        spark,
        parse_pipeline(text, name="file"),
        token=None,
        listeners=[told.append],
        stopped=lambda: False,
    )
    assert [(s.job, s.state) for s in summaries] == [("lake", "done"), ("tidy", "done")]
    assert summaries[0].rows == 20
    assert [one.job for one in told if one.state == "done"] == ["lake", "tidy"]
    assert list_tables(str(tmp_path / "lake")) == ["_gaps", "_raw", "numbers"]


def test_a_job_that_runs_on_takes_what_comes_until_it_is_stopped(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(5)
    text = FILE.format(lake=tmp_path / "lake", url=feed.url, topic=feed.topic, trigger="100ms")
    text = text.replace('[jobs.tidy]\nkind = "compact"', "")
    rows: list[int] = []

    def listen(progress: Progress) -> None:
        rows.append(progress.rows)
        if progress.rows == 5 and progress.state == "running":
            feed.number(5, start=5)  # while it runs

    (summary,) = run_pipeline(
        spark,
        parse_pipeline(text, name="file"),
        token=None,
        listeners=[listen],
        stopped=lambda: 10 in rows,
    )
    assert (summary.state, summary.rows) == ("done", 10)
    assert read_table(spark, str(tmp_path / "lake"), "numbers").count() == 10


def test_a_job_that_fails_ends_the_run_and_is_told(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(5)
    text = FILE.format(lake=tmp_path / "lake", url=feed.url, topic=feed.topic, trigger="100ms")
    text = text.replace('number = "n INT"', 'number = "this is no schema ("')
    text = text.replace('[jobs.tidy]\nkind = "compact"', "")
    told: list[Progress] = []
    with pytest.raises(PipelineError):
        run_pipeline(
            spark,
            parse_pipeline(text, name="file"),
            token=None,
            listeners=[told.append],
            stopped=lambda: False,
        )
    assert told[-1].state == "failed"
