"""What is built on the calls of a log: handles, producers, workers, consumers.

One half of `Topics` and of `Log`. Reference: docs/reference/client.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

from topics.clock import Clock
from topics.handles.consumer import Consumer
from topics.handles.membership import Ask, ConsumerSettings, names_of
from topics.handles.outbox import BUFFER_BYTES, ProducerSettings
from topics.handles.producer import Producer
from topics.handles.queue import QueueHandle, QueueSource
from topics.handles.topic import Source, TopicHandle
from topics.handles.work_plan import new_node
from topics.limits import DEFAULT_LIMIT
from topics.model.append import Appended
from topics.model.groups import DEFAULT_SESSION_MS

T = TypeVar("T")


class _Source(Source, Protocol):
    _clock: Clock


class HandlesFace(ABC):
    """The same on every face."""

    _clock: Clock

    @abstractmethod
    def _deliver(self, topic: str, body: bytes) -> Appended:
        """Append a body that may come again, for as long as it makes sense to try."""

    @abstractmethod
    def _ask(self, ask: Ask, *, retry_for_s: float | None = None) -> Any:  # noqa: ANN401 - the answer of any call
        """Say one word to a group."""

    @overload
    def topic(self: _Source, name: str) -> TopicHandle[Any]: ...
    @overload
    def topic(self: _Source, name: str, model: type[T]) -> TopicHandle[T]: ...
    def topic(self: _Source, name: str, model: type[Any] | None = None) -> TopicHandle[Any]:
        """Take a topic in the hand; `model` is the type of its `data`."""
        return TopicHandle(self, name, model, clock=self._clock)

    @overload
    def queue(self: QueueSource, name: str) -> QueueHandle[Any]: ...
    @overload
    def queue(self: QueueSource, name: str, model: type[T]) -> QueueHandle[T]: ...
    def queue(self: QueueSource, name: str, model: type[Any] | None = None) -> QueueHandle[Any]:
        """Take a queue in the hand; `model` is the type of its jobs' `data`."""
        return QueueHandle(self, name, model)

    def producer(
        self,
        topic: str,
        *,
        linger_ms: int = 5,
        max_batch: int = 1000,
        buffer_bytes: int = BUFFER_BYTES,
        when_full: Literal["block", "raise"] = "block",
    ) -> Producer:
        """Send single records as few batches, in order and once each."""
        settings = ProducerSettings(
            linger_ms=linger_ms,
            max_batch=max_batch,
            buffer_bytes=buffer_bytes,
            when_full=when_full,
        )
        return Producer(self._deliver, topic, settings, self._clock)

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
    ) -> Consumer[T]: ...
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
    ) -> Consumer[Any]: ...
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
    ) -> Consumer[Any]:
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
        return Consumer(self._ask, settings, model, self._clock)
