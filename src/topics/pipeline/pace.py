"""A bound on how fast records are written."""

from topics.clock import Clock, SystemClock


class Pace:
    """Makes whoever writes wait after each write, so that no stretch of time is above the rate.

    Time that was not used is not made up for: a burst would be what the bound is against.
    """

    def __init__(self, records_per_second: int | None, *, clock: Clock | None = None) -> None:
        self._rate = records_per_second
        self._clock = clock or SystemClock()

    def wait(self, records: int) -> None:
        """Wait for records that were just written; what was there already costs no time."""
        if self._rate is not None and records:
            self._clock.sleep(records / self._rate)
