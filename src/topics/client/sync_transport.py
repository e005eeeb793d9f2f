"""Requests over blocking sockets, with connections that are kept and used again."""

import select
import socket
import threading
import weakref
from typing import Final

from topics.client.http1 import Wire
from topics.client.request import Request, Response
from topics.client.settings import ClientSettings
from topics.client.sync_stream import SyncStream
from topics.clock import Clock
from topics.errors import Closed, Unreachable

CONNECT_S: Final = 5.0
IDLE_S: Final = 30.0
"""A connection that rests longer is not used again: servers close those after a while."""
READ_BYTES: Final = 256 * 1024


class _Connection:
    def __init__(self, sock: socket.socket, wire: Wire) -> None:
        self.socket = sock
        self.wire = wire
        self.since_s = 0.0


class SyncTransport:
    """A pool of connections to one server, safe for many threads."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._resting: list[_Connection] = []
        self._streams: weakref.WeakSet[SyncStream] = weakref.WeakSet()
        self._closed = False

    def send(self, request: Request, timeout_s: float) -> Response:
        """Return the answer; Unreachable if there is none within the time."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        connection = self._take() or self._connect(timeout_s)
        try:
            response = self._exchange(connection, request, deadline_s)
        except OSError as error:
            connection.socket.close()
            raise Unreachable(f"no answer from {self._settings.url}: {error}", sent=True) from error
        except BaseException:
            connection.socket.close()
            raise
        self._give_back(connection)
        return response

    def open_stream(self, request: Request, timeout_s: float) -> SyncStream | Response:
        """Return a stream of events on a connection of its own, or why there is none."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        self._check_open()
        connection = self._connect(timeout_s)
        stream = SyncStream(connection.socket, connection.wire)
        try:
            with self._lock:
                self._streams.add(stream)
            self._check_open()
            connection.socket.sendall(connection.wire.encode(request))
            while not connection.wire.is_stream:
                response = stream.receive(self._left_s(deadline_s))
                if response is not None and not connection.wire.is_stream:
                    stream.close()
                    return response
        except OSError as error:
            stream.close()
            raise Unreachable(f"no answer from {self._settings.url}: {error}", sent=True) from error
        except BaseException:
            stream.close()
            raise
        return stream

    def close(self) -> None:
        with self._lock:
            self._closed = True
            resting, self._resting = self._resting, []
            streams = list(self._streams)
        for connection in resting:
            connection.socket.close()
        for stream in streams:
            stream.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the client is closed")

    def _exchange(self, connection: _Connection, request: Request, deadline_s: float) -> Response:
        sock = connection.socket
        sock.settimeout(self._left_s(deadline_s))
        sock.sendall(connection.wire.encode(request))
        while True:
            sock.settimeout(self._left_s(deadline_s))
            response = connection.wire.receive(sock.recv(READ_BYTES))
            if response is not None:
                return response

    def _left_s(self, deadline_s: float) -> float:
        left_s = deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def _take(self) -> _Connection | None:
        """Return a connection that rests and is still good."""
        while True:
            with self._lock:
                self._check_open()
                if not self._resting:
                    return None
                connection = self._resting.pop()
            rested_s = self._clock.monotonic_s() - connection.since_s
            if rested_s < IDLE_S and not _is_readable(connection.socket):
                return connection
            connection.socket.close()  # readable without a request: the server has closed it

    def _give_back(self, connection: _Connection) -> None:
        connection.since_s = self._clock.monotonic_s()
        with self._lock:
            if connection.wire.reusable and not self._closed:
                self._resting.append(connection)
                return
        connection.socket.close()

    def _connect(self, timeout_s: float) -> _Connection:
        settings = self._settings
        try:
            sock = self._open_socket(min(timeout_s, CONNECT_S))
        except OSError as error:
            raise Unreachable(f"{settings.url} cannot be reached: {error}") from error
        return _Connection(sock, Wire(settings.headers(), prefix=settings.prefix))

    def _open_socket(self, timeout_s: float) -> socket.socket:
        settings = self._settings
        sock = socket.create_connection((settings.host, settings.port), timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.ssl_context is None:
                return sock
            return settings.ssl_context.wrap_socket(sock, server_hostname=settings.host)
        except OSError:
            sock.close()
            raise


def _is_readable(sock: socket.socket) -> bool:
    """Look without waiting; `select` would refuse a process with many files open."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
