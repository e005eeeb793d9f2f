"""How hard delivery works, as one number, and what follows from it.

Pure: whoever owns a timer calls `sample` every `SAMPLE_S` with what was measured since.
"""

SAMPLE_S = 0.1
LATENCY_GOAL_MS = 5.0
LATENCY_FULL_MS = 50.0
"""The latency that counts as full pressure."""
DEPTH_FULL = 1_000
"""So many topics waiting count as full pressure."""
_SHARES = (0.4, 0.4, 0.2)
"""What depth, latency and business add up to 1 with: no one of them alone stops anybody."""
_SMOOTHING = 0.5

COALESCE_ABOVE = 0.2
COALESCE_MIN_S = 0.002
COALESCE_MAX_S = 0.010
PAUSE_ABOVE = 0.8
RESUME_BELOW = 0.6


def plan_pressure(*, depth: int, latency_ms: float, busy_share: float) -> float:
    """Return 0 (idle) to 1 (nothing more fits)."""
    late = (latency_ms - LATENCY_GOAL_MS) / (LATENCY_FULL_MS - LATENCY_GOAL_MS)
    parts = depth / DEPTH_FULL, late, busy_share
    return sum(share * min(1.0, max(0.0, part)) for share, part in zip(_SHARES, parts, strict=True))


class Governor:
    """Keeps: the lowest band pauses above 0.8 and goes on below 0.6, never flickering between."""

    def __init__(self) -> None:
        self.pressure = 0.0
        self.paused = False

    def sample(self, *, depth: int, latency_ms: float, busy_share: float) -> float:
        """Take in one measurement; return the pressure, smoothed."""
        now = plan_pressure(depth=depth, latency_ms=latency_ms, busy_share=busy_share)
        self.pressure += _SMOOTHING * (now - self.pressure)
        if self.pressure > PAUSE_ABOVE:
            self.paused = True
        elif self.pressure < RESUME_BELOW:
            self.paused = False
        return self.pressure

    @property
    def coalesce_s(self) -> float:
        """Return how long after a delivery the next one of the same topic waits."""
        if self.pressure <= COALESCE_ABOVE:
            return 0.0
        share = (self.pressure - COALESCE_ABOVE) / (1 - COALESCE_ABOVE)
        return COALESCE_MIN_S + share * (COALESCE_MAX_S - COALESCE_MIN_S)
