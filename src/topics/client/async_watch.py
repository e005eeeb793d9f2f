"""`AsyncWatch`: the same as `topics.client.watch`, awaited."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from topics.client.async_stream import AsyncStream
from topics.client.async_transport import AsyncTransport
from topics.client.request import Response
from topics.client.retry import Pause, Send
from topics.client.watch_flow import Give, Open, Read, Step, Steps
from topics.closing import AsyncClosing
from topics.errors import TopicsError, Unreachable
from topics.model.stream import WatchItem


class AsyncWatch(AsyncClosing):
    """An iterator for one task; `close` may come from any of the loop.

    Keeps: a task that is cancelled leaves no connection. Whoever asks again goes on behind the
    last item.
    """

    def __init__(self, steps: Steps, transport: AsyncTransport, *, timeout_s: float) -> None:
        self._steps = steps
        self._transport = transport
        self._timeout_s = timeout_s
        self._stream: AsyncStream | None = None
        self._items: deque[WatchItem] = deque()
        self._closed = asyncio.Event()
        self._step: Step | None = next(steps)

    def __aiter__(self) -> AsyncIterator[WatchItem]:
        return self

    async def __anext__(self) -> WatchItem:
        while not self._closed.is_set():
            if self._items:
                return self._items.popleft()
            if self._step is None:
                break
            await self._advance(self._step)
        self._drop()
        raise StopAsyncIteration

    async def close(self) -> None:
        """End the loop, at once where it waits for something to come."""
        self._closed.set()
        self._drop()
        await asyncio.sleep(0)  # the transport lets go of its socket in the next turn

    async def _advance(self, step: Step) -> None:
        try:
            self._step = self._steps.send(await self._perform(step))
        except StopIteration:
            self._step = None
        except TopicsError:
            self._step = None
            self._drop()
            raise
        except BaseException:  # cancelled: the step is done again when somebody asks
            self._drop()
            raise

    async def _perform(self, step: Step) -> Any:  # noqa: ANN401 - each step has an answer of its own
        match step:
            case Give():
                self._items.extend(step.items)
            case Pause():
                await self._pause(step)
            case Send():
                return await self._send(step)
            case Open():
                return await self._open(step)
            case Read():
                return await self._read(step)
        return None

    async def _pause(self, step: Pause) -> None:
        try:
            async with asyncio.timeout(step.seconds):
                await self._closed.wait()
        except TimeoutError:
            return

    async def _send(self, step: Send) -> Response | Unreachable:
        try:
            return await self._transport.send(step.request, step.timeout_s)
        except Unreachable as lost:
            return lost

    async def _open(self, step: Open) -> Response | Unreachable | None:
        self._drop()
        try:
            opened = await self._transport.open_stream(step.request, self._timeout_s)
        except Unreachable as lost:
            return lost
        if isinstance(opened, Response):
            return opened
        self._stream = opened
        return None

    async def _read(self, step: Read) -> bytes | Unreachable:
        if self._stream is None:
            return Unreachable("the connection was given up", sent=True)
        try:
            return await self._stream.read(step.timeout_s)
        except Unreachable as lost:
            self._drop()
            return lost

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
