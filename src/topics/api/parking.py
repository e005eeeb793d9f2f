"""Writes that wait for room on the log, in the order they came.

A full log is most often full for milliseconds: waiting here is cheaper for everyone than a refusal
and a retry. Keeps: what waits is bounded in bytes and in time; behind a waiting write to a shard
every later one waits too, so that a client's writes keep their order.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.api.exchange import Exchange
from topics.engine.shard import Shard
from topics.errors import Throttled, TopicsError
from topics.storage.wal.group_commit import RETRY_AFTER_MS

if TYPE_CHECKING:
    from topics.api.app import App

PATIENCE_S = 2.0
RETRY_S = 0.005


class Parked:
    """One write that was told to come again."""

    __slots__ = ("attempt", "exchange", "since_s", "size")

    def __init__(
        self, exchange: Exchange, attempt: Callable[[float], None], size: int, since_s: float
    ) -> None:
        self.exchange = exchange
        self.attempt = attempt
        """Makes the write, given the milliseconds it waited; raises Throttled if still full."""
        self.size = size
        self.since_s = since_s


class Parking:
    """The waiting writes of one server."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self.rows: dict[Shard, deque[Parked]] = {}
        """Who waits for which shard, most often nobody: every write looks."""
        self._bytes = 0
        self._retry_scheduled = False

    def is_busy(self, shard: Shard) -> bool:
        return shard in self.rows

    def park(
        self, shard: Shard, exchange: Exchange, attempt: Callable[[float], None], *, size: int
    ) -> None:
        """Let a write wait, or refuse it where too much waits already."""
        if self._bytes + size > self._app.config.wal_queue_bytes:
            raise Throttled(RETRY_AFTER_MS)
        exchange.drop_body()
        self._bytes += size
        now_s = self._app.clock.monotonic_s()
        self.rows.setdefault(shard, deque()).append(Parked(exchange, attempt, size, now_s))
        self._schedule()

    def _schedule(self) -> None:
        if not self._retry_scheduled:
            self._retry_scheduled = True
            self._app.loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retry_scheduled = False
        now_s = self._app.clock.monotonic_s()
        for shard, row in list(self.rows.items()):
            while row and self._settle(row[0], now_s):
                self._bytes -= row.popleft().size
            if not row:
                del self.rows[shard]
        if self.rows:
            self._schedule()

    def _settle(self, parked: Parked, now_s: float) -> bool:
        """Try once more; tell whether the write waits no longer."""
        exchange = parked.exchange
        if exchange.answered:  # whoever asked is gone
            return True
        waited_s = now_s - parked.since_s
        try:
            parked.attempt(waited_s * 1000)
        except Throttled as full:
            if waited_s < PATIENCE_S:
                return False
            exchange.fail(full)
        except TopicsError as error:
            exchange.fail(error)
        return True
