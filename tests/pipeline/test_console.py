"""The console's page of the pipeline, with the records that real jobs write."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.chromium import Chromium, Page, find_chromium
from tests.pipeline.feed import Feed

from topics.pipeline.jobs.job import JobRun
from topics.pipeline.jobs.lake import run_lake
from topics.pipeline.jobs.rollup import run_rollup
from topics.pipeline.jobs.tell import TopicListener
from topics.pipeline.lake.query import QueryOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BINARY = find_chromium()
pytestmark = pytest.mark.skipif(
    BINARY is None, reason="no chromium on this machine: apt-get install chromium"
)
ROWS = "Object.fromEntries([...document.querySelectorAll('%s tbody tr')].map(row => %s))"
RUNS = ROWS % ("#runs", "[row.cells[0].textContent, [...row.cells].map(one => one.textContent)]")
TABLES = ROWS % ("#tables", "[row.cells[0].textContent, row.cells[1].textContent]")


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Page]:
    assert BINARY is not None
    with Chromium(BINARY, str(tmp_path / "profile")) as browser, browser.page() as page:
        page.record()
        page.resize(1280, 860)
        yield page


def test_runs_and_tables_of_real_jobs_are_seen(
    spark: "SparkSession", feed: Feed, tab: Page, tmp_path: Path
) -> None:
    feed.number(30)
    lake = str(tmp_path / "lake")
    options = QueryOptions(url=feed.url, topics=feed.topic, max_records=20)
    tell = TopicListener(feed.url)
    tab.open(f"{feed.url}/console/pipeline")
    for job, work in (("lake", run_lake), ("rollup", run_rollup)):
        with JobRun(job, listeners=[tell], table=lake) as run:
            work(spark, lake, options, run)
    tell.close()
    runs = tab.wait_for(f"{RUNS}.rollup?.[1] === 'done' && {RUNS}")
    job, state, _, last_batch, its_rows, rate, rows, lag, updated = runs["lake"]
    assert (job, state, last_batch, its_rows, rows, lag) == ("lake", "done", "1", "10", "30", "0")
    assert float(rate.replace(",", "")) > 0
    assert updated.endswith(("s ago", "min ago"))
    tables = tab.evaluate(TABLES)
    assert tables.pop("_rollup") == runs["rollup"][6]
    assert tables == {"_gaps": "0", "_raw": "30", feed.topic: "30"}
    assert tab.evaluate("!!document.querySelector('#rows canvas')")
    assert tab.complaints == []


def test_what_an_audit_has_found_stands_beside_its_state(feed: Feed, tab: Page) -> None:
    tell = TopicListener(feed.url)
    with JobRun("check", listeners=[tell]) as run:
        run.findings = 1_234
    with JobRun("check-again", listeners=[tell]) as run:
        run.findings = 0
    tell.close()
    tab.open(f"{feed.url}/console/pipeline")
    runs = tab.wait_for(f"{RUNS}['check-again']?.[1] === 'done' && {RUNS}")
    assert runs["check"][1] == "done 1,234 findings"
    assert tab.complaints == []
