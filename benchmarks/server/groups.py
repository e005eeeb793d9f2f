"""Groups: a poll of 100 records and a commit that is synced, in turns."""

import json

from benchmarks.server import control, wire
from benchmarks.server.bench import Bench, Part
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.load import Load
from benchmarks.server.rounds import measure_loads
from benchmarks.server.table import Row, milliseconds, rate

CONNECTIONS = 64
LIMIT = 100
POSITIONS = 32
"""Commits go round in so many positions: one that moves nothing would write nothing."""
SESSION_MS = 300_000


def cycles(bench: Bench) -> Part:
    ours = bench.topics(topic="bench-group")
    ours.empty()
    ours.fill(1000)
    reader = {"member": "m", "topics": [ours.topic], "session_ms": SESSION_MS}
    joined = control.call(ours.port, "POST", "/v0/groups/bench-readers/join", reader)
    body = {
        "member": "m",
        "generation": joined["generation"],
        "limit": LIMIT,
        "positions": {ours.topic: {"0": 0}},
    }
    page = control.call(ours.port, "POST", "/v0/groups/bench-readers/poll", body)
    if len(page["batches"][0]["records"]) != LIMIT:
        raise CannotMeasure(f"a poll gave {len(page['batches'][0]['records'])} records")
    poll = wire.http("POST", "/v0/groups/bench-readers/poll", json.dumps(body).encode())
    requests = []
    for position in range(1, POSITIONS + 1):
        offsets = json.dumps({"offsets": {ours.topic: {"0": position}}}).encode()
        # As an operator of another group: only so a position may go back and round again.
        requests += [poll, wire.http("POST", "/v0/groups/bench-progress/commit", offsets)]
    load = Load(
        port=ours.port,
        protocol="http",
        requests=requests,
        records=1,
        connections=CONNECTIONS,
    )
    found = measure_loads(bench.course, {"topics": load})["topics"]
    ours.drop()
    a_second = found.rate / 2  # a cycle is two requests
    return Part(
        [
            Row(
                f"group: poll of {LIMIT} records + synced commit, {CONNECTIONS} connections",
                f"{rate(a_second)} cycles",
                f"{rate(a_second * LIMIT)} records; p50 of a request {milliseconds(found.p50_us)}",
            )
        ],
        driver_cpu=found.driver_cpu,
    )
