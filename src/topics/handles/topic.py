"""A topic in the hand: append values, read values. Reference: docs/reference/client.md."""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from topics.handles.cursor import Cursor
from topics.handles.payload import Payload
from topics.limits import DEFAULT_LIMIT
from topics.model.append import Appended
from topics.model.diff import Page
from topics.model.stream import Item, PageRequest
from topics.model.topics import TopicState

T = TypeVar("T")


class Source(Protocol):
    """What a handle stands on: the embedded log, or a client."""

    def append(
        self,
        topic: str,
        records: list[dict[str, Any]],
        *,
        idempotency_key: str | None = None,
        create: bool = True,
    ) -> Appended: ...

    def state(self, topic: str) -> TopicState: ...

    def read_page(self, request: PageRequest) -> Page: ...


class TopicHandle(Generic[T]):
    """One topic and the type of its `data`."""

    def __init__(self, source: Source, name: str, model: type[T] | None = None) -> None:
        self.name = name
        self._source = source
        self._payload: Payload[T] = Payload(model)

    def append(
        self,
        *values: T,
        tag: str | None = None,
        key: str | None = None,
        node: str | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        create: bool = True,
    ) -> Appended:
        """Append one record for each value, all or nothing; what else is given holds for each."""
        records = build_records(self._payload, values, tag=tag, key=key, node=node, meta=meta)
        return self._source.append(
            self.name, records, idempotency_key=idempotency_key, create=create
        )

    def read(
        self,
        *,
        from_seq: int = 0,
        from_ts: int = 0,
        until_ts: int = 0,
        until_caught_up: bool = True,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> Iterator[Item[T]]:
        """Yield what comes after `from_seq`, to the end; `limit` is the size of a page.

        Only what is at or after `from_ts` and before `until_ts`, milliseconds since the epoch.
        """
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
            yield from cursor.take(self._source.read_page(cursor.request))

    def tail(
        self,
        *,
        from_seq: int | None = None,
        until_ts: int = 0,
        until_caught_up: bool = False,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> Iterator[Item[T]]:
        """Yield what comes, without end; from now on, or after `from_seq`."""
        start = self._source.state(self.name).head_seq if from_seq is None else from_seq
        return self.read(
            from_seq=start,
            until_ts=until_ts,
            until_caught_up=until_caught_up,
            limit=limit,
            node=node,
            match=match,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def build_records(
    payload: Payload[T],
    values: tuple[T, ...],
    *,
    tag: str | None,
    key: str | None = None,
    node: str | None,
    meta: Mapping[str, Any] | None,
) -> list[dict[str, Any]]:
    """Return records as `append` takes them."""
    shared = {"tag": tag, "key": key, "node": node, "meta": meta}
    given = {name: value for name, value in shared.items() if value is not None}
    return [{"data": payload.encode(value), **given} for value in values]
