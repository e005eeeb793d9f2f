"""Replays: in order, exactly once, no faster than allowed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.feed import Feed

from topics.errors import OptionError
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.jobs.replay import ReplayOptions, replay
from topics.pipeline.pace import Pace
from topics.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_replay(spark: "SparkSession", feed: Feed, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any option
    options = ReplayOptions(
        **{"url": feed.url, "into": f"{feed.topic}.copy", "name": "again", **given}
    )
    with JobRun("replay") as run:
        replay(spark, options, run)
    return run.summary().detail


def shown(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("$seq", "$ts", "$node")} for r in records]


def test_a_range_is_replayed_in_order_and_once_under_one_name(
    spark: "SparkSession", feed: Feed
) -> None:
    feed.number(350)
    first = run_replay(spark, feed, topic=feed.topic, first_seq=51, last_seq=300)
    assert (first["records"], first["head_moved"]) == (250, 250)
    again = run_replay(spark, feed, topic=feed.topic, first_seq=51, last_seq=300)
    assert again["head_moved"] == 0
    assert shown(feed.records(f"{feed.topic}.copy")) == shown(feed.records()[50:300])


def test_rows_of_a_table_come_back_at_the_rate_that_was_asked_for(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(120)
    frame = spark.read.format("topics").options(url=feed.url, topic=feed.topic).load()
    frame.repartition(3).write.parquet(str(tmp_path / "lake"))
    run_replay(spark, feed, lake=str(tmp_path / "lake"), where="seq % 2 = 0", records_per_second=40)
    found = feed.records(f"{feed.topic}.copy")
    assert [record["data"]["n"] for record in found] == list(range(1, 120, 2))
    # The first 40 at once, the next 20 a second later.
    assert found[-1]["$ts"] - found[0]["$ts"] >= 900


def test_dead_letters_are_replayed_as_the_jobs_they_were(spark: "SparkSession", feed: Feed) -> None:
    queue = f"{feed.topic}.jobs"
    path = f"/v0/topics/{queue}"
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": feed.topic}
    feed.call("PUT", path, json=config)
    feed.call("POST", path, json={"records": [{"data": 1, "meta": {"a": 1}}]})
    feed.call("POST", f"{path}/claim", json={"node": "w"})
    feed.call("POST", f"{path}/nack", json={"node": "w", "seqs": [1]})
    feed.call("POST", f"{path}/claim", json={"node": "w"})
    with pytest.raises(Exception, match=r"'\$dead_letter_from'.*--drop-dead-letter-meta"):
        run_replay(spark, feed, topic=feed.topic)
    run_replay(spark, feed, topic=feed.topic, drop_dead_letter_meta=True)
    assert shown(feed.records(f"{feed.topic}.copy")) == [{"data": 1, "meta": {"a": 1}}]


def test_a_pace_waits_for_what_is_new_alone() -> None:
    clock = ManualClock()
    pace = Pace(100, clock=clock)
    began = clock.monotonic_s()
    pace.wait(50)
    assert clock.monotonic_s() - began == pytest.approx(0.5)
    pace.wait(0)
    assert clock.monotonic_s() - began == pytest.approx(0.5)
    Pace(None, clock=clock).wait(1_000_000)
    assert clock.monotonic_s() - began == pytest.approx(0.5)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"topic": "a", "lake": "/b"},
        {"topic": "t.copy", "into": "t.copy"},
        {"topic": "a", "first_seq": 5, "last_seq": 4},
        {"lake": "b"},
        {"topic": "a", "into": "no/name"},
        {"topic": "a", "name": "a/b"},
    ],
)
def test_what_cannot_be_replayed_is_refused(given: dict[str, Any]) -> None:
    options = ReplayOptions(**{"url": "http://x", "into": "c", "name": "n", **given})
    with JobRun("replay") as run, pytest.raises(OptionError):
        replay(None, options, run)  # type: ignore[arg-type] # refused before Spark is asked
