"""A consumer of a group, awaited: the same names as `topics.handles.consumer`.

Owns one task, which says that we live while the loop body awaits.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from topics.clock import Clock
from topics.errors import TopicsError
from topics.handles.absent import Pause
from topics.handles.membership import Ask, ConsumerSettings, Membership, Steps
from topics.handles.payload import Payload
from topics.model.stream import GroupRecord, GroupTombstone

T = TypeVar("T")
R = TypeVar("R")


class AsyncAsker(Protocol):
    """Asks; None: try as long as a client is told to."""

    async def __call__(self, ask: Ask, *, retry_for_s: float | None = None) -> Any: ...  # noqa: ANN401 - the answer of any call


class AsyncConsumer(Generic[T]):
    """One member of a group; for one task."""

    def __init__(
        self, ask: AsyncAsker, settings: ConsumerSettings, model: type[T] | None, clock: Clock
    ) -> None:
        self.group = settings.group
        self.member = settings.member
        self._ask = ask
        self._membership: Membership[T] = Membership(settings, Payload(model), clock)
        self._stopping = asyncio.Event()
        self._closed = False
        self._beats = asyncio.get_running_loop().create_task(self._live())

    @property
    def assigned(self) -> dict[str, list[int]]:
        return self._membership.assigned

    def __aiter__(self) -> AsyncIterator[GroupRecord[T] | GroupTombstone]:
        return self

    async def __anext__(self) -> GroupRecord[T] | GroupTombstone:
        """Return the next item; the one before counts as done."""
        item = None if self._stopping.is_set() else await self._drive(self._membership.next_item())
        if item is None:
            raise StopAsyncIteration
        return item

    async def commit(self) -> None:
        await self._drive(self._membership.commit())

    def stop(self) -> None:
        """End the iteration when the next item is asked for."""
        self._stopping.set()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._beats.cancel()
        await asyncio.wait([self._beats])
        await self._drive(self._membership.leave(), retry_for_s=None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._membership.finish_current()
        await self.close()

    async def _drive(self, steps: Steps[R], *, retry_for_s: float | None = math.inf) -> R:
        outcome: object = None
        while True:
            try:
                ask = steps.send(outcome)
            except StopIteration as end:
                result: R = end.value
                return result
            if isinstance(ask, Pause):
                outcome = await self._pause(ask)
                continue
            try:
                outcome = await self._ask(ask, retry_for_s=retry_for_s)
            except TopicsError as error:
                outcome = error

    async def _pause(self, pause: Pause) -> bool:
        """Wait, and tell whether to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause.seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _live(self) -> None:
        """Say that we live, a few times a session."""
        membership = self._membership
        while True:
            await asyncio.sleep(membership.heartbeat_ms / 1000)
            if not membership.is_joined:
                continue
            joins = membership.joins
            try:
                membership.hear(await self._ask(membership.beat(), retry_for_s=0.0), joins=joins)
            except TopicsError as error:
                membership.hear(error, joins=joins)
