"""A topic of ten million records: recovery, memory, and what costs the same as in an empty one."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import topics
from benchmarks.engine.append import microseconds_per_batch
from benchmarks.engine.diff import microseconds_near_head
from benchmarks.engine.payloads import body

_TAG_NUMBERS = count(200, 40)
TAGS = 1_000_000
FILL = """
import os, sys, topics
from benchmarks.engine.payloads import BATCH, body
path, records, tags = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
snapshot = sys.argv[4] == "snapshot"
never = dict(checkpoint_ms=86_400_000, checkpoint_bytes=1 << 40, snapshot_ms=86_400_000,
             snapshot_wal_bytes=1 << 40, tail_cache_bytes=1 << 40)
log = topics.open(path, **({} if snapshot else never))
log.create("large", durability="disk")
if tags:
    bodies = [body(i * BATCH, tags=tags) for i in range(tags // BATCH)]
else:
    bodies = [body()]
for i in range(records // BATCH):
    log.append_json("large", bodies[i % len(bodies)])
if snapshot:
    log.checkpoint()
    for i in range(10):
        log.append_json("large", bodies[i % len(bodies)])
os.kill(os.getpid(), 9)
"""


def fill_and_kill(path: str, *, records: int, tags: int = 0, snapshot: bool) -> None:
    """Fill a directory in a process of its own that ends by SIGKILL."""
    mode = "snapshot" if snapshot else "none"
    command = [sys.executable, "-c", FILL, path, str(records), str(tags), mode]
    done = subprocess.run(command, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -9, f"the filling process ended with {done.returncode}"
    os.sync()  # nothing that is measured waits for what was written here


def recovery_seconds(path: str, *, records: int) -> float:
    """Return how long `topics.open` takes, and check that everything is there."""
    started = time.perf_counter()
    log = topics.open(path)
    elapsed = time.perf_counter() - started
    state = log.state("large")
    assert state.count >= records, state
    log.close()
    return elapsed


class Costs(NamedTuple):
    """Median microseconds of one operation in the long topic and in a short one."""

    large: float
    small: float


class Found(NamedTuple):
    """What was measured of the long topic."""

    anonymous_bytes: float
    resident_bytes: float
    append_us: Costs
    head_diff_us: Costs
    tag_delete_us: Costs


def measure(path: str) -> Found:
    """Return memory per record and costs, each beside the same in a short topic."""
    before = _memory()
    log = topics.open(path)
    records = log.state("large").count
    after = _memory()
    log.create("short", durability="disk")
    for _ in range(10):
        log.append_json("short", body(0, tags=1000))
    log.checkpoint()
    append_us = _in_turns(lambda name: microseconds_per_batch(log, name, batches=100))
    head_diff_us = _in_turns(lambda name: microseconds_near_head(log, name, rounds=300))
    log.checkpoint()
    log.engine.maintain()
    os.sync()  # no delete waits for segments and tags of what was appended
    found = Found(
        anonymous_bytes=(after[0] - before[0]) / records,
        resident_bytes=(after[1] - before[1]) / records,
        append_us=append_us,
        head_diff_us=head_diff_us,
        tag_delete_us=_in_turns(lambda name: _tag_delete_us(log, name)),
    )
    log.close()
    return found


def measure_afresh(path: str) -> Found:
    """Measure in a process of its own: in one that has worked, freed memory hides what is new."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, path).result()


def _in_turns(cost_us: Callable[[str], float]) -> Costs:
    """Measure both topics twice, in turns, and keep the lower figure of each."""
    runs = [(cost_us("large"), cost_us("short")) for _ in range(2)]
    return Costs(min(run[0] for run in runs), min(run[1] for run in runs))


def _tag_delete_us(log: topics.Log, name: str) -> float:
    """Return the median time of a delete by tag that matches ten records or more."""
    first = next(_TAG_NUMBERS)
    times = []
    for number in range(first, first + 40):
        started = time.perf_counter()
        deleted = log.delete(name, match=f"customer:{number:07d}").deleted
        times.append(time.perf_counter() - started)
        assert deleted >= 10, (name, number, deleted)
    return sorted(times)[len(times) // 2] * 1e6


def _memory() -> tuple[int, int]:
    """Return anonymous and whole resident bytes of this process."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    )
    return _kib(fields["RssAnon"]) * 1024, _kib(fields["VmRSS"]) * 1024


def _kib(text: str) -> int:
    return int(text.split(maxsplit=1)[0])
