"""What streams have sent and nobody has read: of each reader, of each key, of all."""

from functools import partial

from topics.api.alarms import Alarms
from topics.api.auth import Caller
from topics.api.budget import Budget

LINGER_S = 5.0
"""A reader that was sent away has so long to take the last words."""


class Unread:
    """What waits for one reader, as a part of what waits for all of them.

    Keeps: counted whenever something is written or looked for, and until it is taken or dropped.
    """

    __slots__ = ("_alarms", "_budget", "_bytes", "_caller")

    def __init__(self, budget: Budget, caller: Caller, alarms: Alarms) -> None:
        self._budget = budget
        self._caller = caller
        self._alarms = alarms
        self._bytes = 0

    def count(self, size: int) -> None:
        if size != self._bytes:
            self._budget.change(self._caller, size - self._bytes)
            self._bytes = size

    @property
    def has_room(self) -> bool:
        """Tell whether this key may have more that waits."""
        return self._budget.has_room(self._caller)

    def end(self, size: int) -> None:
        """Count what is left for as long as the reader may take it."""
        self.count(size)
        if size:
            self._alarms.set(LINGER_S, partial(self.count, 0))
