"""`topics top` and `topics bench` against a real server."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest
from tests.client.cli.conftest import Run, on_terminal
from tests.client.faces import DEADLINE_S, fresh

from topics.cli import exit_codes
from topics.client import Topics
from topics.clock import SystemClock
from topics.testing.server_process import ServerProcess


def test_a_pipe_gets_one_line_a_thing(run: Run, api: Topics) -> None:
    topic, queue, group = fresh("top"), fresh("q"), fresh("g")
    api.append(topic, [{"data": 1}])
    api.create(queue, type="queue")
    api.append(queue, [{"data": 1}, {"data": 2}])
    api.commit(group, {topic: {0: 0}})
    outcome = run("top", "--interval", "0.1")
    assert outcome.code == exit_codes.OK
    server, *rows = outcome.lines
    assert server["kind"] == "server"
    assert isinstance(server["fsync_p99_ms"], float)
    assert {"kind": "queue", "queue": queue, "ready": 2, "in_flight": 0} in rows
    assert {"kind": "group", "group": group, "lag": 1} in rows
    assert topic in [row["topic"] for row in rows if row["kind"] == "topic"]


def test_once_prints_a_table_and_leaves(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    topic = fresh("top")
    api.append(topic, [{"data": 1}])
    environment["TOPICS_URL"] = server.url
    code, shown = on_terminal(environment, "top", "--once", "--interval", "0.1")
    assert code == exit_codes.OK
    assert "fsync p99" in shown
    assert topic in shown
    assert "\x1b[?1049h" not in shown, "no other screen"


@pytest.mark.parametrize("key", [b"q", b"xq", None])
def test_a_live_view_leaves_by_q_or_ctrl_c_and_clears_up(
    environment: dict[str, str], server: ServerProcess, api: Topics, key: bytes | None
) -> None:
    api.append(fresh("top"), [{"data": 1}])
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "topics", "top", "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TOPICS_URL": server.url, "TERM": "xterm-256color"},
    )
    try:
        shown = read_until(ours, lambda text: b"fsync p99" in text)
        if key is None:
            os.kill(child.pid, signal.SIGINT)
        else:
            os.write(ours, key)
        shown += read_until(ours, lambda text: b"\x1b[?1049l" in text)
        assert child.wait(DEADLINE_S) == exit_codes.OK
        assert termios.tcgetattr(theirs) == before, "the terminal is as it was"
    finally:
        child.kill()
        child.wait()
        os.close(ours)
        os.close(theirs)
    assert b"\x1b[?1049h" in shown


def read_until(terminal: int, done: Callable[[bytes], bool]) -> bytes:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + DEADLINE_S
    shown = b""
    while not done(shown):
        left_s = deadline_s - clock.monotonic_s()
        assert left_s > 0, shown
        if select.select([terminal], [], [], left_s)[0]:
            shown += os.read(terminal, 65_536)
    return shown


def test_a_bench_tells_three_phases_and_leaves_no_topic(run: Run, api: Topics) -> None:
    outcome = run("bench", "--seconds", "0.2", "--batch", "10", "--threads", "2")
    assert outcome.code == exit_codes.OK
    one, many, read = outcome.lines
    assert one["requests"] == one["records"]
    assert many["records"] == 10 * int(str(many["requests"]))
    assert int(str(read["records"])) > 0
    assert all(float(str(row["p50_ms"])) > 0 for row in outcome.lines)
    assert "class fsync" in outcome.err
    assert api.topics("bench-") == []


def test_a_bench_that_fails_leaves_no_topic_either(
    run: Run, api: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.cli.bench.WRITTEN_MAX", "a broken number")
    with pytest.raises(TypeError):
        run("bench", "--seconds", "0.1")
    assert api.topics("bench-") == []
