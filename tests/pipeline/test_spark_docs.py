"""The page about Spark is right: its snippets run."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.docs.pages import DOCS, code_blocks

from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
