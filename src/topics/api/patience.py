"""When a reader has taken nothing for too long."""


class Patience:
    """Tells a slow reader, who is waited for, from one that stands still."""

    def __init__(self, limit_ms: int, *, now_s: float) -> None:
        self._limit_s = limit_ms / 1000
        self._taken_bytes = 0
        self._since_s = now_s

    def is_over(self, *, sent_bytes: int, buffered_bytes: int, now_s: float) -> bool:
        """Look at how much was sent and still waits; True when nothing moved for the limit."""
        taken_bytes = sent_bytes - buffered_bytes
        if buffered_bytes == 0 or taken_bytes > self._taken_bytes:
            self._taken_bytes = taken_bytes
            self._since_s = now_s
            return False
        return now_s - self._since_s >= self._limit_s
