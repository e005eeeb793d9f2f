"""The page about Spark is right: its snippets run."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.feed import Feed
from tests.pipeline.lakes import Lake
from tests.unit.docs.pages import DOCS, code_blocks

from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_chart_of_the_tutorial_is_drawn_from_the_files_of_a_lake(
    spark: "SparkSession",
    server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = tmp_path / "lake"
    with Feed(server.url, "demo.sensors") as feed:
        feed.append([{"data": {"sensor": n % 2, "celsius": 20.0 + n % 2}} for n in range(10)])
        Lake(spark, lake, feed).run()
    for block in code_blocks(DOCS / "start" / "lake.md", "py"):
        exec(block.replace("/srv/topics-lake", str(lake)), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"sensor 0 {'█' * 20} 20.0", f"sensor 1 {'█' * 21} 21.0"]


def test_the_snippets_of_the_page_run(
    spark: "SparkSession",
    server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, object] = {}
    for block in code_blocks(DOCS / "reference" / "spark.md", "py"):
        here = block.replace("http://127.0.0.1:4000", server.url)
        exec(here.replace("./checkpoint", str(tmp_path / "checkpoint")), names)
    assert names["spark"] is spark
    assert "|  2|" in capsys.readouterr().out
