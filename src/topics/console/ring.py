"""The last values of one measured thing, and rates and quantiles over an interval."""

from array import array
from collections.abc import Iterable, Sequence
from itertools import zip_longest

NOTHING = float("nan")
"""No value for an interval; JSON shows it as null."""


class Ring:
    """Keeps: at most `size` values, the newest last."""

    __slots__ = ("_size", "_values")

    def __init__(self, size: int) -> None:
        self._size = size
        self._values = array("d")

    def add(self, value: float) -> None:
        self._values.append(value)
        if len(self._values) > self._size:
            del self._values[0]

    def last(self, count: int) -> list[float]:
        return self._values[-count:].tolist()

    def __len__(self) -> int:
        return len(self._values)


def add_series(series: Iterable[Sequence[float]]) -> list[float]:
    """Return the sum of series that end at the same tick, as long as the longest."""
    backwards = [values[::-1] for values in series]
    return [sum(values) for values in zip_longest(*backwards, fillvalue=0.0)][::-1]


def quantile(bounds: Sequence[int], counts: Sequence[int], share: float) -> float:
    """Return the value below which `share` of the counted ones are, straight within a bucket."""
    wanted = share * sum(counts)
    if wanted <= 0:
        return NOTHING
    below, low = 0, 0
    for bound, count in zip(bounds, counts, strict=False):  # the last count has no bound
        if below + count >= wanted:
            return low + (bound - low) * (wanted - below) / count
        below, low = below + count, bound
    return float(bounds[-1])
