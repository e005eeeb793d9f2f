"""A clock that moves only when told."""

import threading


class ManualClock:
    """Wall time may be set anywhere; monotonic time only ever goes on."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = float(now_ms)
        self._monotonic_ms = 0.0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Return at once, that much later."""
        self.advance_ms(seconds * 1000)

    def advance_ms(self, step_ms: float) -> None:
        """Let time pass, on both clocks."""
        assert step_ms >= 0, "time does not run backwards: set_ms steps the wall clock"
        with self._lock:
            self._wall_ms += step_ms
            self._monotonic_ms += step_ms

    def set_ms(self, now_ms: int) -> None:
        """Step the wall clock, back or forth, as an operator or NTP does."""
        with self._lock:
            self._wall_ms = float(now_ms)
