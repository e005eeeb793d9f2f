"""One request and its answer on an HTTP/2 connection.

Keeps: what the peer's windows do not take yet waits in `pending`, and is counted.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from topics.api.exchange import JSON, Exchange
from topics.api.head import Head
from topics.storage.disk.disk import Buffer

if TYPE_CHECKING:
    from topics.api.http2 import Http2Connection


def _nothing() -> None:
    """Do nothing."""


class Http2Stream:
    """The way back of one exchange; also the `Stream` of an answer without an end."""

    __slots__ = (
        "_connection", "body", "ended", "exchange", "gone", "head", "input_ended",
        "is_behind", "is_live", "number", "on_close", "on_drain", "pending", "sent_bytes",
        "since_s", "withheld_bytes",
    )  # fmt: skip

    def __init__(
        self, connection: "Http2Connection", number: int, head: Head | None, *, since_s: float
    ) -> None:
        self._connection = connection
        self.number = number
        self.head = head
        self.body = bytearray()
        self.since_s = since_s
        self.withheld_bytes = 0
        """Received, but the peer was not told yet that it may send as much again."""
        self.exchange: Exchange | None = None
        self.input_ended = False
        self.pending = bytearray()
        self.sent_bytes = 0
        self.ended = False
        """Nothing is added to `pending` any more."""
        self.is_live = False
        """An answer without an end."""
        self.gone = False
        self.is_behind = False
        """Its window was used up: it is told when all that waited is sent."""
        self.on_close: Callable[[], None] = _nothing
        self.on_drain: Callable[[], None] = _nothing

    # A channel.

    @property
    def peer(self) -> str:
        return self._connection.peer

    def send(
        self, exchange: Exchange, status: int, *, content_type: bytes, headers: bytes, body: bytes
    ) -> None:
        del exchange  # there is one a stream
        length = (b"content-length", b"%d" % len(body))
        self.pending += body
        self.ended = True
        self._connection.begin_answer(
            self, status, [length, (b"content-type", content_type), *_pairs(headers)]
        )

    def pack_ok(self, exchange: Exchange, body: bytes) -> None:
        self.send(exchange, 200, content_type=JSON, headers=b"", body=body)

    def send_rest(self, data: bytes) -> None:
        raise AssertionError(f"{len(data)} bytes of an answer that was never packed")

    def send_parts(
        self, exchange: Exchange, parts: Sequence[Buffer], *, content_type: bytes = JSON
    ) -> None:
        self.send(exchange, 200, content_type=content_type, headers=b"", body=b"".join(parts))

    def open_stream(
        self, exchange: Exchange, *, content_type: bytes, headers: bytes
    ) -> "Http2Stream":
        del exchange
        self.is_live = True
        self._connection.begin_answer(
            self, 200, [(b"content-type", content_type), *_pairs(headers)]
        )
        return self

    def hold_behind(self, exchange: Exchange) -> None:
        """Hold nothing: the streams of a connection do not wait for each other."""

    # An answer without an end.

    def write(self, data: bytes) -> None:
        if not (self.ended or self.gone):
            self.sent_bytes += len(data)
            self.pending += data
            self._connection.pump()

    def offer(self, data: bytes, limit_bytes: int) -> bool:
        if len(self.pending) > limit_bytes:
            return False
        self.write(data)
        return True

    @property
    def buffered_bytes(self) -> int:
        return len(self.pending)  # what the connection holds may be for any other stream

    def find_way(self) -> None:
        """Return none: all streams of a connection share one, and its windows."""

    def is_stuck(self, now_s: float) -> bool:
        return self._connection.is_stuck(now_s)

    @property
    def is_gone(self) -> bool:
        return self.ended or self.gone

    def close(self) -> None:
        if self.ended or self.gone:
            return
        self.ended = True
        self._connection.pump()
        self.on_close()

    def abort(self) -> None:
        if not self.gone:
            self._connection.reset(self)
            self.lost()

    def lost(self) -> None:
        """Hear that nobody will read the answer."""
        if self.gone:
            return
        self.gone = True
        self.pending.clear()
        if self.is_live and not self.ended:
            self.ended = True
            self.on_close()


def _pairs(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Take header lines apart; HTTP/2 has their names in lower case."""
    split = (line.partition(b": ") for line in lines.split(b"\r\n") if line)
    return [(name.lower(), value) for name, _, value in split]
