"""What every connection of the line protocol works with: the log, the keys, the settings.

Who may do what is decided by the server's keys; only their shape is known here, so that this room
leans on the log alone.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from topics.aio import AsyncLog
from topics.clock import Clock
from topics.config import ServerConfig
from topics.engine.topics.topic import Topic
from topics.errors import RequestError, TopicNotFound, TopicsError

Work = str | asyncio.Future[str] | Coroutine[Any, Any, str]
"""The payload of an answer; one that is on its way beside others; or one to be run alone."""
READ = frozenset({"read"})
CONSUME = frozenset({"consume"})
WRITE = frozenset({"write"})


class Caller(Protocol):
    """Somebody whose key is known."""

    def check_scopes(self, wanted: frozenset[str]) -> None: ...

    def check_name(self, name: str) -> None: ...


class Keys(Protocol):
    """The keys of a server."""

    @property
    def is_open(self) -> bool: ...

    @property
    def anonymous(self) -> Caller: ...

    def identify(self, key: str) -> Caller:
        """Return whose key it is, or raise Unauthorized."""


class Desk:
    """Shared by all connections of one listener."""

    def __init__(
        self,
        log: AsyncLog,
        keys: Keys,
        *,
        config: ServerConfig,
        clock: Clock,
        report: Callable[[TopicsError], None],
    ) -> None:
        self.log = log
        self.engine = log.log.engine
        self.keys = keys
        self.config = config
        self.clock = clock
        self.report = report
        """Told of what is the server's fault, for its log."""
        self.waiting_bytes = 0
        """Of writes that wait for room."""

    def partitions(self, topic: str) -> tuple[Topic, ...]:
        found = self.engine.partitions_of(topic)
        if not found:  # they are being made: nobody was told yet that the topic is there
            raise TopicNotFound(topic)
        return found

    def partition(self, topic: str, number: int) -> Topic:
        """Return one partition of a topic; a plain topic is its own partition 0."""
        partitions = self.partitions(topic)
        if number >= len(partitions):
            raise RequestError(f"topic {topic!r} has the partitions 0 to {len(partitions) - 1}")
        return partitions[number]


def authorize(caller: Caller, scopes: frozenset[str], topic: str) -> None:
    caller.check_scopes(scopes)
    caller.check_name(topic)
