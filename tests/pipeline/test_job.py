"""The frame of all jobs: its records, its summary, its last word."""

import json

import pytest
from tests.pipeline.feed import Feed

from topics.pipeline.jobs.job import PIPELINE_TOPIC, JobRun, Progress, format_metrics
from topics.pipeline.jobs.tell import TopicListener
from topics.testing.manual_clock import ManualClock
from topics.testing.server_process import ServerProcess


def test_a_run_tells_its_start_its_batches_and_its_end() -> None:
    told: list[Progress] = []
    clock = ManualClock(now_ms=5_000)
    with JobRun("lake", listeners=[told.append], table="t", clock=clock) as run:
        clock.advance_ms(2_000)
        run.step(rows=10, batch=0, lag=7, tables={"orders": 10})
    assert [progress.tables for progress in told] == [{}, {"orders": 10}, {}]
    assert [progress.state for progress in told] == ["started", "running", "done"]
    assert (told[1].batch, told[1].rows, told[1].rows_per_s, told[1].lag) == (0, 10, 5.0, 7)
    assert (told[1].table, told[1].ts) == ("t", 7_000)
    assert {progress.run for progress in told} == {run.run}
    assert run.summary().batches == 1


def test_a_run_that_fails_says_so_last_and_the_error_goes_on() -> None:
    told: list[Progress] = []
    run = JobRun("lake", listeners=[told.append])
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError
    assert told[-1].state == "failed"
    assert 'topics_pipeline_failed{job="lake"} 1' in format_metrics(run.summary())


def test_a_run_that_is_interrupted_is_done() -> None:
    run = JobRun("lake")
    with pytest.raises(KeyboardInterrupt), run:
        raise KeyboardInterrupt
    assert run.summary().state == "done"


def test_a_dry_run_tells_nobody() -> None:
    told: list[Progress] = []
    with JobRun("lake", listeners=[told.append], dry_run=True) as run:
        run.step(rows=1)
    assert told == []
    assert run.summary().rows == 1


def test_progress_is_a_record_of_the_pipeline_topic(server: ServerProcess) -> None:
    listener = TopicListener(server.url)
    with JobRun("rollup", listeners=[listener]) as run:
        run.step(rows=3, batch=4, table="t")
    listener.close()
    with Feed(server.url, PIPELINE_TOPIC) as feed:
        records = [r for r in feed.records() if r["data"]["run"] == run.run]
    assert [record["data"]["state"] for record in records] == ["started", "running", "done"]
    expected = {
        "job",
        "run",
        "state",
        "batch",
        "rows",
        "rows_per_s",
        "lag",
        "table",
        "tables",
        "ts",
    }
    assert set(records[1]["data"]) == expected, json.dumps(records[1])
    assert records[1]["$tag"] == "rollup"


def test_a_server_that_is_away_does_not_stop_a_job(caplog: pytest.LogCaptureFixture) -> None:
    listener = TopicListener("http://127.0.0.1:9", patience_s=0.0)
    with JobRun("lake", listeners=[listener]) as run:
        run.step(rows=1)
    listener.close()
    assert run.summary().state == "done"
    assert "progress is not written" in caplog.text
