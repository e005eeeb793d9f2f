"""Writes: single records and batches of 100, synced and not, and the latency of a lone writer."""

from typing import NamedTuple

from benchmarks.server.bench import Bench, Part, group
from benchmarks.server.rounds import Measured, measure_writes
from benchmarks.server.table import Row, absent_row, milliseconds, ratio_row, times


class Aim(NamedTuple):
    """How many times the best of these peers `topics` should be; None: only reported."""

    peers: tuple[str, ...]
    least: float | None


class Writes(NamedTuple):
    """One scenario: what is written, how, and beside whom."""

    what: str
    durability: str
    batch: int
    connections: int
    aims: tuple[Aim, ...]


SCENARIOS = (
    Writes(
        "single writes, 64 connections, `disk`",
        "disk",
        1,
        64,
        (
            Aim(("C epoll",), 0.45),
            Aim(("nginx `return 200`",), 0.45),
            Aim(("uvicorn", "granian"), 3),
            Aim(("Redis everysec",), 0.8),
            Aim(("JetStream",), 2),
            Aim(("JetStream 2.15",), None),
        ),
    ),
    Writes(
        "single writes, 256 connections, `disk`",
        "disk",
        1,
        256,
        (
            Aim(("Redis everysec",), None),
            Aim(("JetStream",), None),
            Aim(("JetStream 2.15",), None),
        ),
    ),
    Writes(
        "single writes, 64 connections, `fsync`",
        "fsync",
        1,
        64,
        (Aim(("Redis always",), 1), Aim(("JetStream always",), 8)),
    ),
    Writes(
        "single writes, 256 connections, `fsync`",
        "fsync",
        1,
        256,
        (Aim(("Redis always",), None), Aim(("JetStream always",), None)),
    ),
    Writes(
        "batches of 100, 64 connections, `disk`",
        "disk",
        100,
        64,
        (
            Aim(("Redis everysec",), 4),
            Aim(("JetStream",), 4),
            Aim(("JetStream 2.15",), None),
        ),
    ),
    Writes(
        "batches of 100, 64 connections, `fsync`",
        "fsync",
        100,
        64,
        # Without JetStream always, which hardly ends one batch of each connection in a round.
        (Aim(("Redis always",), 2.5),),
    ),
)
LONE = Writes(
    "one connection, single `fsync` write",
    "fsync",
    1,
    1,
    (Aim(("Redis always",), None), Aim(("JetStream always",), None)),
)


def measure(bench: Bench, scenario: Writes) -> tuple[Measured, dict[str, Measured]]:
    """Return what was found of ours, and of all."""
    ours = bench.topics(scenario.durability)
    names = [name for aim in scenario.aims for name in aim.peers]
    found = measure_writes(
        bench.course,
        [ours, *bench.others(names)],
        batch=scenario.batch,
        connections=scenario.connections,
    )
    return found[ours.name], found


def aim_row(bench: Bench, what: str, aim: Aim, found: dict[str, Measured], ours: Measured) -> Row:
    there = [name for name in aim.peers if name in found]
    if not there:
        return absent_row(what, " or ".join(aim.peers), bench.why_missing(aim.peers))
    best = max(there, key=lambda name: found[name].rate)
    return ratio_row(what, ours=ours.rate, other=found[best].rate, other_name=best, least=aim.least)


def rates(bench: Bench, scenario: Writes) -> Part:
    ours, found = measure(bench, scenario)
    rows = [aim_row(bench, scenario.what, aim, found, ours) for aim in scenario.aims]
    return Part(rows, [group(scenario.what, found)], ours.driver_cpu)


def lone_latency(bench: Bench) -> Part:
    ours, found = measure(bench, LONE)
    beside = [name for aim in LONE.aims for name in aim.peers if name in found]
    latency = f"p50 {milliseconds(ours.p50_us)}, p99 {milliseconds(ours.p99_us)}"
    rows = [
        Row(
            LONE.what,
            latency,
            f"{name}: p50 {milliseconds(found[name].p50_us)}",
            times(ours.p50_us / found[name].p50_us),
        )
        for name in beside
    ]
    return Part(rows or [Row(LONE.what, latency)])
