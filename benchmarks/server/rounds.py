"""Rounds: all contenders in turns, several times, and the median of each. Machines wobble."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.server.errors import CannotMeasure
from benchmarks.server.load import Figures, Load, Tools
from benchmarks.server.stores import Contender

Around = Callable[[str], Callable[[Figures], None] | None]
"""Called before a turn with its name; what it returns is called with the figures after."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long everything takes: rounds, and seconds of one measurement in a round."""

    rounds: int
    seconds: float
    warmup: float


FULL = Pace(rounds=7, seconds=1.2, warmup=0.3)
QUICK = Pace(rounds=2, seconds=0.3, warmup=0.1)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Medians over the rounds: records a second, latency of one request."""

    rate: float
    p50_us: float
    p99_us: float
    driver_cpu: float


def in_turns(names: Sequence[str], rounds: int) -> list[str]:
    """Return who is measured when; every round begins with another one."""
    order: list[str] = []
    for number in range(rounds):
        start = number % len(names)
        order += [*names[start:], *names[:start]]
    return order


def summarize(figures: Sequence[Figures], *, records: int) -> Measured:
    return Measured(
        rate=median(found.rate for found in figures) * records,
        p50_us=median(found.p50_us for found in figures),
        p99_us=median(found.p99_us for found in figures),
        driver_cpu=median(found.cpu for found in figures),
    )


@dataclass(frozen=True)
class Course:
    """What all rounds are run with; `settle` waits until the machine is quiet."""

    tools: Tools
    pace: Pace
    settle: Callable[[], None]

    def drive(self, load: Load) -> Figures:
        """Drive one load on a quiet machine: nobody pays for what the one before left."""
        self.settle()
        os.sync()
        return self.tools.drive(load, seconds=self.pace.seconds, warmup=self.pace.warmup)


def measure_loads(
    course: Course, loads: Mapping[str, Load], *, around: Around | None = None
) -> dict[str, Measured]:
    """Drive all loads in turns; `around` prepares a turn and may return what checks it."""
    found: dict[str, list[Figures]] = {name: [] for name in loads}
    for name in in_turns(list(loads), course.pace.rounds):
        check = around(name) if around else None
        figures = course.drive(loads[name])
        found[name].append(figures)
        if check:
            check(figures)
    return {
        name: summarize(figures, records=loads[name].records) for name, figures in found.items()
    }


def measure_writes(
    course: Course,
    contenders: Sequence[Contender],
    *,
    batch: int,
    connections: int,
) -> dict[str, Measured]:
    """Let all contenders take the same writes, each into an empty log, and count after."""
    by_name = {one.name: one for one in contenders}
    loads = {one.name: one.write(batch=batch, connections=connections) for one in contenders}

    def prepare(name: str) -> Callable[[Figures], None]:
        by_name[name].empty()

        def check(figures: Figures) -> None:
            kept = by_name[name].count()
            wanted = int(figures.rate * course.pace.seconds * batch * 0.99)
            if kept is not None and kept < wanted:
                raise CannotMeasure(f"{name} holds {kept} records of {wanted} it acknowledged")
            by_name[name].empty()

        return check

    return measure_loads(course, loads, around=prepare)
