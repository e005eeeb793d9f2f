"""`examples/iot/lake.toml`: what sensors sent is in the lake, each reading once."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.program import ROOT, Program
from tests.pipeline.java import needs_java

from topics.testing.forked_server import ForkedServer

FILE = ROOT / "examples/iot/lake.toml"
README = ROOT / "examples/iot/README.md"
COUNT = "SELECT count(*) AS readings, max(size(value.celsius)) AS samples FROM lake_readings"
DEADLINE_S = 600.0


def run_pipeline(*arguments: str, url: str, stdin: str = "") -> str:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TOPICS_")}
    ours |= {"PYTHONPATH": str(ROOT / "src"), "TOPICS_URL": url, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-m", "topics", "pipeline", *arguments],
        env=ours,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_the_file_is_one_that_can_be_run(topics_server: ForkedServer) -> None:
    planned = run_pipeline("plan", str(FILE), "--json", url=topics_server.url)
    job = json.loads(planned)
    assert job["kind"] == "lake"
    assert job["reads"].startswith("readings,summaries of ")


@pytest.mark.slow
@needs_java
def test_every_reading_is_in_the_lake_once(topics_server: ForkedServer, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install topics-log[spark]")
    url, lake = topics_server.url, tmp_path / "lake"
    with Program("iot/ingest.py", "--sensors", "10", "--seconds", "0.5", url=url) as ingest:
        sent = int(ingest.expect(r"sent (\d+) records")[1])
    with Program("iot/aggregate.py", "--once", url=url) as aggregate:
        aggregate.expect(rf"summed up {sent} records")
    file = tmp_path / "lake.toml"
    file.write_text(FILE.read_text().replace("/tmp/iot-lake", str(lake)))
    run_pipeline("run", str(file), "--master", "local[2]", url=url)
    shown = re.search(r"sql --lake \S+ -e '(.+)'$", README.read_text(), re.MULTILINE)
    assert shown is not None
    options = ["--lake", str(lake), "--format", "json", "--master", "local[2]"]
    found = run_pipeline("sql", *options, url=url, stdin=f"{COUNT};\n{shown[1]};\n").splitlines()
    counted, hottest, *others = map(json.loads, found)
    assert counted == {"readings": sent, "samples": 10}
    assert hottest["tag"] == "sensor-7"
    assert len(others) == 2
