"""A real server for one test: ready in milliseconds, killed, restarted, out of disk at a word.

`ServerTemplate` is one process that every server is forked from; start it once. `ForkedServer` is
one of those: a process of its own on the loopback interface.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from topics.closing import Closing
from topics.config import ServerConfig, nearest
from topics.errors import ConfigError
from topics.testing.fork_server import Order
from topics.testing.server_process import WAL_FILE_BYTES, ServerDidNotStart

DEADLINE_S = 30.0
SAID_CHARACTERS = 4_000


class ServerTemplate:
    """The process that servers are forked from: it has imported all that a server needs."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "topics.testing.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket.settimeout(DEADLINE_S)

    def fork(self, order: Order) -> tuple[int, socket.socket]:
        """Start a server; return its process id and the socket that it talks on."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [msgspec.json.encode(order)], [theirs.fileno()])
        answer = self._socket.recv(32)
        if not answer:
            ours.close()
            raise ServerDidNotStart(returncode=self._child.poll(), said="the template ended")
        ours.settimeout(DEADLINE_S)
        return int(answer), ours

    def close(self) -> None:
        """End it; servers that run go on."""
        self._socket.close()
        self._child.wait(DEADLINE_S)


class ForkedServer(Closing):
    """One server on one directory; it keeps its port from life to life."""

    def __init__(
        self, template: ServerTemplate, data_dir: str, *, keys: str = "", **settings: object
    ) -> None:
        self._template = template
        self.data_dir = data_dir
        self.keys = keys
        self._settings = settings
        self._stderr_path = f"{data_dir}.log"
        self.port = 0
        self.pid = 0
        self._told: socket.socket | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def said(self) -> str:
        """The end of what the server wrote to its log."""
        if not os.path.exists(self._stderr_path):  # noqa: PTH110 - the log of a test, no data
            return ""
        with open(self._stderr_path, encoding="utf-8", errors="replace") as log:  # noqa: PTH123
            return log.read()[-SAID_CHARACTERS:]

    @property
    def is_running(self) -> bool:
        return self._told is not None

    def start(self) -> None:
        """Start it and return when it is ready."""
        assert self._told is None, "the server runs"
        order = Order(config=self._config(), keys=self.keys, stderr_path=self._stderr_path)
        self.pid, self._told = self._template.fork(order)
        word, _, rest = self._hear().partition(" ")
        if word != "ready":
            self._ended()
            raise ServerDidNotStart(returncode=None, said=rest or self.said)
        self.port = int(rest)

    def kill9(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to stop, and wait."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start again on the same directory and the same port, after a stop where it runs."""
        if self.is_running:
            self.stop()
        self.start()

    @contextlib.contextmanager
    def disk_full(self) -> Iterator[None]:
        """Let the server find no room on its disk for as long as the block runs."""
        self._tell(b"disk_full\n")
        try:
            yield
        finally:
            if self.is_running:
                self._tell(b"disk_free\n")

    def close(self) -> None:
        """Leave no process behind."""
        if self.is_running:
            self.kill9()

    def _config(self) -> ServerConfig:
        known = ServerConfig.__struct_fields__
        for name in self._settings:
            if name not in known:
                raise ConfigError(f"unknown setting {name!r}{nearest(name, known)}")
        small = {"wal_file_bytes": WAL_FILE_BYTES}
        ours = {"data_dir": self.data_dir, "host": "127.0.0.1", "port": self.port}
        try:
            return msgspec.convert({**small, **self._settings, **ours}, ServerConfig)
        except msgspec.ValidationError as error:
            raise ConfigError(f"a setting cannot be used: {error}") from None

    def _tell(self, order: bytes) -> None:
        assert self._told is not None, "the server does not run"
        self._told.sendall(order)
        self._hear()

    def _hear(self) -> str:
        """Return the next line; empty when the server has ended."""
        assert self._told is not None
        line = b""
        while not line.endswith(b"\n"):
            got = self._told.recv(4096)
            if not got:
                break
            line += got
        return line.decode(errors="replace").strip()

    def _end(self, number: signal.Signals) -> None:
        assert self._told is not None, "the server does not run"
        waiting = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(waiting, number)
            if not select.select([waiting], [], [], DEADLINE_S)[0]:
                signal.pidfd_send_signal(waiting, signal.SIGKILL)
                raise TimeoutError(f"the server did not end: {self.said}")
        finally:
            os.close(waiting)
        self._ended()

    def _ended(self) -> None:
        assert self._told is not None
        self._told.close()
        self._told = None
