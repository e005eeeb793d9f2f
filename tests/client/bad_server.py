"""A server that does what a test tells it: one scripted answer a connection or request."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Script = Callable[[socket.socket, int], None]
"""Takes a connection on which a whole request has arrived, and the number of that request."""


class BadServer:
    """Counts requests and keeps their bytes."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10.0)
            try:
                while (request := _read_request(connection)) is not None:
                    self.requests.append(request)
                    self._script(connection, len(self.requests))
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _read_request(connection: socket.socket) -> bytes | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    wanted = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < wanted:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def reply(status: int, body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@contextmanager
def serving(script: Script) -> Iterator[BadServer]:
    server = BadServer(script)
    try:
        yield server
    finally:
        server.close()
