"""A topic in the hand, awaited: the same names as `topics.handles.topic`."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from topics.errors import TopicNotFound, TopicsError
from topics.handles.payload import Payload
from topics.handles.reading import Ask, Look, Start, plan_reading, start_now
from topics.handles.topic import build_records
from topics.limits import DEFAULT_LIMIT
from topics.model.append import Appended
from topics.model.diff import Page
from topics.model.stream import Item, PageRequest
from topics.model.topics import TopicState

T = TypeVar("T")


class AsyncSource(Protocol):
    """What a handle stands on."""

    async def append(
        self,
        topic: str,
        records: list[dict[str, Any]],
        *,
        idempotency_key: str | None = None,
        create: bool = True,
    ) -> Appended: ...

    async def state(self, topic: str) -> TopicState: ...

    async def read_page(self, request: PageRequest) -> Page: ...


class AsyncTopicHandle(Generic[T]):
    """One topic and the type of its `data`."""

    def __init__(self, source: AsyncSource, name: str, model: type[T] | None = None) -> None:
        self.name = name
        self._source = source
        self._payload: Payload[T] = Payload(model)

    async def append(
        self,
        *values: T,
        tag: str | None = None,
        key: str | None = None,
        node: str | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        create: bool = True,
    ) -> Appended:
        records = build_records(self._payload, values, tag=tag, key=key, node=node, meta=meta)
        return await self._source.append(
            self.name, records, idempotency_key=idempotency_key, create=create
        )

    async def read(
        self,
        *,
        from_seq: Start = 0,
        from_ts: int = 0,
        until_ts: int = 0,
        until_caught_up: bool = True,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> AsyncGenerator[Item[T], None]:
        first = PageRequest(
            topic=self.name,
            from_seq=0,
            from_ts=from_ts,
            until_ts=until_ts,
            limit=limit,
            node=node,
            match=match,
            patient=not until_caught_up,
        )
        steps = plan_reading(self._payload, first, from_seq, until_caught_up=until_caught_up)
        outcome: Page | TopicState | TopicsError | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration:
                return
            outcome = None
            if isinstance(step, Ask):
                outcome = await self._answer(step)
            else:
                for item in step:
                    yield item

    async def tail(
        self,
        *,
        from_seq: Start | None = None,
        until_ts: int = 0,
        until_caught_up: bool = False,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> AsyncGenerator[Item[T], None]:
        start = await self._now(must_be=until_caught_up) if from_seq is None else from_seq
        items = self.read(
            from_seq=start,
            until_ts=until_ts,
            until_caught_up=until_caught_up,
            limit=limit,
            node=node,
            match=match,
        )
        async with aclosing(items):  # with this one, not when somebody collects it
            async for item in items:
                yield item

    async def _now(self, *, must_be: bool) -> Start:
        try:
            return start_now(await self._source.state(self.name))
        except TopicNotFound:
            if must_be:
                raise
            return 0  # all that will be in it comes from now on

    async def _answer(self, ask: Ask) -> Page | TopicState | TopicsError | None:
        try:
            match ask:
                case PageRequest():
                    return await self._source.read_page(ask)
                case Look():
                    return await self._source.state(ask.topic)
                case _:
                    await asyncio.sleep(ask.seconds)
                    return None
        except TopicsError as error:
            return error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
