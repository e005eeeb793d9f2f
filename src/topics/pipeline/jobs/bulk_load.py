"""`bulk-load`: files become a new topic, whole or not at all.

    count the rows of each task → take an id → build segments in all tasks → attach

Keeps: the topic is there with every row or is not there. Lines keep their order, files are taken
by name; with times rows are sorted by these. Reference: docs/reference/pipeline-jobs.md.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
from msgspec import Struct

from topics.clock import Clock, SystemClock
from topics.errors import ConfigError, OptionError, PipelineError, RequestError
from topics.kernel import Columns
from topics.limits import check_topic_name
from topics.model.uploads import BuiltSegment, UploadState
from topics.pipeline.build_segments import SEGMENT_BYTES, Target, build_segments, to_columns
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.letter_meta import settle_letters
from topics.pipeline.lines import LineRange, count_lines, pack_ranges, plan_ranges, read_lines
from topics.pipeline.load_input import LoadInput, check_input, read_input
from topics.pipeline.options import Token
from topics.pipeline.server import Server
from topics.pipeline.worker import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DDL = "text string"
_log = logging.getLogger("topics.pipeline")


class LoadOptions(Struct, frozen=True, kw_only=True):
    """What is loaded, and what it becomes."""

    url: str
    topic: str
    input: LoadInput
    token: Token | None = None
    config: dict[str, Any] = {}
    segment_bytes: int = SEGMENT_BYTES
    drop_dead_letter_meta: bool = False


class Share(Struct, frozen=True):
    """The rows of one task."""

    first_seq: int
    rows: int


class Rows(Protocol):
    """What is loaded, in tasks that see the same rows whenever they run."""

    def count(self) -> dict[int, int]:
        """Count the rows of each task."""

    def run(self, work: "Work") -> list[str]:
        """Let every task work on its rows, as columns; return what all of them say."""

    def close(self) -> None: ...


Work = Callable[[int, Iterable[Columns]], Iterable[str]]
"""Takes the number of a task and its rows."""


def bulk_load(
    spark: "SparkSession", options: LoadOptions, run: JobRun, *, clock: Clock | None = None
) -> None:
    """Load files into a topic that is not there yet; the summary of the run says what came."""
    check_load(options)
    ts = (clock or SystemClock()).now_ms()
    with closing(_open(spark, options, ts)) as rows:
        shares = plan_shares(rows.count())
        total = sum(share.rows for share in shares.values())
        run.detail.update(topic=options.topic, tasks=len(shares), records=total)
        if not total:
            raise OptionError("there is nothing to load: a topic without records is just created")
        if run.dry_run:
            return
        with closing(Server(options.url, options.token)) as server:
            segments = _load(server, rows, shares, options, ts)
    run.detail.update(segments=len(segments), bytes=sum(segment.bytes for segment in segments))
    run.step(rows=total)


def _open(spark: "SparkSession", options: LoadOptions, ts: int) -> Rows:
    """Read plain lines without the JVM, everything else through Spark's readers."""
    given = options.input
    ranges = None
    if given.format == "jsonl" and not (given.tag or given.ts or given.options):
        ranges = plan_ranges(str(given.path))
    if ranges is not None:
        return LineRows(spark, ranges, ts)
    return FrameRows(spark, given, ts, drop_dead_letter_meta=options.drop_dead_letter_meta)


