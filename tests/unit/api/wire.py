"""A socket in memory and an app whose answers a test gives by hand."""

import asyncio
import re
from typing import NamedTuple, cast

from topics.api.app import App
from topics.api.auth import parse_keys
from topics.api.exchange import Exchange
from topics.api.head import Head
from topics.api.http1 import Http1Connection
from topics.api.log import RequestLog
from topics.config import ServerConfig
from topics.testing.manual_clock import ManualClock

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /v0/health HTTP/1.1\r\n" + HOST + b"\r\n"


class Wire:
    """A transport that keeps what was written; `high_water` bytes unread pause the writer."""

    def __init__(self, *, high_water: int = 1 << 30) -> None:
        self.sent = b""
        self.unread = 0
        self.closed = False
        self.half_closed = False
        self.aborted = False
        self._reading = True
        self.protocol: asyncio.Protocol | None = None
        self._high_water = high_water

    def write(self, data: bytes) -> None:
        self.sent += data
        self.unread += len(data)
        if self.unread > self._high_water and isinstance(self.protocol, asyncio.Protocol):
            self.protocol.pause_writing()

    def drain(self) -> None:
        """Let the peer read all there is."""
        self.unread = 0
        assert self.protocol is not None
        self.protocol.resume_writing()

    def take(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str) -> "Wire | None":
        return self if name == "socket" else None

    def fileno(self) -> int:
        return -1  # takes nothing

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.half_closed = True

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading


class HeldApp(App):
    """Hands every request to the test, which answers when and in the order it likes."""

    def __init__(self, config: ServerConfig, *, keys: str = "", hold: bool = True) -> None:
        self.lines: list[str] = []
        self.manual_clock = ManualClock()
        super().__init__(
            config,
            parse_keys(keys),
            clock=self.manual_clock,
            loop=asyncio.new_event_loop(),
            request_log=RequestLog(self.lines.append, self.manual_clock),
        )
        self.hold = hold
        self.hold_slowly = False
        """As a handler does that is a coroutine."""
        self.held: list[Exchange] = []

    def prepare(self, head: Head) -> None:
        super().prepare(head)
        head.is_plain_write &= not self.hold  # what is held is not gathered

    def dispatch(self, exchange: Exchange) -> None:
        if self.hold and exchange.head.refusal is None:
            exchange.caller.requests += 1
            exchange.is_slow = self.hold_slowly
            self.held.append(exchange)
        else:
            super().dispatch(exchange)

    def turn(self) -> None:
        """Run what the event loop was asked to do soon."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def step(self) -> None:
        """Run one turn of the event loop."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def finish_aside(self) -> None:
        """Wait for what is done beside the loop, and take it."""
        self.loop.run_until_complete(self.aside.run(lambda: None))
        self.turn()

    def close(self) -> None:
        self.aside.close()
        self.loop.close()


def connect(app: App, *, high_water: int = 1 << 30) -> tuple[Http1Connection, Wire]:
    connection, wire = Http1Connection(app), Wire(high_water=high_water)
    wire.protocol = connection
    connection.connection_made(cast("asyncio.Transport", wire))
    return connection, wire


class Answer(NamedTuple):
    """One answer, read strictly."""

    status: int
    headers: dict[str, str]
    body: bytes


def answers(sent: bytes) -> list[Answer]:
    """Take HTTP/1.1 answers apart; every byte must belong to one."""
    found = []
    while sent:
        head, _, rest = sent.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        status = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z -]+", first)
        assert status is not None, first
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", 0))
        assert len(rest) >= length, "an answer is cut short"
        found.append(Answer(int(status[1]), headers, rest[:length]))
        sent = rest[length:]
    return found


def post(path: str, body: bytes, *extra: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in extra)
    head = b"POST %b HTTP/1.1\r\n%bContent-Type: application/json\r\n" % (path.encode(), HOST)
    return head + b"Content-Length: %d\r\n%b\r\n%b" % (len(body), lines, body)
