"""Shares of the event loop, for those who have more to do than fits into one turn.

Whoever has taken its share waits here and goes on when those before it had theirs. All of them
together take a bounded part of each turn, however many they are: between two turns everybody who
asks for little is served.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from topics.clock import Clock

SHARE_S = 0.002
"""So long one may go on with what it has."""
TURN_S = 0.004
"""So long all who wait here take together, and what the last of them began."""


class Turns:
    """The row of those who wait for their next share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._row: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def begin(self) -> float:
        """Return when a share that begins now is over."""
        return self._clock.monotonic_s() + SHARE_S

    def is_over(self, end_s: float) -> bool:
        return self._clock.monotonic_s() >= end_s

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call when it is the turn of whoever has had a share."""
        self._row.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        end_s = self._clock.monotonic_s() + TURN_S
        row = self._row
        try:
            for _ in range(len(row)):
                row.popleft()()
                if self._clock.monotonic_s() >= end_s:
                    break
        finally:
            if row:
                self._schedule()
