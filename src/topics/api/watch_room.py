"""How much watches keep in memory: of each key, and of all keys together.

Owns the sums. Keeps: a new watch that does not fit is refused, and one that grows by its patterns
stops growing; what a watch has taken is given back when it ends.
"""

from collections.abc import Mapping

import msgspec

from topics.api.auth import Caller
from topics.errors import LimitReached
from topics.limits import Limits
from topics.model.watch import WatchBody, WatchOptions, WatchStart

WATCH_BYTES = 4096
"""Of a watch by itself, measured generously."""
PLACE_BYTES = 512
"""Of one topic of it, while it is streamed."""
WINDOW_BYTES = 512
NODE_BYTES = 48
COPIES = 3
"""What was asked for is kept as text, and taken apart."""


class WatchRoom:
    """The room for all watches of one server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.used_bytes = 0
        self._used: dict[Caller, int] = {}

    def used_by(self, caller: Caller) -> int:
        return self._used.get(caller, 0)

    def change(self, caller: Caller, by_bytes: int) -> None:
        self.used_bytes += by_bytes
        used = self.used_by(caller) + by_bytes
        if used:
            self._used[caller] = used
        else:
            self._used.pop(caller, None)

    def find_full(self, caller: Caller) -> LimitReached | None:
        """Tell which limit is passed, if one is."""
        limit = self._limits.max_watch_bytes_per_key
        if limit and self.used_by(caller) > limit and not caller.is_anonymous:
            return LimitReached("max_watch_bytes_per_key", limit)
        limit = self._limits.max_watch_bytes
        if limit and self.used_bytes > limit:
            return LimitReached("max_watch_bytes", limit)
        return None


class WatchShare:
    """What one watch has taken of the room."""

    __slots__ = ("_caller", "_room", "bytes")

    def __init__(self, room: WatchRoom, caller: Caller) -> None:
        self._room = room
        self._caller = caller
        self.bytes = 0

    def take(self, size: int) -> None:
        self.bytes += size
        self._room.change(self._caller, size)

    def take_watch(
        self, asked: WatchOptions, starts: Mapping[str, WatchStart] | None = None
    ) -> None:
        """Take what a watch keeps besides its topics, estimated from what was asked for."""
        starts = asked.topics if isinstance(asked, WatchBody) else starts or {}
        nodes = len(asked.node) if isinstance(asked.node, list) else 0
        windows = sum(any(start.window) for start in starts.values())
        asked_bytes = len(msgspec.json.encode(asked))
        self.take(WATCH_BYTES + COPIES * asked_bytes + NODE_BYTES * nodes + WINDOW_BYTES * windows)

    def take_places(self, places: int) -> None:
        self.take(places * PLACE_BYTES)

    def find_full(self) -> LimitReached | None:
        return self._room.find_full(self._caller)

    def check(self) -> None:
        """Refuse a new watch that does not fit."""
        full = self.find_full()
        if full is not None:
            raise full

    def end(self) -> None:
        self.take(-self.bytes)
