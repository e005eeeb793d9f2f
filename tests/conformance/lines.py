"""A client of the line protocol, as plain as the protocol is."""

import os
import socket
from random import Random

from topics.closing import Closing

DEADLINE_S = 10.0


def free_port() -> int:
    """Return a port that nobody has, below those that the system deals out by itself."""
    chance = Random(os.getpid())
    while True:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class LineClient(Closing):
    """One connection."""

    def __init__(self, port: int, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(("127.0.0.1", port))
        self._replies = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        """Return the next reply with its line break; nothing at the end."""
        return self._replies.readline()

    def ask(self, line: str | bytes) -> str:
        """Send one line and return the reply without its line break."""
        self.send((line if isinstance(line, bytes) else line.encode()) + b"\n")
        reply = self.read()
        assert reply.endswith(b"\n"), f"cut off: {reply!r}"
        return reply[:-1].decode()

    def ok(self, command: str, args: str) -> str:
        """Return the payload of a success."""
        reply = self.ask(f"V1|1|{command}|{args}")
        assert reply.startswith("V1|1|OK"), reply
        return reply.removeprefix("V1|1|OK").removeprefix("|")

    def refused(self, command: str, args: str) -> tuple[str, str]:
        """Return code and message of a failure."""
        reply = self.ask(f"V1|1|{command}|{args}")
        assert reply.startswith("V1|1|ERR|"), reply
        code, _, message = reply.removeprefix("V1|1|ERR|").partition("|")
        assert message
        return code, message

    def close(self) -> None:
        self._replies.close()
        self.socket.close()
