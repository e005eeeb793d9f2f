"""One answer without an end, over asyncio streams."""

import asyncio
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from topics.client.http1 import Wire
from topics.client.request import Response
from topics.errors import Unreachable

READ_BYTES: Final = 256 * 1024


class AsyncStream:
    """A connection that is read from until one of both ends has enough."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = wire
        self._end: Response | None = None

    async def receive(self) -> Response | None:
        """Take what comes next; return the answer if that is its end."""
        self._end = self._wire.receive(await self._reader.read(READ_BYTES))
        return self._end

    async def read(self, timeout_s: float) -> bytes:
        """Return what came of the body; Unreachable at its end, or if nothing comes in time."""
        if data := self._taken():
            return data
        if self._end is not None:
            raise Unreachable("the server ended the stream", sent=True)
        try:
            async with asyncio.timeout(timeout_s):
                await self.receive()
        except OSError as error:  # TimeoutError is one
            reason = str(error) or "timed out"
            raise Unreachable(f"the stream was lost: {reason}", sent=True) from error
        return self._taken()

    def _taken(self) -> bytes:
        """Return what has come and was not returned yet."""
        if self._end is None:
            return self._wire.drain()
        body, self._end = self._end.body, replace(self._end, body=b"")
        return body

    def close(self) -> None:
        self._writer.transport.abort()

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            self.close()  # of a watch that somebody left in the middle
