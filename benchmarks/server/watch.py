"""Watching: from append to delivery over many event streams, and what a watcher costs."""

from statistics import median

from benchmarks.server import control
from benchmarks.server.bench import Bench, Part
from benchmarks.server.load import Deliveries
from benchmarks.server.table import Row, latency_row

RECORDS_PER_SECOND = 20.0
ROUNDS_MAX = 3
SECONDS_FACTOR = 2.5  # few records a second: a longer look than at a full load
MOST_MS = {100: 1.0, 1000: 5.0}


def one_round(bench: Bench, watchers: int) -> Deliveries:
    ours = bench.topics(topic=f"bench-watch-{watchers}")
    ours.empty()
    wanted = {"topics": {ours.topic: {"tail": True}}}
    sessions = [control.call(ours.port, "POST", "/v0/watch", wanted) for _ in range(watchers)]
    bench.course.settle()
    return bench.tools.watch(
        bench.server,
        paths=[f"/v0/watch/{session['wid']}" for session in sessions],
        topic=ours.topic,
        rate=RECORDS_PER_SECOND,
        seconds=bench.pace.seconds * SECONDS_FACTOR,
    )


def row(watchers: int, found: list[Deliveries]) -> Row:
    cpu_us = sum(one.cpu_s for one in found) / sum(one.delivered for one in found) * 1e6
    share = cpu_us * RECORDS_PER_SECOND / 1e6
    return latency_row(
        f"append → delivered, {watchers} event streams",
        p50_us=median(one.p50_us for one in found),
        p99_us=median(one.p99_us for one in found),
        beside=f"server CPU a delivery: {cpu_us:.1f} µs; a watcher at "
        f"{RECORDS_PER_SECOND:.0f} records/s: {share:.4%} of a core",
        most_ms=MOST_MS[watchers],
    )


def latency(bench: Bench, watchers: int) -> Part:
    rounds = min(ROUNDS_MAX, bench.pace.rounds)
    return Part([row(watchers, [one_round(bench, watchers) for _ in range(rounds)])])
