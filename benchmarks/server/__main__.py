"""`make bench`: the server beside its peers on this machine, in one run, as ratios.

Prints a table and writes it, with a plot, to docs/internals/benchmarks-server.md. `--quick` takes
short and few rounds, `--only` the parts with a word in their name; neither writes the page. Ends
with 1 when an aim is missed.
"""

import argparse
import datetime as dt
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.engine.places import data_dir
from benchmarks.server import (
    groups,
    partitions,
    plot,
    queues,
    reads,
    routers,
    table,
    watch,
    writes,
)
from benchmarks.server.bench import Bench, Part
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.load import Tools
from benchmarks.server.peers import Peers
from benchmarks.server.rounds import FULL, QUICK
from topics.kernel import IMPLEMENTATION

PAGE = Path(__file__).parents[2] / "docs/internals/benchmarks-server.md"
INTRODUCTION = """# The server, measured

Written by `make bench`. All contenders take the same 200-byte payloads over loopback, on the same
disk, from the same load driver in C, in turns; figures are medians of the rounds, in records a
second. Machines differ and wobble: trust the ratios. A batch is one request to `topics`, a pipeline
to Redis, that many publishes under way to JetStream. Each begins with an empty log, when no other
server works any more, and must hold afterwards what it acknowledged.

`topics`, Redis and JetStream keep their data on the same file system; `disk` stands beside
`appendfsync everysec` and JetStream as it comes, `fsync` beside `always`. Redis and JetStream are
Debian's. Its nats-server is 2.9, which cannot sync before it answers; 2.15, where Go could build
it, is reported beside it, and is the one that is synced `always`. The C responder and nginx keep
nothing: they show what HTTP alone costs. uvicorn and granian run our append on an ASGI app of a few
lines (`benchmarks/server/asgi_app.py`).
The client of the event streams never sleeps, so that no figure holds the time to wake it.

![bars for every comparison](benchmarks-server.svg)
"""
DRIVER_CPU_MOST = 0.95
BUSY_LOAD = 0.7

PARTS: dict[str, Callable[[Bench], Part]] = {
    **{scenario.what: partial(writes.rates, scenario=scenario) for scenario in writes.SCENARIOS},
    writes.LONE.what: writes.lone_latency,
    partitions.WHAT: partitions.spread,
    reads.WHAT: reads.pages,
    "watch 100": partial(watch.latency, watchers=100),
    "watch 1000": partial(watch.latency, watchers=1000),
    "queue, single jobs": partial(queues.cycles, batch=1),
    "queue, 100 jobs": partial(queues.cycles, batch=100),
    "group": groups.cycles,
    "router, single records": partial(routers.fan_out, batch=1),
    "router, batches": partial(routers.fan_out, batch=100),
}


def run_part(bench: Bench, name: str) -> Part:
    print(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {name}", file=sys.stderr)
    try:
        return PARTS[name](bench)
    except CannotMeasure as reason:
        return Part([table.failed_row(name, str(reason))])


def driver_row(parts: list[Part]) -> table.Row:
    """Return how busy the load driver was at most: below one core, it waited for the server."""
    busiest = max(part.driver_cpu for part in parts)
    return table.Row(
        "the load driver beside `topics`, at its busiest",
        f"{busiest:.0%} of a core",
        aim=f"≤ {DRIVER_CPU_MOST:.0%}",
        reached=busiest <= DRIVER_CPU_MOST,
    )


def raise_file_limit() -> None:
    """Allow as many open files as we may: a thousand watchers are a thousand sockets."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def warn_when_busy() -> None:
    busy = os.getloadavg()[0]
    if busy > BUSY_LOAD:
        print(f"the machine is busy (load {busy:.1f}): do not trust this run", file=sys.stderr)


def measure(names: list[str], *, quick: bool) -> list[Part]:
    with data_dir() as path, ExitStack() as stack:
        folder = Path(path)
        tools = Tools(folder)
        peers = Peers(folder, tools, stack)
        for name, reason in peers.missing.items():
            print(f"without {name}: {reason}", file=sys.stderr)
        bench = Bench(tools, peers, QUICK if quick else FULL)
        return [run_part(bench, name) for name in names]


def write_page(rendered: str, parts: list[Part]) -> None:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    machine = f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}"
    PAGE.write_text(f"{INTRODUCTION}\n{machine}, kernel {IMPLEMENTATION}.\n\n{rendered}\n")
    groups = [group for part in parts for group in part.groups]
    PAGE.with_suffix(".svg").write_text(plot.draw(groups))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the server beside its peers.")
    parser.add_argument("--quick", action="store_true", help="short rounds, two of each")
    parser.add_argument("--only", metavar="WORD", help="the parts with this in their name")
    chosen = parser.parse_args()
    names = [name for name in PARTS if not chosen.only or chosen.only in name]
    if not names:
        parser.error(f"no part has {chosen.only!r} in its name; there are: {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers are stopped then too
    raise_file_limit()
    warn_when_busy()
    parts = measure(names, quick=chosen.quick)
    rows = [*(row for part in parts for row in part.rows), driver_row(parts)]
    rendered = table.render(rows)
    print(rendered)
    if not chosen.quick and not chosen.only:
        write_page(rendered, parts)
    return 0 if table.all_reached(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
