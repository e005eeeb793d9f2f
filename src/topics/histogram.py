"""Counts of measured values by size, cheap enough for every request."""

from bisect import bisect_left
from collections.abc import Sequence

LATENCY_US = (
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    5_000_000,
)  # fmt: skip
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096)


class Histogram:
    """How many values fell at or below each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, *, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def add(self, other: "Histogram") -> None:
        """Count what another one with the same bounds has counted."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.counts)
