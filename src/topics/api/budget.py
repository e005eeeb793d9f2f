"""Bytes that a server keeps for others: so many for all together, and half of that for one key.

Keeps: whoever has taken gives back exactly that; nobody is refused for what others of the same
key do not keep.
"""

from topics.api.auth import Caller
from topics.config import ServerConfig
from topics.errors import LimitReached


class Budget:
    """What is kept of one kind, counted."""

    def __init__(self, limit: str, maximum: int, *, advice: str) -> None:
        self._limit = limit
        self._advice = advice
        self._maximum = maximum
        self._by_caller: dict[Caller, int] = {}
        self.used = 0

    @property
    def is_full(self) -> bool:
        return self.used >= self._maximum

    def has_room(self, caller: Caller) -> bool:
        """Tell whether anything more would be taken."""
        kept = self._by_caller.get(caller, 0)
        return self.used < self._maximum and (caller.is_anonymous or kept < self._maximum // 2)

    def change(self, caller: Caller, size: int) -> None:
        """Take so many bytes more, or give some back, whether there is room or not."""
        self.used += size
        kept = self._by_caller.get(caller, 0) + size
        assert kept >= 0
        if kept:
            self._by_caller[caller] = kept
        else:
            self._by_caller.pop(caller, None)

    def take(self, caller: Caller, size: int) -> None:
        """Take so many bytes more; raise, and take nothing, if there is no room for them."""
        self.check(caller, size)
        self.change(caller, size)

    def check(self, caller: Caller, size: int = 0) -> None:
        """Refuse who has no room for so many bytes more."""
        share = self._maximum // 2
        if self.used + size >= self._maximum:
            raise LimitReached(self._limit, self._maximum, self._advice)
        if not caller.is_anonymous and self._by_caller.get(caller, 0) + size > share:
            raise LimitReached(self._limit, share, f"half of it is for one key; {self._advice}")


class Kept:
    """What one connection keeps of both: its body under way, its answers that are not read."""

    def __init__(self, bodies: Budget, answers: Budget, nobody: Caller) -> None:
        self._bodies = bodies
        self._answers = answers
        self._sender = nobody
        self.body_bytes = 0
        self._reader = nobody
        self._unread_bytes = 0
        self.waiting_bytes = 0
        """Of answers that wait for an earlier one; they are bounded by the connection itself."""

    def count_body(self, caller: Caller, size: int) -> None:
        """Keep so much of a body; raise if that is too much."""
        self._bodies.take(caller, size - self.body_bytes)
        self._sender, self.body_bytes = caller, size

    def forget_body(self) -> None:
        self._bodies.change(self._sender, -self.body_bytes)
        self.body_bytes = 0

    def hand_on_body(self, size_min: int) -> int:
        """Let the exchange count the body from now on, if it is worth it; return how much it is."""
        size = self.body_bytes
        if size < size_min:
            self.forget_body()
            return 0
        self.body_bytes = 0
        return size

    def count_unread(self, caller: Caller, size: int) -> None:
        """Keep so much of answers; it is too late to refuse it."""
        self._answers.change(self._reader, -self._unread_bytes)
        self._answers.change(caller, size)
        self._reader, self._unread_bytes = caller, size


def plan_budgets(config: ServerConfig) -> tuple[Budget, Budget, Budget]:
    """Return what may be kept of bodies that are not whole, and of answers and streams not read.

    Two bodies always have room: half of it is for one key.
    """
    bodies = max(config.max_unfinished_body_bytes, 2 * config.max_body_bytes + 1)
    return (
        Budget("max_unfinished_body_bytes", bodies, advice="send fewer bodies at a time"),
        Budget(
            "max_unread_answer_bytes",
            config.max_unread_answer_bytes,
            advice="read the answers, ask for smaller ones,",
        ),
        Budget("max_unread_stream_bytes", config.max_unread_stream_bytes, advice="read the stream"),
    )
