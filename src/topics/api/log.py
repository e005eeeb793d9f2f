"""What the server writes about itself: one JSON object a line, never a secret.

A query may hold a token and a body anything, so neither is ever written.
"""

import itertools
import secrets
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topics.clock import Clock
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.api.exchange import Exchange


SLOW_EVERY_MS = 100


class RequestLog:
    """Writes log lines, and gives every logged request an id."""

    def __init__(self, write: Callable[[str], None], clock: Clock) -> None:
        """Write with a call that does not wait: it is made on the event loop."""
        self._write = write
        self.count_dropped: Callable[[], int] = lambda: 0
        """How many lines nobody has read in time."""
        self._clock = clock
        self._run = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._slow_ms = 0
        self._unlogged = 0

    def event(self, event: str, *, level: str = "info", **fields: object) -> None:
        line = {"ts": self._clock.now_ms(), "level": level, "event": event, **fields}
        self._write(msgspec.json.encode(line, enc_hook=str).decode() + "\n")

    def slow(self, exchange: "Exchange", status: int, seconds: float) -> None:
        """Log a slow request; when many are slow at once, one in a while with their number."""
        now_ms = self._clock.now_ms()
        if now_ms - self._slow_ms < SLOW_EVERY_MS:
            self._unlogged += 1
            return
        self._slow_ms, unlogged, self._unlogged = now_ms, self._unlogged, 0
        ms = round(seconds * 1000)
        self._request(
            exchange, "slow_request", "warning", status=status, ms=ms, unlogged_before=unlogged
        )

    def failed(self, exchange: "Exchange", error: TopicsError, status: int) -> str:
        """Log what is the server's fault, not the caller's; return the request's id."""
        request_id = self._next_id(exchange)
        if status >= 500:
            self._request(
                exchange, "request_failed", "error",
                request_id=request_id, status=status, code=error.code, message=str(error),
            )  # fmt: skip
        return request_id

    def bug(self, exchange: "Exchange", bug: Exception) -> None:
        trace = "".join(traceback.format_exception(bug))
        self._request(exchange, "bug", "error", trace=trace)

    def stream_bug(self, bug: Exception) -> None:
        """Log a bug that no request can be told of."""
        self.event("bug", level="error", trace="".join(traceback.format_exception(bug)))

    def _request(self, exchange: "Exchange", event: str, level: str, **fields: object) -> None:
        fields.setdefault("request_id", self._next_id(exchange))
        self.event(
            event,
            level=level,
            method=exchange.head.method,
            route=exchange.route.label,
            name=exchange.name,
            key=exchange.caller.name,
            **fields,
        )

    def _next_id(self, exchange: "Exchange") -> str:
        """Return the caller's own id if it is a plain word, else a new one."""
        given = exchange.head.headers.get("x-request-id", "")
        if 0 < len(given) <= 128 and given.isascii() and given.replace("-", "").isalnum():
            return given
        return f"{self._run}-{next(self._numbers):x}"
