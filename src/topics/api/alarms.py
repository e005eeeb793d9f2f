"""Deadlines of many, with one timer of the event loop."""

import asyncio
import heapq
import itertools
from collections.abc import Callable

from topics.clock import Clock


class Alarm:
    """One deadline; `cancel` forgets it."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Alarms:
    """Keeps: one timer runs, for the earliest deadline; a cancelled one is dropped when due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    def set(self, delay_s: float, call: Callable[[], None]) -> Alarm:
        alarm = Alarm(call)
        due_s = self._clock.monotonic_s() + delay_s
        heapq.heappush(self._heap, (due_s, next(self._numbers), alarm))
        self._arm()
        return alarm

    def close(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if not self._heap:
            return
        due_s = self._heap[0][0]
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
        self._timer_s = due_s
        delay_s = max(0.0, due_s - self._clock.monotonic_s())
        self._timer = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now_s:
            call = heapq.heappop(self._heap)[2].call
            if call is not None:
                call()
        self._arm()
