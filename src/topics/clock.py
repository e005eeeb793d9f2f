"""Where time comes from."""

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since the epoch, and seconds that never step back."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # As they are: every request asks, several times.
    monotonic_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
