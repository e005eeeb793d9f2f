"""A queue in the hand: put jobs in, have them worked on."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from topics.handles.async_topic import AsyncSource
from topics.handles.async_worker import AsyncHandler, AsyncJobSource, AsyncWorker
from topics.handles.payload import Payload
from topics.handles.topic import Source, build_records
from topics.handles.work_plan import WorkerSettings
from topics.handles.worker import Handler, JobSource, Worker
from topics.model.append import Appended

T = TypeVar("T")


class QueueSource(Source, JobSource, Protocol):
    """What a queue's handle stands on."""

    def append(
        self,
        topic: str,
        records: list[dict[str, Any]],
        *,
        idempotency_key: str | None = None,
        create: bool = True,
        queue: bool = False,
    ) -> Appended: ...


class AsyncQueueSource(AsyncSource, AsyncJobSource, Protocol):
    """What a queue's handle stands on, awaited."""

    async def append(
        self,
        topic: str,
        records: list[dict[str, Any]],
        *,
        idempotency_key: str | None = None,
        create: bool = True,
        queue: bool = False,
    ) -> Appended: ...


class QueueHandle(Generic[T]):
    """One queue and the type of its jobs' `data`."""

    def __init__(self, source: QueueSource, name: str, model: type[T] | None = None) -> None:
        self.name = name
        self._source = source
        self._payload: Payload[T] = Payload(model)

    def put(
        self,
        *values: T,
        tag: str | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Add one job for each value, all or nothing; a topic that is absent becomes a queue."""
        records = build_records(self._payload, values, tag=tag, node=None, meta=meta)
        return self._source.append(self.name, records, idempotency_key=idempotency_key, queue=True)

    def worker(
        self,
        *,
        concurrency: int = 1,
        lease_ms: int | None = None,
        backoff_ms: int = 1_000,
        backoff_max_ms: int = 60_000,
        idle_ms: int = 1_000,
    ) -> Callable[[Handler[T]], Worker[T]]:
        """Make a function the worker of this queue: call `run` on what comes out."""
        settings = WorkerSettings(
            concurrency=concurrency,
            lease_ms=lease_ms,
            backoff_ms=backoff_ms,
            backoff_max_ms=backoff_max_ms,
            idle_ms=idle_ms,
        )
        return lambda handler: Worker(self._source, self.name, self._payload, handler, settings)


class AsyncQueueHandle(Generic[T]):
    """One queue and the type of its jobs' `data`, awaited."""

    def __init__(self, source: AsyncQueueSource, name: str, model: type[T] | None = None) -> None:
        self.name = name
        self._source = source
        self._payload: Payload[T] = Payload(model)

    async def put(
        self,
        *values: T,
        tag: str | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        records = build_records(self._payload, values, tag=tag, node=None, meta=meta)
        return await self._source.append(
            self.name, records, idempotency_key=idempotency_key, queue=True
        )

    def worker(
        self,
        *,
        concurrency: int = 1,
        lease_ms: int | None = None,
        backoff_ms: int = 1_000,
        backoff_max_ms: int = 60_000,
        idle_ms: int = 1_000,
    ) -> Callable[[AsyncHandler[T]], AsyncWorker[T]]:
        settings = WorkerSettings(
            concurrency=concurrency,
            lease_ms=lease_ms,
            backoff_ms=backoff_ms,
            backoff_max_ms=backoff_max_ms,
            idle_ms=idle_ms,
        )
        return lambda handler: AsyncWorker(
            self._source, self.name, self._payload, handler, settings
        )
