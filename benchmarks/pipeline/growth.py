"""Ten times the data: at most eleven times the time, and no more memory."""

import resource
from collections.abc import Iterable, Iterator

import pyarrow as pa

from benchmarks.pipeline.place import Bench, best_s, scan
from benchmarks.server.table import Row, times

TIME_AIM = 11.0
MEMORY_AIM = 1.25


def measure(bench: Bench, *, small_load_s: float, large_load_s: float) -> Iterator[Row]:
    frames = bench.topic("small"), bench.topic("large")
    small = best_s(lambda: scan(frames[0]))
    small_kib = worker_kib(bench)
    large = best_s(lambda: scan(frames[1]))
    large_kib = worker_kib(bench)
    yield _row("scan of ten times the records", large / small)
    yield _row("bulk-load of ten times the records", large_load_s / small_load_s)
    grown = large_kib / small_kib
    yield Row(
        "memory of a worker, ten times the records", f"{large_kib >> 10} MiB",
        f"{small_kib >> 10} MiB", times(grown), f"≤ {MEMORY_AIM:g} ×", grown <= MEMORY_AIM,
    )  # fmt: skip


def _row(what: str, ratio: float) -> Row:
    return Row(what, "", "", times(ratio), f"≤ {TIME_AIM:g} ×", ratio <= TIME_AIM)


def worker_kib(bench: Bench) -> int:
    """Return the most that a Python worker has ever taken."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            yield pa.RecordBatch.from_arrays([pa.array([most])], names=["kib"])

    found = bench.spark.range(0, 8, 1, 8).mapInArrow(look, "kib bigint").collect()
    return max(int(row["kib"]) for row in found)
