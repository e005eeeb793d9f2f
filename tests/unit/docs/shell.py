"""The terminal of somebody who follows a page: one bash, in a directory of its own.

The commands are those of the page. What differs: ports are free ones, `make run` is the server
alone unless a lake is wanted, other `make` targets are only looked up, a server that was started is
waited for, and what a page puts below /tmp is in the directory.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.unit.docs.pages import ROOT, read

from topics.closing import Closing

DEADLINE_S = 120.0
OUR_PORT = "4000"
EXAMPLE_PORTS = ("8000", "9000")
TMP_LAKE = "/tmp/iot-lake"
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
_SERVER = "topics serve >>serve.log 2>&1 &"
_WITH_LAKE = "topics up >>serve.log 2>&1 &"
_WAIT = """
for _ in $(seq 600); do
  curl -sf -o /dev/null localhost:$TOPICS_PORT/v0/ready && break; sleep 0.05
done"""


class Terminal(Closing):
    """Runs blocks one after the other; background jobs end with it."""

    def __init__(
        self, directory: Path, *, with_lake: bool = False, deadline_s: float = DEADLINE_S
    ) -> None:
        (directory / ".venv").symlink_to(ROOT / ".venv")
        shutil.copytree(ROOT / "examples", directory / "examples")
        self.port = _free_port()
        self._directory = directory
        self._deadline_s = deadline_s
        self._serve = _WITH_LAKE if with_lake else _SERVER
        self._ports = {port: str(_free_port()) for port in EXAMPLE_PORTS}
        for file in (directory / "examples").rglob("*.toml"):
            file.write_text(self.here(read(file)), encoding="utf-8")
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TOPICS_")}
        ours |= {"PYTHONPATH": str(ROOT / "src"), "TOPICS_PORT": str(self.port)}
        ours |= {"TOPICS_URL": f"http://127.0.0.1:{self.port}", "XDG_CONFIG_HOME": str(directory)}
        ours["PATH"] = f"{ROOT / '.venv/bin'}:{ours['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=ours,
            start_new_session=True,
        )
        self._unread = b""
        self._said = b""

    def here(self, block: str) -> str:
        """Return a block with the ports and the places of this terminal."""
        for port, ours in self._ports.items():
            block = re.sub(rf"(?<=[: ]){port}\b", ours, block)
        block = block.replace(TMP_LAKE, str(self._directory / "iot-lake"))
        return block.replace(f"localhost:{OUR_PORT}", f"localhost:{self.port}")

    def open(self, url: str) -> None:
        """Look at a page as a browser would, which must be there soon."""
        self.run(
            f"curl --silent --fail --retry 30 --retry-all-errors --retry-delay 1 {url} >page.html"
        )

    def wait_for(self, word: str) -> None:
        """Return when some program has said this in a line of its own."""
        if f"{word}\n".encode() not in self._said:
            self._read_until(word.encode(), word)

    def run(self, block: str) -> list[str]:
        """Run a block, which must succeed; return the lines that it printed."""
        lines = "\n".join(map(self._prepare, self.here(block).splitlines()))
        end = f"end-of-block-{time.monotonic_ns()}"
        script = f"set -e\n{lines}\nset +e\necho {end}\n"
        assert self._bash.stdin is not None
        self._bash.stdin.write(script.encode())
        self._bash.stdin.flush()
        return self._read_until(end.encode(), block).decode().splitlines()

    def close(self) -> None:
        """End what was started here, and nothing else."""
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self._bash.pid, signal.SIGKILL)  # a session of its own
        self._bash.communicate()

    def _prepare(self, line: str) -> str:
        command = line.partition("#")[0].strip()
        if command in {"make run", "topics serve &"}:
            return (self._serve if command == "make run" else _SERVER) + _WAIT
        if command.startswith("make "):
            assert command.removeprefix("make ") in _TARGET.findall(read(ROOT / "Makefile"))
            return ""
        return line

    def _read_until(self, end: bytes, block: str) -> bytes:
        assert self._bash.stdout is not None
        deadline_s = time.monotonic() + self._deadline_s
        while end not in self._unread:
            left_s = max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self._bash.stdout], [], [], left_s)
            assert ready, f"no end of\n{block}\nafter\n{self._unread.decode()}"
            data = os.read(self._bash.stdout.fileno(), 65_536)
            assert data, f"failed:\n{block}\nafter\n{self._unread.decode()}"
            self._unread += data
            self._said += data
        printed, _, self._unread = self._unread.partition(end + b"\n")
        return printed


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
