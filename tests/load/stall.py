"""How long the worst answer of a server takes while something else is done to it.

A process of its own asks `/v0/health` every 5 ms: whoever makes the load is late itself.
"""

import contextlib
import subprocess
import sys
from typing import NamedTuple, Self

from tests.load.meters import rss_bytes

from topics.testing.server_process import ServerProcess

EVERY_S = 0.005
LONGEST_S = 120.0
"""A server that answers later than that is taken for hung."""

_PROBE = """
import gc, os, select, socket, sys, time

gc.disable()
try:
    os.nice(-15)
except PermissionError:
    pass
port, every_s, longest_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
ask = b"GET /v0/health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
probe = socket.create_connection(("127.0.0.1", port), timeout=longest_s)
probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
worst_s, count = 0.0, 0
print("ready", flush=True)
while True:
    if select.select([sys.stdin], [], [], every_s)[0]:
        if not sys.stdin.readline():
            break
        print(worst_s, count, flush=True)
        worst_s, count = 0.0, 0
    start_s = time.monotonic()
    try:
        probe.sendall(ask)
        answered = b" 200 OK" in probe.recv(65536)
    except OSError:
        answered = False
    worst_s = max(worst_s, time.monotonic() - start_s) if answered else longest_s
    count += 1
"""


class Stall(NamedTuple):
    """What the server did to everybody else meanwhile."""

    worst_ms: float
    answers: int
    grown_bytes: int
    """The most it had in memory, above what it had when everything was prepared."""


class StallProbe:
    """One server, asked all the time."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._start_bytes = rss_bytes(server)
        command = [sys.executable, "-c", _PROBE, str(server.port), str(EVERY_S), str(LONGEST_S)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read_line()

    def begin(self) -> None:
        """Forget what was; the kernel does, of the most memory."""
        with open(f"/proc/{self._server.pid}/clear_refs", "w", encoding="ascii") as peak:  # noqa: PTH123 - procfs
            peak.write("5")
        self._ask()

    def end(self) -> Stall:
        worst_s, answers = self._ask().split()
        grown_bytes = rss_bytes(self._server, peak=True) - self._start_bytes
        return Stall(float(worst_s) * 1000, int(answers), grown_bytes)

    def _ask(self) -> str:
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return self._read_line()

    def _read_line(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()
