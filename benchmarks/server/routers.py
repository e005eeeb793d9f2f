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
SETTLE_S = 20.0
WAL_BYTES = "topics_wal_bytes_written_total"
MOST = 1.05
"""The copies are derived: what may be added are the cursors, not the records."""


@dataclass(frozen=True)
class Cost:
    """Source records a second, and WAL bytes for each of them."""

    rate: float
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
    figures = bench.course.drive(load)
    records = source.count() or 0
    wait_for_copies(source.port, copies, records)
    return Cost(figures.rate * batch, (wal_bytes(source.port) - before) / records)


def wait_for_copies(port: int, copies: list[str], records: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    for name in copies:
        while control.call(port, "GET", f"/v0/topics/{name}")["count"] < records:
            if time.monotonic() > deadline:
                raise CannotMeasure(f"{name} lacks copies after {SETTLE_S:.0f} s")
            time.sleep(0.02)


def fan_out(bench: Bench, batch: int) -> Part:
    source = bench.topics(topic="bench-source")
    copies = [f"bench-copy-{number}" for number in range(FAN_OUT)]
    plain, routed = [], []
    for _ in range(bench.pace.rounds):
        plain.append(one_round(bench, source, copies=[], batch=batch))
        routed.append(one_round(bench, source, copies=copies, batch=batch))
    rates = [median(cost.rate for cost in costs) for costs in (plain, routed)]
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
                f"{what}: WAL bytes a source record",
                f"{sizes[1]:.0f} B",
                f"without routers: {sizes[0]:.0f} B",
                times(ratio),
                f"≤ {MOST} ×",
                ratio <= MOST,
            ),
        ]
    )
