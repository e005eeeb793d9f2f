"""`examples/iot/lake.toml` is a file to run; it is run in `tests/pipeline/test_spark_pages.py`."""

import json
import os
import subprocess
import sys

from tests.examples.program import DEADLINE_S, ROOT

from topics.testing.forked_server import ForkedServer


def test_the_file_is_one_that_can_be_run(topics_server: ForkedServer) -> None:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TOPICS_")}
    ours |= {"PYTHONPATH": str(ROOT / "src"), "TOPICS_URL": topics_server.url}
    command = ["plan", str(ROOT / "examples/iot/lake.toml"), "--json"]
    planned = subprocess.run(
        [sys.executable, "-m", "topics", "pipeline", *command],
        env=ours,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    job = json.loads(planned.stdout)
    assert job["kind"] == "lake"
    assert job["reads"].startswith("readings,summaries of ")
