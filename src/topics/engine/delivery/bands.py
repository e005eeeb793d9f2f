"""Five queues that share one server: the urgent ones more often, none of them never."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
WEIGHTS = (8, 4, 2, 1, 1)
"""How many each band gives in one round; band 0 is the most urgent."""


class Bands(Generic[T]):
    """Keeps: first in, first out within a band; a full band gives its weight in every round."""

    def __init__(self) -> None:
        self._queues: tuple[deque[T], ...] = tuple(deque() for _ in WEIGHTS)
        self._left = list(WEIGHTS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, item: T, band: int) -> None:
        self._queues[band].append(item)
        self._count += 1

    def pop(self) -> T | None:
        """Return the next in turn, None where nothing waits."""
        if not self._count:
            return None
        while True:
            for band, queue in enumerate(self._queues):
                if queue and self._left[band]:
                    self._left[band] -= 1
                    self._count -= 1
                    return queue.popleft()
            self._left[:] = WEIGHTS

    def rearrange(self, band_of: Callable[[T], int]) -> None:
        """Put everything that waits into the band it belongs to now, oldest of a band first."""
        waiting = [item for queue in self._queues for item in queue]
        for queue in self._queues:
            queue.clear()
        self._count = 0
        for item in waiting:
            self.push(item, band_of(item))

    def take(self, band: int) -> list[T]:
        """Empty one band."""
        taken = list(self._queues[band])
        self._queues[band].clear()
        self._count -= len(taken)
        return taken
