"""The names of all topics, in order.

Keeps: whoever looks for those that begin alike looks at no others. The lock is held for a look or
a step of a list, never for a disk.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable


class Names:
    """A sorted list of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._sorted = sorted(names)

    def add(self, name: str) -> None:
        with self._lock:
            insort(self._sorted, name)

    def remove(self, name: str) -> None:
        with self._lock:
            at = bisect_left(self._sorted, name)
            assert self._sorted[at] == name
            del self._sorted[at]

    def all(self) -> list[str]:
        with self._lock:
            return list(self._sorted)

    def starting(self, prefix: str, limit: int, *, after: str = "") -> list[str]:
        """Return the first names that begin so and come after one, at most `limit` of them."""
        with self._lock:
            at = bisect_left(self._sorted, prefix)
            if after:
                at = max(at, bisect_right(self._sorted, after))
            found = self._sorted[at : at + limit]
        return [name for name in found if name.startswith(prefix)]
