"""`make bench-pipeline`: every figure of the pipeline in one run, beside what it is compared to.

Prints a table and writes it, with a plot, to docs/internals/benchmarks-pipeline.md. `--records`
takes less data, and then writes no page.
"""

import argparse
import datetime as dt
import os
import platform
import sys
import tempfile
from pathlib import Path

from benchmarks.pipeline import growth, reads, writes
from benchmarks.pipeline.place import Bench, write_lines
from benchmarks.server.plot import Group, draw
from benchmarks.server.table import HEAD, Row
from topics.pipeline import build_session
from topics.testing.server_process import ServerProcess

RECORDS = 2_000_000
DOCS = Path(__file__).parents[2] / "docs/internals"
INTRODUCTION = """# The pipeline, measured

Written by `make bench-pipeline`. Machines differ and wobble: trust the ratios.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-pipeline")
    parser.add_argument("--records", type=int, default=RECORDS)
    count: int = parser.parse_args().records
    os.environ.setdefault("PYTHONPATH", f"{Path(__file__).parents[2] / 'src'}")
    spark = build_session(
        app_name="topics bench",
        master="local[*]",
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "4g",
            "spark.log.level": "ERROR",
        },
    )
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as folder:
        place = Path(folder)
        as_served = {"TOPICS_WAL_FILE_BYTES": "64MiB"}  # a server of a test has small ones
        with ServerProcess(str(place / "data"), settings=as_served) as server:
            rows, groups = run(Bench(spark, server, place), count)
    spark.stop()
    table = "\n".join([HEAD, *(_line(row) for row in rows)])
    print(table)
    if count == RECORDS:
        _save(table, groups, count)
    sys.exit(any(row.reached is False for row in rows))


def run(bench: Bench, count: int) -> tuple[list[Row], list[Group]]:
    write_lines(bench.folder / "large", count)
    write_lines(bench.folder / "small", count // 10)
    bench.load("small", "warm-up")
    small_load_s = min(bench.load("small", name) for name in ("small", "small-2"))
    large_load_s = min(bench.load("large", name) for name in ("large", "large-2"))
    rows: list[Row] = list(
        growth.measure(bench, small_load_s=small_load_s, large_load_s=large_load_s)
    )
    _show(rows)
    groups: list[Group] = []
    for part in (reads.measure(bench, count), writes.measure(bench, count, load_s=large_load_s)):
        for row, group in part:
            _show([row])
            rows.append(row)
            groups += [group] if group is not None else []
    return rows, groups


def _show(rows: list[Row]) -> None:
    for row in rows:
        print(_line(row), file=sys.stderr, flush=True)


def _line(row: Row) -> str:
    reached = {True: "yes", False: "**no**", None: ""}[row.reached]
    return f"| {row.what} | {row.ours} | {row.beside} | {row.ratio} | {row.aim} | {reached} |"


def _save(table: str, groups: list[Group], count: int) -> None:
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    said = (
        f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}, {count:,} records "
        "of 200 bytes of JSON. Scans: best of three, frames loaded before. Loads (lines without "
        "tags) and the sink: better of two. The audit: once. Spark prunes no columns of a topic "
        "by itself: without a schema `count()` reads everything, as the scan of all columns "
        "does.\n"
    )
    image = "![The same as bars](benchmarks-pipeline.svg)"
    (DOCS / "benchmarks-pipeline.svg").write_text(draw(groups))
    page = f"{INTRODUCTION}\n{said}\n{table}\n\n{image}\n"
    (DOCS / "benchmarks-pipeline.md").write_text(page)


if __name__ == "__main__":
    main()
