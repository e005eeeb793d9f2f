"""`make bench-engine`: every figure of the engine in one run, beside what it is compared to.

Prints a table and writes it to docs/internals/benchmarks-engine.md. `--quick` takes a tenth of the
data, `--only` one part; neither writes the page.
"""

import argparse
import datetime as dt
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.engine import append, commit, diff, large
from benchmarks.engine.places import data_dir
from topics import kernel
from topics.kernel import IMPLEMENTATION, pure

DISK_LEAST = 2e6
SYNCED_SHARE = 0.6
"""Of what is reached unsynced, in a burst and over a longer run: decision 0034."""
APPENDERS = (1, 2, 4, 8, 16)
"""Threads. Unsynced appends need two, synced ones several that share a sync."""
PAGE = Path(__file__).parents[2] / "docs/internals/benchmarks-engine.md"
INTRODUCTION = """# The engine, measured

Written by `make bench-engine`. Machines differ and wobble: trust the ratios.
"""


class Row(NamedTuple):
    """One figure: what, how much, what it is compared to, and whether the aim is reached."""

    what: str
    measured: str
    beside: str
    aim: str
    reached: bool


def twin_append_rate() -> float:
    """Return the append rate of the pure twin, in a process of its own."""
    code = (
        "from benchmarks.engine.append import records_per_second as rate;"
        "print(rate(durability='disk', threads=1, batches=100))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "TOPICS_PURE_PYTHON": "1"},
    )
    return float(done.stdout)


def best_append_rates(batches: int) -> tuple[float, float]:
    """Return the best rates of `disk` and `fsync`, taken in turns with so many threads each."""
    found: dict[str, list[float]] = {"disk": [], "fsync": []}
    for threads in APPENDERS:
        for durability, rates in [*found.items()] * 2:
            rates.append(
                append.records_per_second(durability=durability, threads=threads, batches=batches)
            )
    return max(found["disk"]), max(found["fsync"])


