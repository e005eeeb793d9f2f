"""A file of jobs over a lake that is not there yet: no job finds it missing."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topics.errors import OptionError
from topics.pipeline import run_file
from topics.pipeline.file import PipelineFile, default_pipeline, parse_pipeline
from topics.pipeline.lake.compact import run_compact

NO_SPARK: Any = None
DEADLINE_S = 30.0


def run(pipeline: PipelineFile, *, until: threading.Event) -> list[str]:
    summaries = run_file.run_pipeline(NO_SPARK, pipeline, token=None, stopped=until.is_set)
    return [summary.state for summary in summaries]


def test_a_compaction_that_starts_before_the_lake_does_finds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted = threading.Event()
    real: Callable[..., None] = run_compact

    def compact_first(*given: object) -> None:
        try:
            real(*given)
        finally:
            compacted.set()

    def lake_last(*_given: object, **_named: object) -> None:
        assert compacted.wait(DEADLINE_S)

    monkeypatch.setattr(run_file, "run_compact", compact_first)
    monkeypatch.setattr(run_file, "run_lake", lake_last)
    monkeypatch.setattr(run_file, "run_rollup", lake_last)
    pipeline = default_pipeline(lake=str(tmp_path / "lake"), url="http://127.0.0.1:1")
    assert run(pipeline, until=compacted) == ["done"] * len(pipeline.jobs)


def test_a_compaction_alone_makes_no_lake(tmp_path: Path) -> None:
    text = f'lake = "{tmp_path / "lake"}"\n[jobs.tidy]\nkind = "compact"\n'
    with pytest.raises(OptionError, match="there is no lake"):
        run(parse_pipeline(text, name="file"), until=threading.Event())
    assert not (tmp_path / "lake").exists()
