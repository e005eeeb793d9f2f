"""A topic in the hand: append values, read values. Reference: docs/reference/client.md."""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from topics.clock import Clock
from topics.errors import TopicNotFound, TopicsError
from topics.handles.payload import Payload
from topics.handles.reading import Ask, Look, Start, plan_reading, start_now
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

    def __init__(
        self, source: Source, name: str, model: type[T] | None = None, *, clock: Clock
    ) -> None:
        self.name = name
        self._source = source
        self._clock = clock
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
        from_seq: Start = 0,
        from_ts: int = 0,
        until_ts: int = 0,
        until_caught_up: bool = True,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> Iterator[Item[T]]:
        """Yield what comes after `from_seq`, to the end; `limit` is the size of a page.

        Only what is at or after `from_ts` and before `until_ts`, milliseconds since the epoch.
        Partitions are merged by time.
        """
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
                outcome = self._answer(step)
            else:
                yield from step

    def tail(
        self,
        *,
        from_seq: Start | None = None,
        until_ts: int = 0,
        until_caught_up: bool = False,
        limit: int = DEFAULT_LIMIT,
        node: str | tuple[str, ...] = (),
        match: str | tuple[str, ...] | None = None,
    ) -> Iterator[Item[T]]:
        """Yield what comes, without end; from now on, or after `from_seq`.

        A topic that is not there yet is waited for.
        """
        return self.read(
            from_seq=self._now(must_be=until_caught_up) if from_seq is None else from_seq,
            until_ts=until_ts,
            until_caught_up=until_caught_up,
            limit=limit,
            node=node,
            match=match,
        )

    def _now(self, *, must_be: bool) -> Start:
        try:
            return start_now(self._source.state(self.name))
        except TopicNotFound:
            if must_be:
                raise
            return 0  # all that will be in it comes from now on

    def _answer(self, ask: Ask) -> Page | TopicState | TopicsError | None:
        try:
            match ask:
                case PageRequest():
                    return self._source.read_page(ask)
                case Look():
                    return self._source.state(ask.topic)
                case _:
                    self._clock.sleep(ask.seconds)
                    return None
        except TopicsError as error:
            return error

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
