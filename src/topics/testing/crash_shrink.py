"""Make a failing workload small: what is left fails, and without any one step of it it does not."""

from collections.abc import Callable
from typing import TypeVar

Step = TypeVar("Step")


def shrink(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Drop ever smaller parts as long as the rest still fails."""
    size = max(1, len(steps) // 2)
    while True:
        smaller = _drop_parts(steps, size, fails)
        if size == 1 and len(smaller) == len(steps):
            return smaller
        steps = smaller
        size = max(1, min(size // 2, len(steps) // 2))


def _drop_parts(steps: list[Step], size: int, fails: Callable[[list[Step]], bool]) -> list[Step]:
    start = 0
    while start < len(steps):
        rest = steps[:start] + steps[start + size :]
        if rest and fails(rest):
            steps = rest
        else:
            start += size
    return steps
