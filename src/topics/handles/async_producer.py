"""Many single records, sent as few batches: the same names as `topics.handles.producer`, awaited.

Owns one task of the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from topics.closing import AsyncClosing
from topics.errors import Closed, Throttled, TopicsError
from topics.handles.outbox import Entry, Outbox, ProducerSettings, Sent, encode_record
from topics.limits import check_topic_name
from topics.model.append import Appended

AsyncDeliver = Callable[[str, bytes], Awaitable[Appended]]


class AsyncProducer(AsyncClosing):
    """Sends records of one topic, on one event loop."""

    def __init__(
        self,
        deliver: AsyncDeliver,
        topic: str,
        settings: ProducerSettings,
    ) -> None:
        self._deliver = deliver
        self._topic = check_topic_name(topic)
        self._linger_s = settings.linger_ms / 1000
        self._settings = settings
        self._outbox = Outbox(max_batch=settings.max_batch)
        self._changed = asyncio.Condition()
        self._hurry = 0
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def send(
        self,
        data: object,
        *,
        tag: str | None = None,
        key: str | None = None,
        node: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> "asyncio.Future[Sent]":
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        entry = Entry(encode_record(data, tag=tag, key=key, node=node, meta=meta), future)
        async with self._changed:
            while not self._closing and self._is_full(len(entry.record_json)):
                if self._settings.when_full == "raise":
                    raise Throttled(max(1, int(self._linger_s * 1000)))
                await self._changed.wait()
            if self._closing:
                raise Closed("the producer is closed")
            self._outbox.add(entry)
            if self._outbox.is_worth_waking:
                self._changed.notify_all()
        return future

    async def flush(self) -> None:
        async with self._changed:
            goal = self._hurry = self._outbox.accepted
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._outbox.settled >= goal)
            error = self._outbox.take_error()
        if error is not None:
            raise error

    async def close(self) -> None:
        async with self._changed:
            self._closing = True
            self._changed.notify_all()
        await self._task
        await self.flush()

    def _is_full(self, size: int) -> bool:
        held = self._outbox.held_bytes
        return held > 0 and held + size > self._settings.buffer_bytes

    async def _run(self) -> None:
        try:
            await self._send_all()
        finally:
            self._closing = True
            self._outbox.abandon()
            async with self._changed:
                self._changed.notify_all()

    async def _send_all(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._outbox.waiting or self._closing)
                if not self._outbox.waiting:
                    return
                await self._linger()
                batch = self._outbox.take_batch()
            await self._send(batch)

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(self._linger_s):
                await self._changed.wait_for(
                    lambda: (
                        self._closing
                        or self._outbox.has_full_batch
                        or self._outbox.settled < self._hurry
                    )
                )
        except TimeoutError:
            return

    async def _send(self, batch: list[Entry]) -> None:
        delivery = self._outbox.deliver(batch)
        try:
            body = next(delivery)
            while True:
                outcome = await self._try(body)
                async with self._changed:
                    self._changed.notify_all()
                    body = delivery.send(outcome)
        except StopIteration:
            return

    async def _try(self, body: bytes) -> Appended | TopicsError:
        try:
            return await self._deliver(self._topic, body)
        except TopicsError as error:
            return error
