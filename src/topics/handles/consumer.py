"""A consumer of a group: iterate, and the work is shared. Reference: docs/reference/client.md.

Owns one thread, which says that we live while the loop body works.
"""

import math
import threading
from collections.abc import Iterator
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


class Asker(Protocol):
    """Asks; None: try as long as a client is told to."""

    def __call__(self, ask: Ask, *, retry_for_s: float | None = None) -> Any: ...  # noqa: ANN401 - the answer of any call


class Consumer(Generic[T]):
    """One member of a group; for one thread."""

    def __init__(
        self, ask: Asker, settings: ConsumerSettings, model: type[T] | None, clock: Clock
    ) -> None:
        self.group = settings.group
        self.member = settings.member
        self._ask = ask
        self._membership: Membership[T] = Membership(settings, Payload(model), clock)
        self._stopping = threading.Event()
        self._closed = threading.Event()
        self._beats = threading.Thread(target=self._live, name="topics-heartbeat", daemon=True)
        self._beats.start()

    @property
    def assigned(self) -> dict[str, list[int]]:
        """Topic → partitions that are ours now."""
        return self._membership.assigned

    def __iter__(self) -> Iterator[GroupRecord[T] | GroupTombstone]:
        return self

    def __next__(self) -> GroupRecord[T] | GroupTombstone:
        """Return the next item; the one before counts as done."""
        item = None if self._stopping.is_set() else self._drive(self._membership.next_item())
        if item is None:
            raise StopIteration
        return item

    def commit(self) -> None:
        """Commit everything up to the item in hand, with it."""
        self._drive(self._membership.commit())

    def stop(self) -> None:
        """End the iteration when the next item is asked for."""
        self._stopping.set()

    def close(self) -> None:
        """Commit what is done, unless commits are yours, and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._beats.join()
        self._drive(self._membership.leave(), retry_for_s=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._membership.finish_current()
        self.close()

    def _drive(self, steps: Steps[R], *, retry_for_s: float | None = math.inf) -> R:
        outcome: object = None
        while True:
            try:
                ask = steps.send(outcome)
            except StopIteration as end:
                result: R = end.value
                return result
            if isinstance(ask, Pause):
                outcome = self._stopping.wait(ask.seconds)
                continue
            try:
                outcome = self._ask(ask, retry_for_s=retry_for_s)
            except TopicsError as error:
                outcome = error

    def _live(self) -> None:
        """Say that we live, a few times a session."""
        membership = self._membership
        while not self._closed.wait(membership.heartbeat_ms / 1000):
            if not membership.is_joined:
                continue
            joins = membership.joins
            try:
                membership.hear(self._ask(membership.beat(), retry_for_s=0.0), joins=joins)
            except TopicsError as error:
                membership.hear(error, joins=joins)
