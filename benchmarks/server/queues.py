"""Queues: claim and ack, one job a cycle and 100."""

from benchmarks.server import wire
from benchmarks.server.bench import Bench, Part
from benchmarks.server.load import Load
from benchmarks.server.rounds import Pace, measure_loads
from benchmarks.server.stores import TopicsContender
from benchmarks.server.table import Row, milliseconds, rate

CONNECTIONS = 64
JOBS_PER_SECOND = {1: 60_000, 100: 600_000}
"""More than can be acked, by the size of a claim: a queue that runs dry spoils the round."""


def jobs_needed(pace: Pace, batch: int) -> int:
    return int(JOBS_PER_SECOND[batch] * (pace.seconds + pace.warmup)) // 1000 * 1000 + 1000


def cycles(bench: Bench, batch: int) -> Part:
    ours = bench.topics(topic=f"bench-queue-{batch}")
    load = Load(
        port=ours.port,
        protocol="http",
        requests=[
            wire.http_claim(ours.topic, count=batch),
            wire.http_ack(ours.topic, count=batch),
        ],
        records=1,
        connections=CONNECTIONS,
        fill=True,
    )
    found = measure_loads(
        bench.course, {"topics": load}, around=lambda _: refill(bench, ours, batch)
    )["topics"]
    jobs = f"{batch} job{'s' if batch > 1 else ''}"
    a_second = found.rate / 2  # a cycle is two requests
    return Part(
        [
            Row(
                f"queue: claim + ack of {jobs}, {CONNECTIONS} connections",
                f"{rate(a_second)} cycles",
                f"{rate(a_second * batch)} jobs; p50 of a request {milliseconds(found.p50_us)}",
            )
        ],
        driver_cpu=found.driver_cpu,
    )


def refill(bench: Bench, ours: TopicsContender, batch: int) -> None:
    ours.drop()
    ours.create(type="queue", lease_ms=600_000)
    ours.fill(jobs_needed(bench.pace, batch))
