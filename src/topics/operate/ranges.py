"""Sets of seqs as sorted, disjoint, closed ranges."""

from collections.abc import Iterable

Range = tuple[int, int]


def join(ranges: Iterable[Range]) -> list[Range]:
    """Sort ranges and join those that touch."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if last < first:
            continue
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def subtract(wanted: Iterable[Range], taken: list[Range]) -> list[Range]:
    """Return what of `wanted` is not in `taken`; both are sorted and disjoint."""
    left: list[Range] = []
    place = 0
    for first, last in wanted:
        while place < len(taken) and taken[place][1] < first:
            place += 1
        at = first
        here = place
        while here < len(taken) and taken[here][0] <= last:
            if taken[here][0] > at:
                left.append((at, taken[here][0] - 1))
            at = max(at, taken[here][1] + 1)
            here += 1
        if at <= last:
            left.append((at, last))
    return left


def intersect(one: list[Range], other: list[Range]) -> list[Range]:
    """Return what is in both; both are sorted and disjoint."""
    return subtract(one, subtract(one, other))


def count(ranges: Iterable[Range]) -> int:
    return sum(last - first + 1 for first, last in ranges)
