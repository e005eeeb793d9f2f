"""`bulk-load`: files become a new topic, whole or not at all.

    count the rows of each task → take an id → build segments in all tasks → attach

Keeps: the topic is there with every row or is not there. Rows keep the order in which Spark reads
them; with times they are sorted by these. Reference: docs/reference/pipeline-jobs.md.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from topics.clock import Clock, SystemClock
from topics.errors import ConfigError, OptionError, PipelineError, RequestError
from topics.limits import check_topic_name
from topics.model.uploads import BuiltSegment, UploadState
from topics.pipeline.build_segments import SEGMENT_BYTES, Target, build_segments
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.load_input import LoadInput, read_input
from topics.pipeline.options import Token
from topics.pipeline.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SEGMENT_DDL = "segment string"
_log = logging.getLogger("topics.pipeline")


class LoadOptions(Struct, frozen=True, kw_only=True):
    """What is loaded, and what it becomes."""

    url: str
    topic: str
    input: LoadInput
    token: Token | None = None
    config: dict[str, Any] = {}
    segment_bytes: int = SEGMENT_BYTES


class Share(Struct, frozen=True):
    """The rows of one task."""

    first_seq: int
    rows: int


def bulk_load(
    spark: "SparkSession", options: LoadOptions, run: JobRun, *, clock: Clock | None = None
) -> None:
    """Load files into a topic that is not there yet; the summary of the run says what came."""
    _check_name(options.topic)
    ts = (clock or SystemClock()).now_ms()
    frame = read_input(spark, options.input)
    if "ts" in frame.columns:
        # Both passes must see one order, and rows of one time have none.
        frame = frame.persist()
    try:
        shares = plan_shares(count_rows(frame))
        rows = sum(share.rows for share in shares.values())
        run.detail.update(topic=options.topic, tasks=len(shares), records=rows)
        if not rows:
            raise OptionError("there is nothing to load: a topic without records is just created")
        if run.dry_run:
            return
        with closing(Server(options.url, options.token)) as server:
            segments = _load(server, frame, shares, options, ts)
        run.detail.update(segments=len(segments), bytes=sum(segment.bytes for segment in segments))
        run.step(rows=rows)
    finally:
        frame.unpersist()


def _check_name(topic: str) -> None:
    try:
        check_topic_name(topic)
    except RequestError as error:
        raise OptionError(str(error)) from None


def count_rows(frame: "DataFrame") -> dict[int, int]:
    """Count what each task will read."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    counted = frame.groupBy(f.spark_partition_id().alias("task")).count().collect()
    return {row["task"]: row["count"] for row in counted}


def plan_shares(rows: dict[int, int]) -> dict[int, Share]:
    """Give each task its seqs: dense, from 1 on, in the order of tasks."""
    tasks = sorted(rows)
    ends = accumulate((rows[task] for task in tasks), initial=1)
    return {task: Share(first, rows[task]) for task, first in zip(tasks, ends, strict=False)}


def _load(
    server: Server, frame: "DataFrame", shares: dict[int, Share], options: LoadOptions, ts: int
) -> list[BuiltSegment]:
    upload = server.begin_upload(options.topic, options.config)
    if upload.directory is None:
        raise ConfigError(f"{options.url} keeps its data where no other process can write")
    try:
        work = _task(upload, shares, ts=ts, segment_bytes=options.segment_bytes)
        found = frame.mapInArrow(work, _SEGMENT_DDL).collect()
        segments = [msgspec.json.decode(row["segment"], type=BuiltSegment) for row in found]
        segments.sort(key=lambda segment: segment.first_seq)
        server.attach(upload, segments)
    except BaseException:
        _abandon(server, upload)
        raise
    return segments


def _abandon(server: Server, upload: UploadState) -> None:
    """Leave nothing behind; what cannot be removed now, the server removes by age."""
    try:
        server.abandon_upload(upload.upload)
    except (RequestError, PipelineError) as error:
        _log.info("topics: upload %s is left to the server: %s", upload.upload, error)


def _task(
    upload: UploadState, shares: dict[int, Share], *, ts: int, segment_bytes: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what each task does; carried to executors."""

    def build(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - on an executor

        context = TaskContext.get()
        assert context is not None
        share = shares.get(context.partitionId(), Share(1, 0))
        target = Target(
            directory=upload.directory or "",
            topic_id=upload.topic_id,
            first_seq=share.first_seq,
            ts=ts,
            attempt=f"{context.partitionId()}-{context.taskAttemptId()}",
            segment_bytes=segment_bytes,
        )
        built = list(build_segments(batches, target))
        rows = sum(one.last_seq - one.first_seq + 1 for one in built)
        if rows != share.rows:
            raise PipelineError(
                f"task {context.partitionId()} had {share.rows} rows when they were counted and "
                f"{rows} when they were read: the input changed, load it again"
            )
        texts = [msgspec.json.encode(one).decode() for one in built]
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["segment"])

    return build
