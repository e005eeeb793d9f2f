"""Reads: pages of 1000 records, `diff` beside XRANGE."""

from benchmarks.server.bench import Bench, Part, group
from benchmarks.server.load import Load
from benchmarks.server.rounds import measure_loads
from benchmarks.server.table import absent_row, ratio_row

WHAT = "pages of 1000 records, 16 connections"
RECORDS = 50_000
LIMIT = 1000
CONNECTIONS = 16
LEAST = 2.5


def pages(bench: Bench) -> Part:
    ours, redis = bench.topics(topic="bench-pages"), bench.redis()
    loads: dict[str, Load] = {}
    for one in (ours, redis):
        if one is not None:
            one.empty()
            one.fill(RECORDS)
            loads[one.name] = one.pages(records=RECORDS, limit=LIMIT, connections=CONNECTIONS)
    found = measure_loads(bench.course, loads)
    mine = found[ours.name]
    if redis is None:
        row = absent_row(WHAT, "Redis XRANGE", bench.why_missing(["Redis everysec"]))
    else:
        other = found[redis.name].rate
        row = ratio_row(WHAT, ours=mine.rate, other=other, other_name="Redis XRANGE", least=LEAST)
    return Part([row], [group(WHAT, found)], mine.driver_cpu)
