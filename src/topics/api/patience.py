"""When a reader has taken nothing for too long."""

HURRY_S = 2.0


class Patience:
    """Tells a slow reader, who is waited for, from one that stands still."""

    def __init__(self, limit_ms: int, *, now_s: float) -> None:
        self._limit_s = limit_ms / 1000
        self._taken_bytes = 0
        self._since_s = now_s

    def is_over(
        self, *, sent_bytes: int, buffered_bytes: int, now_s: float, hurry: bool = False
    ) -> bool:
        """Look at how much was sent and still waits; True when nothing moved for the limit.

        In a hurry others need the room that it takes.
        """
        taken_bytes = sent_bytes - buffered_bytes
        if buffered_bytes == 0 or taken_bytes > self._taken_bytes:
            self._taken_bytes = taken_bytes
            self._since_s = now_s
            return False
        return now_s - self._since_s >= (min(self._limit_s, HURRY_S) if hurry else self._limit_s)

    def waited_ms(self, now_s: float) -> int:
        return int((now_s - self._since_s) * 1000)
