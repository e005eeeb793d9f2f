"""A bound on how fast records are written."""

from topics.clock import Clock, SystemClock


class Pace:
    """Makes whoever writes wait until what was written so far fits the rate."""

    def __init__(self, records_per_second: int | None, *, clock: Clock | None = None) -> None:
        self._rate = records_per_second
        self._clock = clock or SystemClock()
        self._started_s = self._clock.monotonic_s()
        self._records = 0

    def wait(self, records: int) -> None:
        """Count records that were just written; what was there already costs no time."""
        self._records += records
        if self._rate is None:
            return
        early_s = self._started_s + self._records / self._rate - self._clock.monotonic_s()
        if early_s > 0:
            self._clock.sleep(early_s)
