"""Routers: what a fan-out of one topic to ten costs, in records/s and in bytes of the WAL."""

import time
from dataclasses import dataclass
from statistics import median

from benchmarks.server import control
from benchmarks.server.bench import Bench, Part
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.stores import TopicsContender
from benchmarks.server.table import Row, rate, times

FAN_OUT = 10
CONNECTIONS = 64
SETTLE_S = 90.0
WAL_BYTES = "topics_wal_bytes_written_total"
MOST = 1.05
"""The copies are derived: what may be added are the cursors, not the records."""


@dataclass(frozen=True)
class Cost:
    """Source records a second, taken and copied to all, and WAL bytes for each of them."""

    rate: float
    copied: float
    wal_bytes: float


def sum_metric(text: str, name: str) -> float:
    """Return the sum of a metric over its labels in Prometheus text."""
    lines = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
    if not lines:
        raise CannotMeasure(f"/v0/metrics has no {name}")
    return sum(float(line.rsplit("}", 1)[-1].split()[-1]) for line in lines)


def wal_bytes(port: int) -> float:
    return sum_metric(control.request(port, "GET", "/v0/metrics").decode(), WAL_BYTES)


def one_round(bench: Bench, source: TopicsContender, *, copies: list[str], batch: int) -> Cost:
    for name in (source.topic, *copies):
        control.call(source.port, "DELETE", f"/v0/topics/{name}")
    source.create()
    for name in copies:
        router = {"source": source.topic, "dest": name}
        control.call(source.port, "PUT", f"/v0/routers/{name}", router)
    before = wal_bytes(source.port)
    load = source.write(batch=batch, connections=CONNECTIONS)
    started = time.monotonic()
    figures = bench.course.drive(load)
    wait_for_copies(source)
    took_s = time.monotonic() - started
    records = source.count() or 0
    check_copies(source, copies, records)
    return Cost(figures.rate * batch, records / took_s, (wal_bytes(source.port) - before) / records)


def wait_for_copies(source: TopicsContender) -> None:
    """Wait for the routers; their lag is asked for, because a read of a copy would help them."""
    deadline = time.monotonic() + SETTLE_S
    path = f"/v0/routers?source={source.topic}"
    while lag := sum(r["lag"] for r in control.call(source.port, "GET", path)["routers"]):
        if time.monotonic() > deadline:
            raise CannotMeasure(f"{lag} copies are missing after {SETTLE_S:.0f} s")
        time.sleep(0.02)


def check_copies(source: TopicsContender, copies: list[str], records: int) -> None:
    for name in copies:
        found = control.call(source.port, "GET", f"/v0/topics/{name}")["count"]
        if found != records:
            raise CannotMeasure(f"{name} has {found} copies of {records} records")


def fan_out(bench: Bench, batch: int) -> Part:
    source = bench.topics(topic="bench-source")
    copies = [f"bench-copy-{number}" for number in range(FAN_OUT)]
    plain, routed = [], []
    for _ in range(bench.pace.rounds):
        plain.append(one_round(bench, source, copies=[], batch=batch))
        routed.append(one_round(bench, source, copies=copies, batch=batch))
    rates = [median(cost.rate for cost in costs) for costs in (plain, routed)]
    copied = median(cost.copied for cost in routed)
    sizes = [median(cost.wal_bytes for cost in costs) for costs in (plain, routed)]
    ratio = sizes[1] / sizes[0]
    what = f"router 1 → {FAN_OUT}, batches of {batch}" if batch > 1 else f"router 1 → {FAN_OUT}"
    return Part(
        [
            Row(
                f"{what}: source records",
                rate(rates[1]),
                f"without routers: {rate(rates[0])}",
                times(rates[1] / rates[0]),
            ),
            Row(
                f"{what}: source records until all {FAN_OUT} have them",
                rate(copied),
                f"copies: {rate(copied * FAN_OUT)}",
                times(copied / rates[0]),
            ),
            Row(
                f"{what}: WAL bytes a source record",
                f"{sizes[1]:.0f} B",
                f"without routers: {sizes[0]:.0f} B",
                times(ratio),
                f"≤ {MOST} ×",
                ratio <= MOST,
            ),
        ]
    )
