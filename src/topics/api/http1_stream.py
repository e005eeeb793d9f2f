"""An answer without an end on an HTTP/1.1 connection.

Keeps: frames leave in the order they were written, whether by this stream or past it.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.engine.watch.convoy import Seat

if TYPE_CHECKING:
    from topics.api.http1 import Http1Connection


def _nothing() -> None:
    """Do nothing."""


_last_chunk = b"", b""


def _chunk(data: bytes) -> bytes:
    """Frame a chunk; the last is remembered, since many streams send the same bytes in a row."""
    global _last_chunk  # noqa: PLW0603 - one pair, replaced whole
    last, framed = _last_chunk
    if last is not data:
        framed = b"%x\r\n%b\r\n" % (len(data), data)
        _last_chunk = data, framed
    return framed


class Http1Stream:
    """A chunked answer that goes on until somebody ends it."""

    def __init__(self, connection: "Http1Connection", *, chunked: bool) -> None:
        self._connection = connection
        self._chunked = chunked
        self._transport: asyncio.Transport | None = None
        """The way out between the start and the end of this answer."""
        self.sent_bytes = 0
        self.seat: Seat | None = None
        self._early: list[bytes] | None = []
        """Frames written before it is this answer's turn."""
        self._closed = False
        self.on_close: Callable[[], None] = _nothing
        self.on_drain: Callable[[], None] = _nothing

    def start(self, head: bytes, transport: asyncio.Transport | None) -> None:
        """Begin to send: everything asked for earlier was answered."""
        early, self._early = self._early or [], None
        self._connection.write(head + b"".join(early))
        if self._closed:
            self._connection.end()
        else:
            self._transport = transport

    def offer(self, data: bytes, limit_bytes: int) -> bool:
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() > limit_bytes:
            return False
        if self.seat is not None:
            self.seat.leave()
        self.sent_bytes += len(data)
        transport.write(_chunk(data) if self._chunked else data)
        return True

    def write(self, data: bytes) -> None:
        if self._closed:
            return
        if self.seat is not None:
            self.seat.leave()
        self.sent_bytes += len(data)
        framed = _chunk(data) if self._chunked else data
        if self._early is None:
            self._connection.write(framed)
        else:
            self._early.append(framed)

    def find_way(self) -> "Http1Stream | None":
        transport = self._transport
        if transport is None or not self._chunked or transport.get_write_buffer_size():
            return None
        return self

    @property
    def descriptor(self) -> int:
        return self._connection.descriptor

    def pack(self, frame: bytes) -> bytes:
        return _chunk(frame)

    def push(self, packed: bytes) -> None:
        self._connection.write(packed)

    @property
    def buffered_bytes(self) -> int:
        if self._transport is not None:
            return self._transport.get_write_buffer_size()
        if self._early is not None:
            return sum(map(len, self._early))
        return self._connection.buffered_bytes

    def is_stuck(self, now_s: float) -> bool:
        del now_s
        return False  # alone on its connection: `buffered_bytes` tells

    @property
    def is_gone(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._closed:
            return
        last = b"0\r\n\r\n" if self._chunked else b""
        self._end()
        if self._early is None:
            self._connection.write(last)
            self._connection.end()
        else:
            self._early.append(last)
        self.on_close()

    def abort(self) -> None:
        self.lost()
        self._connection.abort()

    def lost(self) -> None:
        """Hear that the connection is gone."""
        if not self._closed:
            self._end()
            self.on_close()

    def _end(self) -> None:
        if self.seat is not None:
            self.seat.leave()
        self._closed, self._transport = True, None
