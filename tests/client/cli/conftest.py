"""The command against a real server: in this process, in a pipe, and on a terminal."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.client.faces import DEADLINE_S

from topics.cli.main import main
from topics.client import Topics
from topics.testing.server_process import ServerProcess

SOURCE = str(Path(__file__).parents[3] / "src")


class Outcome(NamedTuple):
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, object]]:
        """Return stdout as the JSON lines that it must be."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


Run = Callable[..., Outcome]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Give a command a home of its own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    return {**ours, "PYTHONPATH": SOURCE, "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    server: ServerProcess,
    tmp_path: Path,
) -> Run:
    """Run a command here, against the server."""
    for name in [name for name in os.environ if name.startswith("TOPICS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TOPICS_URL", server.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run_command(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Outcome(code, captured.out, captured.err)

    return run_command


def piped(environment: dict[str, str], *arguments: str, stdin: str = "") -> Outcome:
    """Run a command as a process of its own, in a pipe."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "topics", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=DEADLINE_S,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def on_terminal(
    environment: dict[str, str], *arguments: str, typed: bytes = b""
) -> tuple[int, str]:
    """Run a command on a terminal; return its exit code and what the terminal showed."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "topics", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "200"},
        close_fds=True,
    )
    os.close(theirs)
    os.write(ours, typed)
    shown = b""
    try:
        while select.select([ours], [], [], DEADLINE_S)[0]:
            piece = os.read(ours, 65_536)
            if not piece:
                break
            shown += piece
    except OSError:
        pass  # the other side is gone: that is how a terminal ends
    finally:
        os.close(ours)
    return child.wait(DEADLINE_S), shown.decode()


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[Topics]:
    with Topics(server.url) as client:
        yield client
