"""Reading every frame, on executors: tasks of many segments each, by size."""

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from topics.errors import OptionError
from topics.operate.report import Finding, shorten
from topics.operate.segment_files import Place, check_segment_files
from topics.pipeline.audit.plan import AuditJob, Checked, SegmentJob, Tail
from topics.pipeline.audit.tail import check_tail
from topics.pipeline.local_files import file_exists
from topics.storage.disk.local_disk import LocalDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES: Final = 256 << 20
"""A task of Spark costs 50 ms whatever it does."""
_DDL: Final = "checked string"


def check_segments(
    spark: "SparkSession", jobs: Sequence[AuditJob], *, min_tasks: int
) -> list[Checked]:
    """Read all segments in parallel."""
    tasks = deal(jobs, min_tasks=min_tasks)
    if not tasks:
        return []
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_task(tasks), _DDL)
    return [msgspec.json.decode(row["checked"], type=Checked) for row in frame.collect()]


def deal(jobs: Sequence[AuditJob], *, min_tasks: int) -> list[list[AuditJob]]:
    """Deal segments, the largest first, so that all tasks read about as much."""
    total = sum(job.bytes for job in jobs)
    count = min(len(jobs), max(min_tasks, -(-total // TASK_BYTES)))
    tasks: list[list[AuditJob]] = [[] for _ in range(count)]
    sizes = [0] * count
    for job in sorted(jobs, key=lambda job: (-job.bytes, job.topic, job.first_seq)):
        least = sizes.index(min(sizes))
        tasks[least].append(job)
        sizes[least] += job.bytes + 1
    return tasks


def check_any(job: AuditJob) -> Checked:
    return check_tail(job) if isinstance(job, Tail) else check_job(job)


def check_job(job: SegmentJob) -> Checked:
    """Read one segment as if every byte of it could be wrong."""
    for path in (job.data, job.idx):
        folder = path.rpartition("/")[0]
        if not file_exists(folder):
            raise OptionError(
                f"{folder} is not there on {socket.gethostname()}: run executors where the data "
                "and cold directories are, or share them"
            )
    disk = LocalDisk("/", name="/")
    found = check_segment_files(
        job.expected,
        data=Place(disk, job.data.strip("/")),
        idx=Place(disk, job.idx.strip("/")),
        copy=None if job.copy is None else Place(disk, job.copy.strip("/")),
    )
    first_seq = job.expected.first_seq
    files = [msgspec.structs.replace(file, path=f"/{file.path}") for file in found.files]
    if job.last_seq is not None and found.records != job.last_seq - first_seq + 1:
        message = f"{found.records} records where its owner says that it ends at {job.last_seq}"
        finding = Finding(message=message, first_seq=first_seq, last_seq=job.last_seq)
        verdict = "damaged" if files[0].verdict in ("ok", "torn") else files[0].verdict
        files[0] = msgspec.structs.replace(
            files[0], verdict=verdict, findings=shorten([finding, *files[0].findings])
        )
    return Checked(topic=job.topic, first_seq=first_seq, records=found.records, files=files)


def _task(
    tasks: list[list[AuditJob]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                texts = [msgspec.json.encode(check_any(job)).decode() for job in tasks[number]]
                yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["checked"])

    return check
