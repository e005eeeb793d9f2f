"""Commands that cannot go on: one line says why and what to do, never a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.cli.conftest import Outcome, on_terminal, piped
from tests.client.faces import DEADLINE_S, fresh

from topics.cli import exit_codes
from topics.client import Topics
from topics.testing.server_process import ServerProcess

KEYS = "boss,reader:r"
MANY = 20_000
"""Records that fit in no pipe."""


@pytest.fixture
def home(environment: dict[str, str], server: ServerProcess) -> dict[str, str]:
    return {**environment, "TOPICS_URL": server.url, "TOPICS_TOKEN": "boss"}


@pytest.fixture(scope="module")
def long_topic(server: ServerProcess) -> str:
    with Topics(server.url, token="boss") as client:
        client.append("long", [{"data": n} for n in range(MANY // 2)])
        client.append("long", [{"data": n} for n in range(MANY // 2)])
    return "long"


def start(
    home: dict[str, str],
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-W", "ignore", "-m", "topics", *arguments]
    return subprocess.Popen(command, env=home, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)


def assert_told(outcome: Outcome, code: int, *words: str) -> None:
    assert (outcome.code, outcome.out) == (code, "")
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert outcome.err.startswith("topics: ")
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize(
    "words",
    [
        "tail long --from-seq 0",
        "export long",
        "export long --format parquet",
        "topic peek long -n 9999",
    ],
)
def test_a_reader_that_goes_away_ends_the_command_in_silence(
    words: str, home: dict[str, str], long_topic: str
) -> None:
    assert long_topic in words
    with start(home, *words.split()) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.read(4)
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(DEADLINE_S) == exit_codes.ERROR


@pytest.mark.parametrize(
    "words", ["version", "topic ls", "export long", "tail long --from-seq 0", "topic ls --help"]
)
def test_an_output_without_room_is_told(words: str, home: dict[str, str], long_topic: str) -> None:
    assert long_topic
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with start(home, *words.split(), stdout=full) as child:
            assert child.stderr is not None
            said = child.stderr.read().decode()
            code = child.wait(DEADLINE_S)
    finally:
        os.close(full)
    assert said == "topics: the output cannot be used: No space left on device\n"
    assert code == exit_codes.ERROR


def test_a_line_that_is_not_text_is_named(home: dict[str, str]) -> None:
    for flags in ([], ["--text"], ["--records"]):
        with start(home, "put", fresh("bad"), *flags, stdin=subprocess.PIPE) as child:
            _, said = child.communicate(b'\n{"data":1}\n\xff\xfe\n', timeout=DEADLINE_S)
        assert said == b"topics: line 3 of stdin is not UTF-8\n"
        assert child.returncode == exit_codes.ERROR


def test_a_record_of_the_wrong_shape_is_named(home: dict[str, str]) -> None:
    lines = '{"data":1}\n{"data":1,"tag":5}\n'
    outcome = piped(home, "put", fresh("bad"), "--records", stdin=lines)
    assert_told(outcome, exit_codes.ERROR, "line 2 of stdin is no record")
    outcome = piped(home, "put", fresh("bad"), "1", "{")
    assert_told(outcome, exit_codes.ERROR, "argument 2 is not JSON", "--text")


def test_who_has_no_key_is_told_where_one_goes(home: dict[str, str]) -> None:
    del home["TOPICS_TOKEN"]
    assert_told(piped(home, "topic", "ls"), exit_codes.ERROR, "set TOPICS_TOKEN")
    home["TOPICS_TOKEN"] = "hunter2"
    outcome = piped(home, "topic", "ls")
    assert_told(outcome, exit_codes.ERROR, "not known here", "set TOPICS_TOKEN")
    assert "hunter2" not in outcome.err
    home["TOPICS_TOKEN"] = "reader"
    assert_told(piped(home, "put", "x", "1"), exit_codes.ERROR, "lacks the scope write")


def test_who_reaches_no_server_is_told_how_to_get_one(home: dict[str, str]) -> None:
    home["TOPICS_URL"] = "http://127.0.0.1:9"
    outcome = piped(home, "topic", "ls")
    assert_told(outcome, exit_codes.LATER, "http://127.0.0.1:9", "topics serve", "--url")


def test_who_names_no_topic_is_told_where_names_are(home: dict[str, str]) -> None:
    assert_told(piped(home, "topic", "show", "nobody"), exit_codes.NOT_THERE, "topics topic ls")


def test_ctrl_c_has_a_code_and_no_traceback(home: dict[str, str]) -> None:
    with start(home, "bench", "--seconds", "30") as child:
        assert child.stderr is not None
        child.stderr.readline()  # it has begun
        os.kill(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=DEADLINE_S)
    assert (child.returncode, said) == (exit_codes.INTERRUPTED, b"")
    with Topics(home["TOPICS_URL"], token="boss") as client:
        assert client.topics("bench-") == []


def test_an_export_into_a_pipe_or_by_a_link_leaves_them_what_they_are(
    home: dict[str, str], long_topic: str, tmp_path: Path
) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    with start(home, "export", long_topic, "-o", str(pipe)) as child:
        read = subprocess.run(["cat", pipe], capture_output=True, check=True, timeout=DEADLINE_S)
        assert len(read.stdout.splitlines()) == MANY
        assert child.wait(DEADLINE_S) == exit_codes.OK
    assert pipe.is_fifo()
    assert piped(home, "export", long_topic, "-o", str(link)).code == exit_codes.OK
    assert link.is_symlink()
    assert len(file.read_bytes().splitlines()) == MANY
    assert sorted(tmp_path.iterdir()) == [file, link, pipe]


def test_a_file_without_room_is_an_error_and_no_wrong_usage(
    home: dict[str, str], long_topic: str, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.symlink_to("/dev/full")  # not by its name: a wrong export would put a file in its place
    outcome = piped(home, "export", long_topic, "-o", str(full))
    assert_told(outcome, exit_codes.ERROR, "full cannot be written: No space left")


def test_an_error_on_a_terminal_is_a_line_too(home: dict[str, str]) -> None:
    code, shown = on_terminal(home, "topic", "show", "nobody")
    assert code == exit_codes.NOT_THERE
    assert shown.count("\n") == 1
