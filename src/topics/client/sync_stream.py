"""One answer without an end, over a blocking socket: read by one thread, closed by any.

Keeps: the socket is closed only while nobody reads from it, so that its number is never read from
after the system has given it to another one.
"""

import socket
import threading
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from topics.client.http1 import Wire
from topics.client.request import Response
from topics.errors import Unreachable

READ_BYTES: Final = 256 * 1024


class SyncStream:
    """A connection that is read from until one of both ends has enough."""

    def __init__(self, sock: socket.socket, wire: Wire) -> None:
        self._socket = sock
        self._wire = wire
        self._end: Response | None = None
        self._reading = threading.RLock()  # a signal's handler may close what it interrupts

    def receive(self, timeout_s: float) -> Response | None:
        """Take what comes next; return the answer if that is its end."""
        with self._reading:
            self._socket.settimeout(timeout_s)
            self._end = self._wire.receive(self._socket.recv(READ_BYTES))
            return self._end

    def read(self, timeout_s: float) -> bytes:
        """Return what came of the body; Unreachable at its end, or if nothing comes in time."""
        if data := self._taken():
            return data
        if self._end is not None:
            raise Unreachable("the server ended the stream", sent=True)
        try:
            self.receive(timeout_s)
        except OSError as error:
            raise Unreachable(f"the stream was lost: {error}", sent=True) from error
        return self._taken()

    def _taken(self) -> bytes:
        """Return what has come and was not returned yet."""
        if self._end is None:
            return self._wire.drain()
        body, self._end = self._end.body, replace(self._end, body=b"")
        return body

    def close(self) -> None:
        """End it at once, also for a thread that is reading."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS or not
        with self._reading:
            self._socket.close()

    def __del__(self) -> None:
        self._socket.close()  # of a watch that somebody left in the middle
