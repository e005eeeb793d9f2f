"""How many memory maps are open at once: each may hold a descriptor of the process."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from topics.descriptors import descriptor_limit, plan_maps
from topics.errors import TooManyFiles

T = TypeVar("T")


class MapOwner(Protocol):
    """Someone who opens maps when they are needed and can do without them."""

    def release(self) -> None: ...


class OpenMaps:
    """Remembers who opened maps and has the oldest release theirs when there are too many.

    A reader that still looks at a released map keeps it alive until it is done. Nobody is kept
    alive by this: what belongs to a sealed or removed segment is closed when its owner goes.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or plan_maps(descriptor_limit())
        self._owners: deque[weakref.ref[MapOwner]] = deque()
        self._lock = threading.Lock()

    def open(self, owner: MapOwner, opening: Callable[[], T]) -> T:
        """Open something for an owner; if no descriptor is left, those of all others go first."""
        try:
            found = opening()
        except TooManyFiles:
            self.release_all()
            found = opening()
        self.opened(owner)
        return found

    def opened(self, owner: MapOwner) -> None:
        with self._lock:
            self._owners.append(weakref.ref(owner))
            oldest = self._owners.popleft()() if len(self._owners) > self._most else None
        if oldest is not None and oldest is not owner:
            oldest.release()

    def release_all(self) -> None:
        with self._lock:
            owners = [owner for reference in self._owners if (owner := reference()) is not None]
            self._owners.clear()
        for owner in owners:
            owner.release()
