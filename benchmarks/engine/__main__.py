"""`make bench-engine`: every figure of the engine in one run, each beside what it is compared to.

Prints a table and writes it to docs/internals/benchmarks-engine.md. `--quick` uses a tenth of the data.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.engine import append, commit, diff, large
from benchmarks.engine.places import data_dir
from topics.kernel import IMPLEMENTATION, pure

PAGE = Path(__file__).parents[2] / "docs/internals/benchmarks-engine.md"


class Row(NamedTuple):
    """One figure: what, how much, what it is compared to, and whether the aim is reached."""

    what: str
    measured: str
    compared: str
    aim: str
    reached: bool


def twin_append_rate() -> float:
    """Return the append rate of the pure twin, in a process of its own."""
    code = (
        "from benchmarks.engine.append import records_per_second as r;"
        "print(r(durability='disk', threads=1, batches=100))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "TOPICS_PURE_PYTHON": "1"},
    )
    return float(done.stdout)


def append_rows(scale: int) -> list[Row]:
    best = {"disk": 0.0, "fsync": 0.0}
    for _ in range(3):
        for durability in best:
            for threads in (1, 2, 4):
                rate = append.records_per_second(
                    durability=durability, threads=threads, batches=3000 // scale
                )
                best[durability] = max(best[durability], rate)
    twin = twin_append_rate()
    disk, fsync = best["disk"], best["fsync"]
    return [
        Row("append, batches of 1000, `disk`", f"{disk / 1e6:.2f} M records/s", "", "≥ 2 M/s", disk >= 2e6),
        Row("… against the pure twin", f"{disk / twin:.1f} ×", f"{twin / 1e6:.3f} M/s", "≥ 6 ×", disk >= 6 * twin),
        Row("append, batches of 1000, `fsync`", f"{fsync / 1e6:.2f} M records/s", f"{fsync / disk:.0%} of `disk`", "≥ 60 %", fsync >= 0.6 * disk),
    ]


def diff_rows(scale: int) -> list[Row]:
    from topics import kernel

    native = max(diff.projection_rate(kernel, rounds=3000 // scale) for _ in range(3))
    twin = diff.projection_rate(pure, rounds=30)
    whole = max(diff.diff_rate(rounds=2000 // scale) for _ in range(2))
    return [
        Row("projection of 1000 records to JSON", f"{native / 1e6:.1f} M records/s", "", "≥ 8 M/s", native >= 8e6),
        Row("… against the pure twin", f"{native / twin:.0f} ×", f"{twin / 1e6:.2f} M/s", "≥ 15 ×", native >= 15 * twin),
        Row("whole `diff` of 1000, checksums verified", f"{whole / 1e6:.1f} M records/s", "", "reported", reached=True),
    ]


def commit_rows() -> list[Row]:
    tries = [commit.interleaved_p50_us() for _ in range(3)]
    ours, bare = min(tries, key=lambda pair: pair[0] / pair[1])
    rates = [commit.serial_and_concurrent_rates() for _ in range(3)]
    serial, many = max(rates, key=lambda pair: pair[1] / pair[0])
    return [
        Row("lone `fsync` append, p50", f"{ours:.0f} µs", f"{ours / bare:.2f} × bare fdatasync ({bare:.0f} µs)", "≤ 1.5 ×", ours <= 1.5 * bare),
        Row("64 concurrent `fsync` appenders", f"{many:,.0f} /s", f"{many / serial:.1f} × serial ({serial:,.0f} /s)", "≥ 20 ×", many >= 20 * serial),
    ]


def large_rows(scale: int) -> list[Row]:
    small, big = 1_000_000 // scale, 10_000_000 // scale
    with data_dir() as path:
        large.fill_and_kill(path, records=small, snapshot=False)
        without = large.recovery_seconds(path, records=small)
    with data_dir() as path:
        large.fill_and_kill(path, records=big, tags=large.TAGS // scale, snapshot=True)
        with_snapshot = large.recovery_seconds(path, records=big)
        found = large.measure(path)
    append_ratio = found["append_us_large"] / found["append_us_empty"]
    diff_ratio = found["head_diff_us_large"] / found["head_diff_us_empty"]
    tag_ratio = found["tag_delete_us_large"] / found["tag_delete_us_short"]
    resident = found["resident_bytes_per_record"]
    return [
        Row(f"recovery of {small:,} records after kill -9, no snapshot", f"{without:.2f} s", "", "≤ 1.5 s", without <= 1.5),
        Row(f"recovery of {big:,} records with snapshot and segments", f"{with_snapshot:.2f} s", "", "≤ 3 s", with_snapshot <= 3),
        Row(f"memory at {big:,} records", f"{resident:.1f} B a record", f"of it {found['anonymous_bytes_per_record']:.1f} B not file pages", "≤ 32 B", resident <= 32),
        Row("append to the long topic", f"{found['append_us_large']:.0f} µs a batch", f"{append_ratio:.2f} × an empty one", "about 1 ×", append_ratio <= 1.25),
        Row("`diff` near the head of the long topic", f"{found['head_diff_us_large']:.0f} µs", f"{diff_ratio:.2f} × a short one", "about 1 ×", diff_ratio <= 1.25),
        Row("delete by tag, ten matches, long topic", f"{found['tag_delete_us_large']:.0f} µs", f"{tag_ratio:.2f} × a short one", "by matches", tag_ratio <= 3),
    ]


def render(rows: list[Row]) -> str:
    lines = ["| what | measured | beside | aim | reached |", "|---|---|---|---|---|"]
    lines += [f"| {r.what} | {r.measured} | {r.compared} | {r.aim} | {'yes' if r.reached else '**no**'} |" for r in rows]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the engine.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data; the page is not written")
    parser.add_argument("--only", choices=["append", "diff", "commit", "large"], help="one part; the page is not written")
    chosen = parser.parse_args()
    scale = 10 if chosen.quick else 1
    parts = {
        "append": lambda: append_rows(scale),
        "diff": lambda: diff_rows(scale),
        "commit": commit_rows,
        "large": lambda: large_rows(scale),
    }
    names = [chosen.only] if chosen.only else list(parts)
    rows = [row for name in names for row in parts[name]()]
    table = render(rows)
    print(f"kernel: {IMPLEMENTATION}\n{table}")
    if not chosen.quick and not chosen.only:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        PAGE.write_text(
            "# The engine, measured\n\nWritten by `make bench-engine`. Machines differ and wobble; trust the ratios.\n\n"
            f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}, kernel {IMPLEMENTATION}.\n\n{table}\n"
        )
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
