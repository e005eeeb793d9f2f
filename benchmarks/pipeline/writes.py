"""Writes: the sink, bulk-load beside it, and an audit of what they left."""

import time
from collections.abc import Iterator

from benchmarks.pipeline.place import Bench
from benchmarks.server.plot import Group
from benchmarks.server.table import Row, rate, ratio_row
from topics.pipeline.jobs.audit import AuditOptions, audit
from topics.pipeline.jobs.job import JobRun

SINK_AIM = 200_000
AUDIT_AIM_BYTES = 1e9 / 60


def measure(bench: Bench, count: int, *, load_s: float) -> Iterator[tuple[Row, Group | None]]:
    sink = count / min(_sink_s(bench, f"sink-{i}") for i in range(2))
    yield (
        Row("sink, one `disk` topic", rate(sink), "", "", f"≥ {rate(SINK_AIM)}", sink >= SINK_AIM),
        None,
    )
    loaded = count / load_s
    yield (
        ratio_row("bulk-load", ours=loaded, other=sink, other_name="sink", least=3),
        Group("Writing", [("topics, bulk-load", loaded), ("topics, sink", sink)]),
    )
    with JobRun("audit") as run:
        started = time.perf_counter()
        report = audit(bench.spark, AuditOptions(url=bench.server.url), run)
        seconds = time.perf_counter() - started
    assert report.healthy, report
    speed = report.bytes / seconds
    yield (
        Row(
            "audit", f"{speed * 60 / 1e9:.1f} GB/min", f"{report.bytes / 1e9:.2f} GB", "",
            "≥ 1 GB/min", speed >= AUDIT_AIM_BYTES,
        ),
        None,
    )  # fmt: skip


def _sink_s(bench: Bench, topic: str) -> float:
    frame = bench.spark.read.text(str(bench.folder / "large")).withColumnRenamed("value", "data")
    started = time.perf_counter()
    frame.write.format("topics").options(url=bench.server.url, topic=topic).mode("append").save()
    return time.perf_counter() - started
