"""Scans: a topic beside JSON lines and Parquet with the same records; files beside HTTP."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.pipeline.place import Bench, best_s, scan
from benchmarks.server.plot import Group
from benchmarks.server.table import Row, ratio_row
from topics.pipeline.decode import Decoder
from topics.pipeline.http_reader import read_http
from topics.pipeline.offsets import Part
from topics.pipeline.plan import Piece, Span
from topics.pipeline.push_down import Bounds
from topics.pipeline.schema import ROW_DDL
from topics.pipeline.segment_reader import read_segment
from topics.pipeline.server import Server
from topics.pipeline.worker import settle_worker


def measure(bench: Bench, count: int) -> Iterator[tuple[Row, Group | None]]:
    parquet = str(bench.folder / "parquet")
    bench.topic("large").write.option("compression", "zstd").parquet(parquet)
    frames = bench.topic("large"), bench.lines("large"), bench.spark.read.parquet(parquet)
    topic = count / best_s(lambda: scan(frames[0]))
    lines = count / best_s(lambda: scan(frames[1]))
    table = count / best_s(lambda: scan(frames[2]))
    yield (
        ratio_row(
            "scan, all columns, verified", ours=topic, other=lines, other_name="JSON lines, typed",
            least=1.5,
        ),
        Group(
            "Scan of all columns",
            [("topics", topic), ("JSON lines", lines), ("Parquet zstd", table)],
        ),
    )  # fmt: skip
    yield (
        ratio_row("… the same", ours=topic, other=table, other_name="Parquet zstd", least=0.5),
        None,
    )
    counted = count / best_s(bench.topic("large", "seq bigint").count)
    counted_lines = count / best_s(frames[1].count)
    yield (
        ratio_row(
            "`count()`, `seq` asked for",
            ours=counted,
            other=counted_lines,
            other_name="JSON lines",
            least=3,
        ),
        Group("count()", [("topics", counted), ("JSON lines", counted_lines)]),
    )
    bare = bench.topic("large", "seq bigint, ts timestamp")
    free = count / best_s(lambda: scan(bare))
    yield (
        ratio_row(
            "scan of `seq` and `ts` alone", ours=free, other=counted_lines,
            other_name="JSON lines, count", least=3,
        ),
        None,
    )  # fmt: skip
    yield transports(bench)


def transports(bench: Bench) -> tuple[Row, Group | None]:
    """Compare files with HTTP by what both cost: CPU of the reader and of the server."""
    settle_worker()  # as every task does
    with closing(Server(bench.server.url)) as server:
        manifest = server.manifest("large")
        part = Part("large", "large")
        sealed = [s for s in manifest.segments if s.location is not None][:4]
        span = Span(part, manifest.epoch, sealed[0].first_seq, sealed[-1].last_seq)
        row_type = StructType.fromDDL(ROW_DDL)
        assert isinstance(row_type, StructType)
        schema = to_arrow_schema(row_type, timezone="UTC")
        decoder = Decoder(schema, Bounds(), verify=True)
        records = span.last_seq - span.first_seq + 1

        def by_files() -> None:
            for one in sealed:
                assert one.location is not None
                piece = Piece(
                    Span(part, manifest.epoch, one.first_seq, one.last_seq),
                    data=one.location.data,
                    idx=one.location.idx,
                    file_first_seq=one.first_seq,
                )
                assert sum(b.num_rows for _, b in read_segment(piece, decoder) if b) == one.records

        def by_http() -> None:
            for _ in read_http(span, server, decoder):
                pass

        files = records / _cpu_s(bench, by_files)
        http = records / _cpu_s(bench, by_http)
    return (
        ratio_row("files, per core", ours=files, other=http, other_name="HTTP, per core", least=5),
        Group("Transport, per core", [("topics, files", files), ("topics, HTTP", http)]),
    )


def _cpu_s(bench: Bench, work: object) -> float:
    assert callable(work)
    found = []
    for _ in range(3):
        before = time.process_time() + _server_cpu_s(bench.server.pid)
        work()
        found.append(time.process_time() + _server_cpu_s(bench.server.pid) - before)
    return min(found)


def _server_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
