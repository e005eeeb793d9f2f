"""`Watch`: many topics over one connection that comes back. Reference: docs/reference/client.md."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from topics.client.request import Response
from topics.client.retry import Pause, Send
from topics.client.sync_stream import SyncStream
from topics.client.sync_transport import SyncTransport
from topics.client.watch_flow import Give, Open, Read, Step, Steps
from topics.closing import Closing
from topics.errors import Unreachable
from topics.model.stream import WatchItem


class Watch(Closing):
    """An iterator for one thread; `close` may come from any.

    Reads from the connection only when all that it brought before was handed out.
    """

    def __init__(self, steps: Steps, transport: SyncTransport, *, timeout_s: float) -> None:
        self._steps = steps
        self._transport = transport
        self._timeout_s = timeout_s
        self._stream: SyncStream | None = None
        self._items: deque[WatchItem] = deque()
        self._closed = threading.Event()
        self._step: Step | None = next(steps)
        while isinstance(self._step, Send | Pause):  # a refusal is told here, not to the loop
            self._advance(self._step)

    def __iter__(self) -> Iterator[WatchItem]:
        return self

    def __next__(self) -> WatchItem:
        while not self._closed.is_set():
            if self._items:
                return self._items.popleft()
            if self._step is None:
                break
            self._advance(self._step)
        self._drop()
        raise StopIteration

    def close(self) -> None:
        """End the loop, at once where it waits for something to come."""
        self._closed.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def _advance(self, step: Step) -> None:
        try:
            self._step = self._steps.send(self._perform(step))
        except StopIteration:
            self._step = None
        except BaseException:
            self._step = None
            self._drop()
            raise

    def _perform(self, step: Step) -> Any:  # noqa: ANN401 - each step has an answer of its own
        match step:
            case Give():
                self._items.extend(step.items)
            case Pause():
                self._closed.wait(step.seconds)
            case Send():
                return self._send(step)
            case Open():
                return self._open(step)
            case Read():
                return self._read(step)
        return None

    def _send(self, step: Send) -> Response | Unreachable:
        try:
            return self._transport.send(step.request, step.timeout_s)
        except Unreachable as lost:
            return lost

    def _open(self, step: Open) -> Response | Unreachable | None:
        self._drop()
        try:
            opened = self._transport.open_stream(step.request, self._timeout_s)
        except Unreachable as lost:
            return lost
        if isinstance(opened, Response):
            return opened
        self._stream = opened
        return None

    def _read(self, step: Read) -> bytes | Unreachable:
        assert self._stream is not None
        try:
            return self._stream.read(step.timeout_s)
        except Unreachable as lost:
            self._drop()
            return lost

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
