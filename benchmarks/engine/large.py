"""A topic of ten million records: recovery, memory, and what costs the same as in an empty one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import topics
from benchmarks.engine.append import microseconds_per_batch
from benchmarks.engine.diff import microseconds_near_head
from benchmarks.engine.payloads import BATCH, body

TAGS = 1_000_000
FILL = """
import os, sys, topics
from benchmarks.engine.payloads import BATCH, body
path, records, tags, snapshot = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "snapshot"
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


def recovery_seconds(path: str, *, records: int) -> float:
    """Return how long `topics.open` takes, and check that everything is there."""
    started = time.perf_counter()
    log = topics.open(path)
    elapsed = time.perf_counter() - started
    state = log.state("large")
    assert state.count >= records, state
    log.engine.abandon()
    return elapsed


def measure(path: str) -> dict[str, float]:
    """Return memory per record and costs, each beside the same in an empty topic."""
    before = _memory()
    log = topics.open(path)
    state = log.state("large")
    after = _memory()
    anonymous, whole = after[0] - before[0], after[1] - before[1]
    log.create("empty", durability="disk")
    for _ in range(20):
        log.append_json("empty", body())
    result = {
        "records": float(state.count),
        "anonymous_bytes_per_record": anonymous / state.count,
        "resident_bytes_per_record": whole / state.count,
    }
    costs = {"large": 0.0, "empty": 0.0}
    for name in ("empty", "large", "empty", "large"):
        costs[name] = microseconds_per_batch(log, name, batches=100)
    result["append_us_large"], result["append_us_empty"] = costs["large"], costs["empty"]
    for name in ("empty", "large"):
        result[f"head_diff_us_{name}"] = microseconds_near_head(log, name, rounds=300)
    result |= _tag_deletes(log)
    log.close()
    return result


def _tag_deletes(log: topics.Log) -> dict[str, float]:
    """Delete tags of about ten records each in a short and in the long topic."""
    log.create("short", durability="disk")
    for turn in range(10):
        log.append_json("short", body(0, tags=1000))
        assert turn < 10
    log.engine.checkpoint()
    log.engine.maintain()
    result = {}
    for name in ("short", "large"):
        times = []
        for number in range(200, 240):
            started = time.perf_counter()
            deleted = log.delete(name, match=f"customer:{number:07d}").deleted
            times.append(time.perf_counter() - started)
            assert deleted >= 10, (name, number, deleted)
        result[f"tag_delete_us_{name}"] = sorted(times)[len(times) // 2] * 1e6
    return result


def _memory() -> tuple[int, int]:
    """Return anonymous and whole resident bytes of this process."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    )
    return _kib(fields["RssAnon"]) * 1024, _kib(fields["VmRSS"]) * 1024


def _kib(text: str) -> int:
    return int(text.split()[0])


assert BATCH > 0
