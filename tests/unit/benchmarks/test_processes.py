"""Peers as child processes: what cannot be started is said, what was started is stopped."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.server import processes
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.processes import (
    cpu_seconds,
    free_port,
    go_program,
    listens,
    program,
    running,
)

LISTEN = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "while True: s.accept()"
)


def test_a_server_runs_inside_of_the_block_and_not_after(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", LISTEN, str(port)]
    with running("mine", command, port=port, folder=tmp_path) as peer:
        assert listens(port)
    assert not listens(port)
    assert not Path(f"/proc/{peer.pid}").exists()


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such flag')"]
    with (
        pytest.raises(CannotMeasure, match="mine did not start: no such flag"),
        running("mine", command, port=free_port(), folder=tmp_path),
    ):
        pytest.fail("it did not start")


def test_a_missing_program_is_named_when_we_may_not_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(processes, "PROGRAM_PATH", "")
    with pytest.raises(CannotMeasure, match="redis-server is not installed"):
        program("redis-server")


def go_that(does: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{does}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(processes, "BUILT", folder / "built")
    go_program.cache_clear()


def test_a_peer_in_go_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_that(f'echo "$2" >> {tmp_path}/asked; touch "$GOBIN/sh"', tmp_path, monkeypatch)
    for _ in range(2):
        assert go_program("sh", "there.example/sh@v1.2.3") == str(tmp_path / "built/sh@v1.2.3/sh")
        go_program.cache_clear()  # as the next run finds it
    assert (tmp_path / "asked").read_text() == "there.example/sh@v1.2.3\n"


@pytest.mark.parametrize("does", ["exit 1", "exec sleep 60"])
def test_a_peer_that_go_cannot_build_is_named(
    does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_that(does, tmp_path, monkeypatch)
    monkeypatch.setattr(processes, "BUILD_S", 0.1)
    with pytest.raises(CannotMeasure, match=r"there.example/sh@v1.2.3 was not built: it failed"):
        go_program("sh", "there.example/sh@v1.2.3")


def test_a_peer_in_go_is_named_where_there_is_no_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "BUILT", tmp_path / "built")
    go_program.cache_clear()
    with pytest.raises(CannotMeasure, match="there is no Go"):
        go_program("sh", "there.example/sh@v1.2.3")


def test_processor_time_is_that_of_a_living_process() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert cpu_seconds(os.getpid()) > 0
    assert cpu_seconds(ended.pid) == 0


def test_a_free_port_can_be_taken() -> None:
    with socket.create_server(("127.0.0.1", free_port())):
        pass
