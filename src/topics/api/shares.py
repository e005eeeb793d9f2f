"""Turns of the event loop, dealt out: whoever has much to do does a little and asks again.

Keeps: all who asked together take no more of one turn than a moment, however many they are; they
are served in the order in which they asked, each once a turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from topics.clock import Clock

TURN_S = 0.005
"""After so long the rest waits for the next turn of the loop."""
Work = Callable[[], None]


class Shares:
    """The row of those who wait for a share of the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, *, on_bug: Callable[[Exception], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._on_bug = on_bug
        self._row: deque[Work] = deque()
        self._is_scheduled = False

    def ask(self, work: Work) -> None:
        """Have something done in a turn to come; it must be short, and may ask again."""
        self._row.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_scheduled = False
        until_s = self._clock.monotonic_s() + TURN_S
        for _ in range(len(self._row)):  # not those who ask meanwhile: sockets have their turn, too
            try:
                self._row.popleft()()
            except Exception as bug:  # noqa: BLE001 - the border: the others in the row go on
                self._on_bug(bug)
            if self._clock.monotonic_s() >= until_s:
                break
        if self._row:
            self._schedule()
