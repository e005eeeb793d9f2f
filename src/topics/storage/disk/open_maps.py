"""How many memory maps are open at once: each may hold a descriptor of the process."""

import threading
from collections import deque
from typing import Protocol

OPEN_MAPS_MAX = 256


class MapOwner(Protocol):
    """Someone who opens maps when they are needed and can do without them."""

    def release(self) -> None: ...


class OpenMaps:
    """Remembers who opened maps and has the oldest release theirs when there are too many.

    A reader that still looks at a released map keeps it alive until it is done.
    """

    def __init__(self, most: int = OPEN_MAPS_MAX) -> None:
        self._most = most
        self._owners: deque[MapOwner] = deque()
        self._lock = threading.Lock()

    def opened(self, owner: MapOwner) -> None:
        with self._lock:
            self._owners.append(owner)
            oldest = self._owners.popleft() if len(self._owners) > self._most else None
        if oldest is not None and oldest is not owner:
            oldest.release()
