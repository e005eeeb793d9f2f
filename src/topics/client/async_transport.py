"""Requests over asyncio streams, with connections that are kept and used again."""

import asyncio
import weakref
from typing import Final

from topics.client.async_stream import AsyncStream
from topics.client.http1 import Wire
from topics.client.request import Request, Response
from topics.client.settings import ClientSettings
from topics.clock import Clock
from topics.errors import Closed, Unreachable

CONNECT_S: Final = 5.0
IDLE_S: Final = 30.0
"""A connection that rests longer is not used again: servers close those after a while."""
READ_BYTES: Final = 256 * 1024


class _Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.wire = wire
        self.since_s = 0.0

    def close(self) -> None:
        self.writer.transport.abort()


class AsyncTransport:
    """A pool of connections to one server, for one event loop."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._resting: list[_Connection] = []
        self._streams: weakref.WeakSet[AsyncStream] = weakref.WeakSet()
        self._closed = False

    async def send(self, request: Request, timeout_s: float) -> Response:
        """Return the answer; Unreachable if there is none within the time."""
        connection = self._take() or await self._connect(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._exchange(connection, request)
        except OSError as error:  # TimeoutError is one
            connection.close()
            reason = str(error) or "timed out"
            raise Unreachable(
                f"no answer from {self._settings.url}: {reason}", sent=True
            ) from error
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return response

    async def open_stream(self, request: Request, timeout_s: float) -> AsyncStream | Response:
        """Return a stream of events on a connection of its own, or why there is none."""
        self._check_open()
        connection = await self._connect(timeout_s)
        stream = AsyncStream(connection.reader, connection.writer, connection.wire)
        self._streams.add(stream)
        try:
            self._check_open()
            async with asyncio.timeout(timeout_s):
                connection.writer.write(connection.wire.encode(request))
                await connection.writer.drain()
                while not connection.wire.is_stream:
                    response = await stream.receive()
                    if response is not None and not connection.wire.is_stream:
                        stream.close()
                        return response
        except OSError as error:  # TimeoutError is one
            stream.close()
            reason = str(error) or "timed out"
            raise Unreachable(
                f"no answer from {self._settings.url}: {reason}", sent=True
            ) from error
        except BaseException:
            stream.close()
            raise
        return stream

    async def close(self) -> None:
        self._closed = True
        resting, self._resting = self._resting, []
        for connection in resting:
            connection.close()
        for stream in list(self._streams):
            stream.close()
        await asyncio.sleep(0)  # the transports let go of their sockets in the next turn

    async def _exchange(self, connection: _Connection, request: Request) -> Response:
        connection.writer.write(connection.wire.encode(request))
        await connection.writer.drain()
        while True:
            response = connection.wire.receive(await connection.reader.read(READ_BYTES))
            if response is not None:
                return response

    def _take(self) -> _Connection | None:
        """Return a connection that rests and is still good."""
        self._check_open()
        while self._resting:
            connection = self._resting.pop()
            rested_s = self._clock.monotonic_s() - connection.since_s
            if rested_s < IDLE_S and not connection.reader.at_eof():
                return connection
            connection.close()
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the client is closed")

    def _give_back(self, connection: _Connection) -> None:
        connection.since_s = self._clock.monotonic_s()
        if connection.wire.reusable and not self._closed:
            self._resting.append(connection)
        else:
            connection.close()

    async def _connect(self, timeout_s: float) -> _Connection:
        settings = self._settings
        try:
            async with asyncio.timeout(min(timeout_s, CONNECT_S)):
                reader, writer = await asyncio.open_connection(
                    settings.host, settings.port, ssl=settings.ssl_context, limit=READ_BYTES
                )
        except OSError as error:
            reason = str(error) or "timed out"
            raise Unreachable(f"{settings.url} cannot be reached: {reason}") from error
        return _Connection(reader, writer, Wire(settings.headers(), prefix=settings.prefix))
