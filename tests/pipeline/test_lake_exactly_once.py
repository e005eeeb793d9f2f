"""The lake across crashes of its driver: every record once, whatever was half done."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.feed import Feed
from tests.pipeline.lakes import Lake

from topics.errors import PipelineError
from topics.pipeline.lake.entry import Change, LakeState
from topics.pipeline.lake.log import LakeLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash


@pytest.fixture
def lake(spark: "SparkSession", feed: Feed, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "lake", feed)


class Crash(Exception):
    """The driver ends here."""


def crash_before(_commit: Callable[..., LakeState], *_: object) -> LakeState:
    raise Crash


def crash_after(commit: Callable[..., LakeState], *arguments: object) -> LakeState:
    commit(*arguments)
    raise Crash


@pytest.mark.parametrize("crash", [crash_before, crash_after])
def test_a_driver_that_ends_around_a_commit_writes_the_batch_once(
    lake: Lake, feed: Feed, monkeypatch: pytest.MonkeyPatch, crash: Callable[..., LakeState]
) -> None:
    feed.number(60)
    commit = LakeLog.commit

    def sometimes(log: LakeLog, change: Change) -> LakeState:
        if change.batch == 1:
            return crash(commit, log, change)
        return commit(log, change)

    with monkeypatch.context() as patch:
        patch.setattr(LakeLog, "commit", sometimes)
        with pytest.raises(PipelineError):
            lake.run(max_records=30)
    committed = 30 if crash is crash_before else 60
    assert len(lake.seqs()) == len(lake.seqs(feed.topic)) == committed
    feed.number(10, start=60)
    lake.run(max_records=30)
    assert lake.seqs() == lake.seqs(feed.topic) == list(range(1, 71))


def test_executors_that_lack_the_lake_are_refused_before_a_batch_counts(
    lake: Lake, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.number(60)
    with monkeypatch.context() as patch:
        patch.setattr("topics.pipeline.lake.query.LOG_DIR", "elsewhere")  # as if on another machine
        with pytest.raises(PipelineError, match=r"/elsewhere is not there on .* executors share"):
            lake.run()
    assert lake.run().rows == 60
    assert lake.seqs() == list(range(1, 61))
