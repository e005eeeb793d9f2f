"""A topic in the hand, awaited: the same names as `topics.handles.topic`."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from topics.handles.cursor import Cursor
from topics.handles.payload import Payload
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
        from_seq: int = 0,
        from_ts: int = 0,
        until_ts: int = 0,
        until_caught_up: bool = True,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> AsyncGenerator[Item[T], None]:
        first = PageRequest(
            topic=self.name,
            from_seq=from_seq,
            from_ts=from_ts,
            until_ts=until_ts,
            limit=limit,
            node=node,
            match=match,
            patient=not until_caught_up,
        )
        cursor = Cursor(self._payload, first, until_caught_up=until_caught_up)
        while not cursor.done:
            for item in cursor.take(await self._source.read_page(cursor.request)):
                yield item

    async def tail(
        self,
        *,
        from_seq: int | None = None,
        until_ts: int = 0,
        until_caught_up: bool = False,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> AsyncGenerator[Item[T], None]:
        start = (await self._source.state(self.name)).head_seq if from_seq is None else from_seq
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
