"""The tutorial and the example that end in a lake, followed from top to bottom."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.pipeline.java import needs_java
from tests.unit.docs.pages import DOCS, ROOT
from tests.unit.docs.shell import Terminal
from tests.unit.docs.walk import SPARK_PAGES, follow

from topics.client import Topics
from topics.pipeline.lake import list_tables, table_files

pytestmark = [pytest.mark.spark, needs_java]
LAKE_PAGE, IOT_PAGE = DOCS / "start/lake.md", ROOT / "examples/iot/README.md"
DEADLINE_S = 600.0  # a block may start Spark more than once
PATIENCE = """
until python - <<'EOF'
from topics.pipeline.lake import list_tables
exit(not {"orders", "demo.sensors"} <= set(list_tables("topics-lake")))
EOF
do sleep 1; done 2>tables.log"""
"""A table is there after the first batch, some seconds after Spark has started."""


def test_both_are_all_there_is() -> None:
    assert sorted([LAKE_PAGE, IOT_PAGE]) == sorted(SPARK_PAGES)


def test_the_tutorial_of_the_lake_can_be_followed_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Terminal(tmp_path, with_lake=True, deadline_s=DEADLINE_S) as terminal:
        follow(LAKE_PAGE, terminal, capsys, before={"topics pipeline sql -e": PATIENCE})


def test_the_lake_of_the_example_has_every_reading_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Terminal(tmp_path, deadline_s=DEADLINE_S) as terminal:
        follow(IOT_PAGE, terminal, capsys)
        with Topics(f"http://127.0.0.1:{terminal.port}") as client:
            sent = client.state("readings").count
    lake = str(tmp_path / "iot-lake")
    assert {"readings", "summaries"} <= set(list_tables(lake))
    files = [pq.read_table(file, partitioning=None) for file in table_files(lake, "readings")]
    assert sum(file.num_rows for file in files) == sent > 0
