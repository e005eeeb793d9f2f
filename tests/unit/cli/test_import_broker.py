"""`topics import-broker` as an operator runs it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import topics
from topics.cli import exit_codes

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "orders-0.log").write_bytes(b"0:created\n1:paid\n")
    (folder / "orders-1.log").write_bytes(b"0:sent\n")
    (folder / "offsets.json").write_bytes(b'{"billing":{"orders":{"0":1}}}')
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_all_is_taken_over_and_ends_with_0(run: "Run", old: Path, data: Path) -> None:
    outcome = run("import-broker", str(old), "--data-dir", str(data))
    assert (outcome.code, outcome.err) == (exit_codes.OK, "")
    assert outcome.out.splitlines() == [
        "orders-0.log: 2 records imported, 0 were there",
        "orders-1.log: 1 record imported, 0 were there",
        "group billing: orders 0 at 1 (set)",
        "3 records imported from 2 files, 1 offset of groups",
        "all of it is here",
    ]
    with topics.open(str(data)) as log:
        assert [record.data for record in log.diff("orders-0").records] == ["created", "paid"]
    again = run("import-broker", str(old), "--data-dir", str(data))
    assert again.code == exit_codes.OK
    assert again.out.splitlines()[0] == "orders-0.log: 0 records imported, 2 were there"
    assert again.out.splitlines()[2] == "group billing: orders 0 at 1 (kept)"


def test_what_cannot_be_read_is_told_on_stderr_and_ends_with_1(
    run: "Run", old: Path, data: Path
) -> None:
    (old / "orders-1.log").write_bytes(b"0:sent\nrubbish\n")
    outcome = run("import-broker", str(old), "--data-dir", str(data))
    assert outcome.code == exit_codes.ERROR
    assert outcome.err == "orders-1.log:2: is not <offset>:<value>\n"
    assert outcome.out.splitlines()[1] == (
        "orders-1.log: 1 record imported, 0 were there, 1 problem"
    )
    assert outcome.out.splitlines()[-1] == "1 problem, told on stderr"


def test_json_is_one_document(run: "Run", old: Path, data: Path) -> None:
    (old / "orders-1.log").write_bytes(b"rubbish\n")
    outcome = run("import-broker", str(old), "--data-dir", str(data), "--json")
    report = json.loads(outcome.out)
    assert outcome.code == exit_codes.ERROR
    assert report["dry_run"] is False
    assert report["files"][0] == {
        "file": "orders-0.log",
        "topic": "orders",
        "partition": 0,
        "imported": 2,
        "already_there": 0,
        "problems": 0,
    }
    assert report["problem_count"] == 1
    assert report["problems"] == [
        {"file": "orders-1.log", "line": 1, "message": "is not <offset>:<value>"}
    ]
    assert report["offsets"][0]["outcome"] == "set"


def test_a_dry_run_makes_no_directory(run: "Run", old: Path, data: Path) -> None:
    outcome = run("import-broker", str(old), "--data-dir", str(data), "--dry-run")
    assert outcome.code == exit_codes.OK
    assert "2 records would be imported" in outcome.out
    assert outcome.out.splitlines()[-1] == "all of it was readable"
    assert not data.exists()


def test_a_directory_in_use_ends_with_4(run: "Run", old: Path, data: Path) -> None:
    with topics.open(str(data)):
        outcome = run("import-broker", str(old), "--data-dir", str(data))
    assert outcome.code == exit_codes.LOCKED
    assert "this process already has" in outcome.err


def test_a_wrong_directory_ends_with_2(run: "Run", tmp_path: Path, data: Path) -> None:
    missing = run("import-broker", str(tmp_path / "nothing"), "--data-dir", str(data))
    assert missing.code == exit_codes.USAGE
    itself = run("import-broker", str(tmp_path), "--data-dir", str(tmp_path))
    assert itself.code == exit_codes.USAGE
    assert "name the one of the old broker" in itself.err


def test_a_directory_without_old_files_says_so(run: "Run", tmp_path: Path, data: Path) -> None:
    (tmp_path / "empty").mkdir()
    outcome = run("import-broker", str(tmp_path / "empty"), "--data-dir", str(data))
    assert outcome.code == exit_codes.USAGE
    assert "<topic>-<n>.log" in outcome.err
    assert not data.exists()


def test_in_a_pipe_there_is_no_bar(old: Path, data: Path) -> None:
    command = [sys.executable, "-m", "topics", "import-broker", str(old), "--data-dir", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (exit_codes.OK, "")
    assert "\x1b" not in done.stdout


def test_on_a_terminal_a_bar_shows_on_stderr_and_a_name_cannot_steer_it(
    old: Path, data: Path
) -> None:
    (old / "\x1b[2J.log").write_bytes(b"0:x\n")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "topics", "import-broker", str(old), "--data-dir", str(data)]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=follower, env=environ, check=False
    )
    os.close(follower)
    shown = os.read(leader, 65_536).decode()
    os.close(leader)
    assert done.returncode == exit_codes.ERROR
    assert "importing" in shown
    assert "?[2J.log: is not named" in shown
    assert "\x1b[2J" not in shown
    assert done.stdout.decode().splitlines()[-1] == "1 problem, told on stderr"


def test_the_help_tells_the_exit_codes(run: "Run") -> None:
    text = run("import-broker", "--help").out
    assert "Exit code 0: all is here" in text
    assert "--dry-run" in text
    assert "--data-dir" in text
