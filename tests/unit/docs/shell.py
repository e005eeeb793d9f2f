"""The terminal of somebody who follows a page: one bash, in a directory of its own.

The commands are those of the page. What differs: port 4000 is a free one, `make run` is the server
alone, other `make` targets are only looked up, and a server that was started is waited for.
"""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.unit.docs.pages import ROOT, read

from topics.closing import Closing

DEADLINE_S = 120.0
OUR_PORT = "4000"
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
_SERVER = "topics serve >>serve.log 2>&1 &"
_WAIT = """
for _ in $(seq 600); do
  curl -sf -o /dev/null localhost:$TOPICS_PORT/v0/ready && break; sleep 0.05
done"""


class Terminal(Closing):
    """Runs blocks one after the other; background jobs end with it."""

    def __init__(self, directory: Path) -> None:
        (directory / ".venv").symlink_to(ROOT / ".venv")
        (directory / "examples").symlink_to(ROOT / "examples")
        self.port = _free_port()
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

    def here(self, block: str) -> str:
        """Return a block with the port of this terminal's server."""
        return block.replace(f"localhost:{OUR_PORT}", f"localhost:{self.port}")

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
            return _SERVER + _WAIT
        if command.startswith("make "):
            assert command.removeprefix("make ") in _TARGET.findall(read(ROOT / "Makefile"))
            return ""
        return line

    def _read_until(self, end: bytes, block: str) -> bytes:
        assert self._bash.stdout is not None
        deadline_s = time.monotonic() + DEADLINE_S
        while end not in self._unread:
            left_s = max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self._bash.stdout], [], [], left_s)
            assert ready, f"no end of\n{block}\nafter\n{self._unread.decode()}"
            data = os.read(self._bash.stdout.fileno(), 65_536)
            assert data, f"failed:\n{block}\nafter\n{self._unread.decode()}"
            self._unread += data
        printed, _, self._unread = self._unread.partition(end + b"\n")
        return printed


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
