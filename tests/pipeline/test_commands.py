"""The commands of the pipeline where Spark is missing, and those that need none."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from tests.pipeline.feed import HANG_S, Feed, wait_until
from tests.pipeline.java import needs_java
from tests.unit.cli.test_command_tree import COMMANDS as EVERY
from typer.testing import CliRunner

from topics.cli.app import app
from topics.cli.demo import DEAD, GROUP, HOT, MAILS, ORDERS, SENSORS
from topics.testing.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
WITHOUT_PYSPARK = (
    "import sys; sys.modules['pyspark'] = None; from topics.cli.main import main; main()"
)
COMMANDS = [
    ["lake", "--once"],
    ["lake", "compact"],
    ["rollup", "--once"],
    ["sql", "-e", "SELECT 1"],
    ["audit"],
    ["bulk-load", "orders", "in.jsonl"],
    ["replay", "into", "--topic", "orders", "--name", "fix"],
    ["run"],
    ["audit", "--path", "/nowhere"],
    ["bulk-load", "x", "/nowhere"],
    ["replay", "x", "--name", "n", "--topic", "y"],
]
NEED_NO_SPARK = {"plan", "compact-cold"}
"""One only reads a file, the other asks the server to do it."""


def environment(**changes: str) -> dict[str, str]:
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOPICS_") and name != "JAVA_HOME"
    }
    return ours | {"PYTHONPATH": f"{ROOT / 'src'}", "PYTHONUNBUFFERED": "1"} | changes


def run(
    *arguments: str, code: str | None = None, **changes: str
) -> "subprocess.CompletedProcess[str]":
    start = ["-m", "topics"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *start, *arguments],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_no_command_of_the_pipeline_is_left_out() -> None:
    ours = {name.removeprefix("pipeline ") for name in EVERY if name.startswith("pipeline ")}
    told = {" ".join(words[:2]) for words in COMMANDS} | {words[0] for words in COMMANDS}
    assert ours - told == NEED_NO_SPARK


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_java_a_command_says_so_in_one_line(command: list[str], tmp_path: Path) -> None:
    done = run("pipeline", *command, PATH=str(tmp_path), TOPICS_LAKE=str(tmp_path / "lake"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "Spark needs Java 17" in line
    assert not (tmp_path / "lake").exists()


def test_a_home_of_java_without_java_is_named(tmp_path: Path) -> None:
    done = run("pipeline", "audit", JAVA_HOME=str(tmp_path / "jre"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"there is no `{tmp_path}/jre/bin/java`" in line


def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    done = run("pipeline", "audit", JAVA_HOME=str(tmp_path))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f'{java} is openjdk version "11.0.2"' in line


@needs_java
def test_a_python_that_workers_lack_is_named() -> None:
    done = run("pipeline", "sql", "-e", "SELECT 1", PYSPARK_PYTHON="/nowhere/python")
    assert done.returncode == 2
    # Other processes of Spark may end after it, and say so behind it.
    (line,) = [one for one in done.stderr.splitlines() if "cannot run topics" in one]
    assert "a Spark worker cannot run topics" in line
    assert 'Cannot run program "/nowhere/python"' in line


def test_compaction_of_cold_segments_needs_neither_java_nor_pyspark(feed: Feed) -> None:
    flags = ["--url", feed.url, "--dry-run", "--json"]
    done = run("pipeline", "compact-cold", *flags, code=WITHOUT_PYSPARK, PATH="")
    assert json.loads(done.stdout)["state"] == "done", done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_pyspark_a_command_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    done = run("pipeline", *command, code=WITHOUT_PYSPARK, TOPICS_LAKE=lake)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install topics-log[spark]" in done.stderr


def test_a_plan_needs_neither_java_nor_pyspark(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('lake = "/srv/lake"\n[jobs.lake]\nkind = "lake"\n')
    done = run("pipeline", "plan", str(file), "--json", code=WITHOUT_PYSPARK, PATH=str(tmp_path))
    job = json.loads(done.stdout)
    assert (job["kind"], job["writes"][0]) == ("lake", "/srv/lake: _raw, _gaps")
    assert run("pipeline", "plan", str(file)).stdout == done.stdout, "a pipe gets JSON"


def test_a_plan_that_is_wrong_is_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('lakes = "/srv/lake"\n')
    done = run("pipeline", "plan", str(file))
    assert done.returncode == 2
    assert "did you mean `lake`?" in done.stderr


def test_a_dry_run_of_the_lake_counts_what_it_would_read(feed: Feed, tmp_path: Path) -> None:
    feed.number(7)
    flags = ["--url", feed.url, "--topics", feed.topic, "--lake", str(tmp_path / "lake")]
    result = CliRunner().invoke(app, ["pipeline", "lake", *flags, "--dry-run", "--json"])
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["dry_run"]) == (7, True)
    assert summary["detail"] == {feed.topic: 7}
    assert not (tmp_path / "lake").exists()


def lines_until(said: IO[str], text: str) -> list[str]:
    found: list[str] = []
    for line in said:
        found.append(line)
        if text in line:
            return found
    raise AssertionError(f"it never said {text!r}: {found}")


@pytest.fixture
def up(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    path = os.environ["PATH"] if getattr(request, "param", None) == "with java" else str(tmp_path)
    flags = ["--port", "0", "--data-dir", str(tmp_path / "data")]
    process = subprocess.Popen(
        [sys.executable, "-m", "topics", "up", *flags],
        env=environment(PATH=path, TOPICS_LAKE=str(tmp_path / "lake")),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_up_without_java_says_so_in_a_line_and_serves(up: "subprocess.Popen[str]") -> None:
    assert up.stdout is not None
    said = lines_until(up.stdout, "no pipeline")
    assert "Spark needs Java" in said[-1]
    url = said[0].split()[-1]
    with Feed(url, "orders") as feed:
        feed.number(3)
        assert len(feed.records()) == 3
    up.send_signal(signal.SIGINT)
    assert up.wait(20) == 0
    assert "stopped cleanly" in up.stdout.read()


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


@needs_java
@pytest.mark.crash
@pytest.mark.parametrize("up", ["with java"], indirect=True)
def test_the_pipeline_dies_with_a_server_that_is_killed(up: "subprocess.Popen[str]") -> None:
    assert up.stdout is not None
    lines_until(up.stdout, "Spark takes some seconds")
    wait_until(lambda: bool(children_of(up.pid)), "a pipeline")
    (pipeline,) = children_of(up.pid)
    up.kill()
    wait_until(lambda: not Path(f"/proc/{pipeline}/cmdline").exists(), "an end", deadline_s=HANG_S)


def test_the_demo_feeds_all_kinds_of_topics(server: ServerProcess) -> None:
    flags = ["--url", server.url, "--seconds", "3", "--rate", "200"]
    result = CliRunner().invoke(app, ["demo", *flags])
    assert result.exit_code == 0, result.output
    with Feed(server.url, SENSORS) as feed:
        sensors = feed.records()
        hot = feed.records(HOT)
        state = feed.call("GET", f"/v0/topics/{ORDERS}")
        queue = feed.call("GET", f"/v0/topics/{MAILS}")
        group = feed.call("GET", f"/v0/groups/{GROUP}")
        feed.call("GET", f"/v0/topics/{DEAD}")
    assert len(sensors) > 50
    assert {record["data"]["sensor"] for record in hot} == {5}
    assert len(hot) == sum(record["data"]["sensor"] == 5 for record in sensors)
    assert state["count"] > 50
    assert queue["config"]["type"] == "queue"
    assert queue["head_seq"] > queue["count"], "workers have done some of the mails"
    assert group["group"] == GROUP
    assert group["generation"] <= 6, "two members joined once, and left"
