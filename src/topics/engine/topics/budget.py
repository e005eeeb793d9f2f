"""The bytes that all topics may hold together: asked for by every write, added up now and then.

With very many topics a sum takes milliseconds, and whoever writes waits for it. What was admitted
since the last sum is added to it; what was removed counts as held until the next one.
Keeps: a write is refused only by a sum; copies of routers and dead letters, which ask nobody, are
seen within a second.
"""

import threading
from collections.abc import Callable

from topics.clock import Clock
from topics.errors import LimitReached

LOOK_S = 1.0
REST = 50
"""After a sum that brought no room, so many times as long as it took, others are refused by it."""


class Budget:
    """What may still be written. `maximum` 0: anything."""

    def __init__(self, add_up: Callable[[], int], maximum: int, clock: Clock) -> None:
        self._add_up = add_up
        self._maximum = maximum
        self._clock = clock
        self._lock = threading.Lock()
        self._held = 0
        """No less than there is, but for what asks nobody."""
        self._looked_s = float("-inf")
        self._rests_until_s = float("-inf")

    def take(self, size: int) -> None:
        """Take room for a write, or refuse it."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            is_full = self._held + size > self._maximum
            if now_s - self._looked_s > LOOK_S or (is_full and now_s >= self._rests_until_s):
                self._held = self._add_up()
                self._looked_s = self._clock.monotonic_s()
                self._rests_until_s = self._looked_s + REST * (self._looked_s - now_s)
            if self._held + size > self._maximum:
                raise LimitReached("max_total_bytes", self._maximum)
            self._held += size
