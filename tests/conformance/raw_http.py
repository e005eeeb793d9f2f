"""HTTP/1.1 by hand: what no honest client would send, and what came back."""

import re
import socket
import time
from typing import NamedTuple

DEADLINE_S = 10.0
CHUNK_BYTES = 65_536


class Answer(NamedTuple):
    """All that came back until the server closed, or until the deadline."""

    received: bytes
    closed: bool
    elapsed_s: float

    @property
    def statuses(self) -> list[int]:
        found = re.findall(rb"^HTTP/1\.1 (\d{3}) ", self.received, re.MULTILINE)
        return [int(status) for status in found]

    @property
    def is_refusal(self) -> bool:
        """Nothing but client errors, or a closed connection."""
        return self.closed and all(400 <= status < 500 for status in self.statuses)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)


def send_all(connection: socket.socket, sent: bytes) -> None:
    """Send what the server takes: it may close in the middle, which is a fine answer."""
    try:
        connection.sendall(sent)
    except OSError:
        return


def receive_all(connection: socket.socket, *, deadline_s: float = DEADLINE_S) -> Answer:
    """Read until the server closes."""
    start_s = time.monotonic()
    received = bytearray()
    closed = False
    while (left_s := start_s + deadline_s - time.monotonic()) > 0:
        connection.settimeout(left_s)
        try:
            part = connection.recv(CHUNK_BYTES)
        except TimeoutError:
            break
        except OSError:
            closed = True
            break
        if not part:
            closed = True
            break
        received += part
    return Answer(bytes(received), closed, time.monotonic() - start_s)


def exchange(port: int, sent: bytes, *, deadline_s: float = DEADLINE_S) -> Answer:
    with connect(port) as connection:
        send_all(connection, sent)
        return receive_all(connection, deadline_s=deadline_s)


def receive_replies(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Read that many replies with a Content-Length."""
    with connection.makefile("rb") as lines:
        replies = []
        for _ in range(count):
            status = int(lines.readline().split()[1])
            length = 0
            while (line := lines.readline()) not in {b"\r\n", b""}:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            replies.append((status, lines.read(length)))
        return replies