def append_rows(scale: int) -> list[Row]:
    disk, fsync = best_append_rates(1000 // scale)
    bare = max(commit.bare_records_per_second(batches=1000 // scale) for _ in range(3))
    sustained, sustained_fsync = best_append_rates(5000 // scale)
    twin = twin_append_rate()
    ratio = _times(disk, twin)
    return [
        Row(
            "append, batches of 1000, `disk`",
            _millions(disk),
            "a burst: most of it is in memory",
            f"≥ {DISK_LEAST / 1e6:.0f} M/s",
            disk >= DISK_LEAST,
        ),
        Row("… against the pure twin", ratio, _millions(twin), "≥ 6 ×", disk >= 6 * twin),
        Row(
            "append, batches of 1000, `fsync`",
            _millions(fsync),
            f"{fsync / disk:.0%} of `disk`, {fsync / bare:.0%} of bare writes and syncs",
            f"≥ {SYNCED_SHARE:.0%}",
            fsync >= SYNCED_SHARE * disk,
        ),
        Row(
            "append, `disk`, five times as long",
            _millions(sustained),
            "the copying into segments included",
            "reported",
            reached=True,
        ),
        Row(
            "append, `fsync`, five times as long",
            _millions(sustained_fsync),
            f"{sustained_fsync / sustained:.0%} of `disk`",
            f"≥ {SYNCED_SHARE:.0%}",
            sustained_fsync >= SYNCED_SHARE * sustained,
        ),
    ]


def diff_rows(scale: int) -> list[Row]:
    native = max(diff.projection_rate(kernel, rounds=3000 // scale) for _ in range(3))
    twin = diff.projection_rate(pure, rounds=30)
    whole = max(diff.diff_rate(rounds=2000 // scale) for _ in range(2))
    ratio = _times(native, twin)
    return [
        Row("1000 records to JSON, kernel", _millions(native), "", "≥ 8 M/s", native >= 8e6),
        Row("… against the pure twin", ratio, _millions(twin), "≥ 15 ×", native >= 15 * twin),
        Row("whole `diff` of 1000, verified", _millions(whole), "", "reported", reached=True),
    ]


def commit_rows(_scale: int) -> list[Row]:
    tries = [commit.interleaved_p50_us() for _ in range(3)]
    ours, bare = min(tries, key=lambda pair: pair[0] / pair[1])
    rates = [commit.serial_and_concurrent_rates() for _ in range(3)]
    serial, many = max(rates, key=lambda pair: pair[1] / pair[0])
    return [
        Row(
            "lone `fsync` append, p50",
            f"{ours:.0f} µs",
            f"{ours / bare:.2f} × bare fdatasync ({bare:.0f} µs)",
            "≤ 1.5 ×",
            ours <= 1.5 * bare,
        ),
        Row(
            "64 concurrent `fsync` appenders",
            f"{many:,.0f} /s",
            f"{many / serial:.1f} × serial ({serial:,.0f} /s)",
            "≥ 20 ×",
            many >= 20 * serial,
        ),
    ]


def recovery_row(what: str, seconds: float, most: float) -> Row:
    return Row(what, f"{seconds:.2f} s", "", f"≤ {most} s", seconds <= most)


def large_rows(scale: int) -> list[Row]:
    small, big = 1_000_000 // scale, 10_000_000 // scale
    with data_dir() as path:
        large.fill_and_kill(path, records=small, snapshot=False)
        without = large.recovery_seconds(path, records=small)
    with data_dir() as path:
        large.fill_and_kill(path, records=big, tags=large.TAGS // scale, snapshot=True)
        with_snapshot = large.recovery_seconds(path, records=big)
        found = large.measure_afresh(path)
    return [
        recovery_row(f"open {small:,} records after kill -9, no snapshot", without, 1.5),
        recovery_row(f"open {big:,} records, snapshot and segments", with_snapshot, 3),
        Row(
            f"memory at {big:,} records",
            f"{found.resident_bytes:.1f} B a record",
            f"{found.anonymous_bytes:.1f} B of it is not file pages",
            "≤ 32 B",
            found.resident_bytes <= 32,
        ),
        same_cost_row("append of 1000 to the long topic", found.append_us, 1.25),
        same_cost_row("`diff` near the head of the long topic", found.head_diff_us, 1.25),
        same_cost_row("delete by tag with ten matches", found.tag_delete_us, 3),
    ]


def same_cost_row(what: str, costs: large.Costs, most: float) -> Row:
    ratio = costs.large / costs.small
    beside = f"{ratio:.2f} × the short one ({costs.small:.0f} µs)"
    return Row(what, f"{costs.large:.0f} µs", beside, f"≤ {most} ×", ratio <= most)


def render(rows: list[Row]) -> str:
    lines = ["| what | measured | beside | aim | reached |", "|---|---|---|---|---|"]
    for row in rows:
        verdict = "yes" if row.reached else "**no**"
        lines.append(f"| {row.what} | {row.measured} | {row.beside} | {row.aim} | {verdict} |")
    return "\n".join(lines)


def main() -> int:
    parts: dict[str, Callable[[int], list[Row]]] = {
        "append": append_rows,
        "diff": diff_rows,
        "commit": commit_rows,
        "large": large_rows,
    }
    parser = argparse.ArgumentParser(description="Measure the engine.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--only", choices=list(parts), help="one part")
    chosen = parser.parse_args()
    names = [chosen.only] if chosen.only else list(parts)
    rows = [row for name in names for row in parts[name](10 if chosen.quick else 1)]
    table = render(rows)
    print(f"kernel: {IMPLEMENTATION}\n{table}")
    if not chosen.quick and not chosen.only:
        today = dt.datetime.now(dt.UTC).date().isoformat()
        machine = f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}"
        PAGE.write_text(f"{INTRODUCTION}\n{machine}, kernel {IMPLEMENTATION}.\n\n{table}\n")
    return 0 if all(row.reached for row in rows) else 1


def _millions(rate: float) -> str:
    return f"{rate / 1e6:.2f} M records/s"


def _times(rate: float, other: float) -> str:
    return f"{rate / other:.1f} ×"


if __name__ == "__main__":
    sys.exit(main())