class FrameRows:
    """The rows of a DataFrame."""

    def __init__(
        self, spark: "SparkSession", given: LoadInput, ts: int, *, drop_dead_letter_meta: bool
    ) -> None:
        frame = read_input(spark, given)
        # Both passes must see one order, and rows of one time have none.
        self._frame = frame.persist() if "ts" in frame.columns else frame
        self._ts = ts
        self._drop = drop_dead_letter_meta

    def close(self) -> None:
        if "ts" in self._frame.columns:
            self._frame.unpersist()

    def count(self) -> dict[int, int]:
        from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

        counted = self._frame.groupBy(f.spark_partition_id().alias("task")).count().collect()
        return {row["task"]: row["count"] for row in counted}

    def run(self, work: Work) -> list[str]:
        ts, drop = self._ts, self._drop

        def columns(number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[Columns]:
            first = 0
            for batch in batches:
                if batch.num_rows:
                    where = f"task {number}"
                    settled = settle_letters(batch, drop=drop, where=where, first=first)
                    yield to_columns(settled, ts=ts)
                    first += batch.num_rows

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            number = _task_number()
            yield _texts(work(number, columns(number, batches)))

        return [row["text"] for row in self._frame.mapInArrow(task, _DDL).collect()]


class LineRows:
    """The lines of files, some ranges a task."""

    def __init__(self, spark: "SparkSession", ranges: list[LineRange], ts: int) -> None:
        self._spark = spark
        self._tasks = pack_ranges(ranges)
        self._ts = ts

    def close(self) -> None:
        """Nothing is held."""

    def count(self) -> dict[int, int]:
        tasks = self._tasks
        texts = self._each(lambda number: [f"{number} {sum(map(count_lines, tasks[number]))}"])
        return {int(a): int(b) for a, b in (text.split() for text in texts)}

    def run(self, work: Work) -> list[str]:
        tasks, ts = self._tasks, self._ts

        def read(number: int) -> Iterator[Columns]:
            return chain.from_iterable(read_lines(part, ts=ts) for part in tasks[number])

        return self._each(lambda number: work(number, read(number)))

    def _each(self, work: Callable[[int], Iterable[str]]) -> list[str]:
        if not self._tasks:
            return []

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield _texts(work(number))

        count = len(self._tasks)
        frame = self._spark.range(0, count, 1, count).mapInArrow(task, _DDL)
        return [row["text"] for row in frame.collect()]


def _texts(texts: Iterable[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(list(texts), pa.string())], names=["text"])


def _task_number() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - on an executor

    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def check_load(options: LoadOptions) -> None:
    """Refuse what cannot be loaded before a session is asked."""
    try:
        check_topic_name(options.topic)
    except RequestError as error:
        raise OptionError(str(error)) from None
    check_input(options.input)


def plan_shares(rows: dict[int, int]) -> dict[int, Share]:
    """Give each task its seqs: dense, from 1 on, in the order of tasks."""
    tasks = sorted(rows)
    ends = accumulate((rows[task] for task in tasks), initial=1)
    return {task: Share(first, rows[task]) for task, first in zip(tasks, ends, strict=False)}


def _load(
    server: Server, rows: Rows, shares: dict[int, Share], options: LoadOptions, ts: int
) -> list[BuiltSegment]:
    upload = server.begin_upload(options.topic, options.config)
    if upload.directory is None:
        raise ConfigError(f"{options.url} keeps its data where no other process can write")
    try:
        work = _work(upload, shares, ts=ts, segment_bytes=options.segment_bytes)
        segments = [msgspec.json.decode(text, type=BuiltSegment) for text in rows.run(work)]
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


def _work(upload: UploadState, shares: dict[int, Share], *, ts: int, segment_bytes: int) -> Work:
    """Return what each task does; carried to executors."""

    def build(number: int, found: Iterable[Columns]) -> Iterable[str]:
        settle_worker()
        share = shares.get(number, Share(1, 0))
        target = Target(
            directory=upload.directory or "",
            topic_id=upload.topic_id,
            first_seq=share.first_seq,
            ts=ts,
            attempt=f"{number}-{secrets.token_hex(4)}",
            segment_bytes=segment_bytes,
        )
        built = list(build_segments(found, target))
        rows = sum(one.last_seq - one.first_seq + 1 for one in built)
        if rows != share.rows:
            raise PipelineError(
                f"task {number} had {share.rows} rows when they were counted and {rows} when they "
                "were read: the input changed, load it again"
            )
        return [msgspec.json.encode(one).decode() for one in built]

    return build
