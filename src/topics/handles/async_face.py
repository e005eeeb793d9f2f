"""What is built on the awaited calls of a log: the same names as `topics.handles.face`.

One half of `AsyncTopics` and of `AsyncLog`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

from topics.clock import Clock
from topics.handles.async_consumer import AsyncConsumer
from topics.handles.async_producer import AsyncProducer
from topics.handles.async_topic import AsyncSource, AsyncTopicHandle
from topics.handles.membership import Ask, ConsumerSettings, names_of
from topics.handles.outbox import BUFFER_BYTES, ProducerSettings
from topics.handles.queue import AsyncQueueHandle, AsyncQueueSource
from topics.handles.work_plan import new_node
from topics.limits import DEFAULT_LIMIT
from topics.model.append import Appended
from topics.model.groups import DEFAULT_SESSION_MS

T = TypeVar("T")


class AsyncHandlesFace(ABC):
    """The same on every awaited face."""

    _clock: Clock

    @abstractmethod
    async def _deliver(self, topic: str, body: bytes) -> Appended:
        """Append a body that may come again, for as long as it makes sense to try."""

    @abstractmethod
    async def _ask(self, ask: Ask, *, retry_for_s: float | None = None) -> Any:  # noqa: ANN401 - the answer of any call
        """Say one word to a group."""

    @overload
    def topic(self: AsyncSource, name: str) -> AsyncTopicHandle[Any]: ...
    @overload
    def topic(self: AsyncSource, name: str, model: type[T]) -> AsyncTopicHandle[T]: ...
    def topic(
        self: AsyncSource, name: str, model: type[Any] | None = None
    ) -> AsyncTopicHandle[Any]:
        """Take a topic in the hand; `model` is the type of its `data`."""
        return AsyncTopicHandle(self, name, model)

    @overload
    def queue(self: AsyncQueueSource, name: str) -> AsyncQueueHandle[Any]: ...
    @overload
    def queue(self: AsyncQueueSource, name: str, model: type[T]) -> AsyncQueueHandle[T]: ...
    def queue(
        self: AsyncQueueSource, name: str, model: type[Any] | None = None
    ) -> AsyncQueueHandle[Any]:
        """Take a queue in the hand; `model` is the type of its jobs' `data`."""
        return AsyncQueueHandle(self, name, model)

    def producer(
        self,
        topic: str,
        *,
        linger_ms: int = 5,
        max_batch: int = 1000,
        buffer_bytes: int = BUFFER_BYTES,
        when_full: Literal["block", "raise"] = "block",
    ) -> AsyncProducer:
        """Send single records as few batches, in order and once each."""
        settings = ProducerSettings(
            linger_ms=linger_ms,
            max_batch=max_batch,
            buffer_bytes=buffer_bytes,
            when_full=when_full,
        )
        return AsyncProducer(self._deliver, topic, settings)

    @overload
    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        model: type[T],
        member: str | None = None,
        auto_commit: bool = True,
        until_caught_up: bool = False,
        session_ms: int = DEFAULT_SESSION_MS,
        limit: int = DEFAULT_LIMIT,
    ) -> AsyncConsumer[T]: ...
    @overload
    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        model: None = None,
        member: str | None = None,
        auto_commit: bool = True,
        until_caught_up: bool = False,
        session_ms: int = DEFAULT_SESSION_MS,
        limit: int = DEFAULT_LIMIT,
    ) -> AsyncConsumer[Any]: ...
    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        model: type[Any] | None = None,
        member: str | None = None,
        auto_commit: bool = True,
        until_caught_up: bool = False,
        session_ms: int = DEFAULT_SESSION_MS,
        limit: int = DEFAULT_LIMIT,
    ) -> AsyncConsumer[Any]:
        """Work on topics together with the other members of a group."""
        settings = ConsumerSettings(
            group=group,
            member=member or new_node("consumer"),
            topics=names_of(topics),
            session_ms=session_ms,
            limit=limit,
            auto_commit=auto_commit,
            until_caught_up=until_caught_up,
        )
        return AsyncConsumer(self._ask, settings, model, self._clock)
