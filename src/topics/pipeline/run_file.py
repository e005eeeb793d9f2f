"""All jobs of a pipeline file: those that run once one after the other, the others side by side.

Keeps: a job that fails ends the others too, and its error is the one that is told.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from topics.errors import TopicsError
from topics.pipeline.file import JobSpec, PipelineFile
from topics.pipeline.jobs.job import JobRun, JobSummary, Listener
from topics.pipeline.jobs.lake import run_lake
from topics.pipeline.jobs.rollup import run_rollup
from topics.pipeline.lake.compact import CompactOptions, run_compact
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.query import QueryOptions, Stopped
from topics.pipeline.lake.write import begin
from topics.pipeline.options import Token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2
WRITERS = ("lake", "rollup")


def run_pipeline(
    spark: "SparkSession",
    pipeline: PipelineFile,
    *,
    token: Token | None,
    listeners: Iterable[Listener] = (),
    stopped: Stopped,
) -> list[JobSummary]:
    """Run every job to its end, or until stopped; return a summary of each."""
    begin(LakeLog(pipeline.lake), pipeline.table_format)
    work = _Work(spark, pipeline, token, tuple(listeners), stopped)
    if any(job.kind in WRITERS for job in pipeline.jobs.values()):
        LakeLog(pipeline.lake)  # made before a compaction beside them looks for it
    try:
        for name, job in pipeline.jobs.items():
            if job.interval_ms is None and not work.is_over():
                work.run(name, job)
        work.run_side_by_side()
    finally:
        work.end()
    return work.summaries


class _Work:
    """The jobs of one run, and what became of them."""

    def __init__(
        self,
        spark: "SparkSession",
        pipeline: PipelineFile,
        token: Token | None,
        listeners: tuple[Listener, ...],
        stopped: Stopped,
    ) -> None:
        self.summaries: list[JobSummary] = []
        self._spark = spark
        self._pipeline = pipeline
        self._token = token
        self._listeners = listeners
        self._stopped = stopped
        self._ended = threading.Event()
        self._errors: list[TopicsError] = []

    def is_over(self) -> bool:
        return self._ended.is_set() or self._stopped()

    def end(self) -> None:
        self._ended.set()

    def run_side_by_side(self) -> None:
        jobs = [(n, j) for n, j in self._pipeline.jobs.items() if j.interval_ms is not None]
        threads = [
            threading.Thread(target=self._run_thread, args=one, name=f"topics-job-{one[0]}")
            for one in jobs
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads) and not self.is_over():
                self._ended.wait(POLL_S)
        finally:
            self.end()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def _run_thread(self, name: str, job: JobSpec) -> None:
        try:
            self.run(name, job)
        except TopicsError as error:
            self._errors.append(error)
        finally:
            if self._errors:
                self.end()

    def run(self, name: str, job: JobSpec) -> None:
        run = JobRun(name, listeners=self._listeners, table=self._pipeline.lake)
        try:
            with run:
                self._kinds()[job.kind](job, run)
        finally:
            self.summaries.append(run.summary())

    def _kinds(self) -> dict[str, Callable[[JobSpec, JobRun], None]]:
        return {"lake": self._lake, "rollup": self._rollup, "compact": self._compact}

    def _options(self, job: JobSpec) -> QueryOptions:
        return QueryOptions(
            url=self._pipeline.url,
            token=self._token,
            topics=self._pipeline.topics_of(job),
            starting=self._pipeline.starting_of(job),
            once=job.interval_ms is None,
            interval_ms=job.interval_ms or 0,
            max_records=job.max_records,
        )

    def _lake(self, job: JobSpec, run: JobRun) -> None:
        run_lake(
            self._spark,
            self._pipeline.lake,
            self._options(job),
            run,
            typed=self._pipeline.typed_tables(),
            infer=job.infer,
            stopped=self.is_over,
        )

    def _rollup(self, job: JobSpec, run: JobRun) -> None:
        run_rollup(
            self._spark,
            self._pipeline.lake,
            self._options(job),
            run,
            window_ms=job.window_ms,
            stopped=self.is_over,
        )

    def _compact(self, job: JobSpec, run: JobRun) -> None:
        options = CompactOptions(target_bytes=job.target_bytes, grace_ms=job.grace_ms)
        while True:
            run_compact(self._spark, self._pipeline.lake, options, run)
            if job.interval_ms is None or self._wait(job.interval_ms):
                return

    def _wait(self, interval_ms: int) -> bool:
        """Wait for the next turn; true if there is none."""
        left_s = interval_ms / 1000
        while left_s > 0 and not self.is_over():
            self._ended.wait(min(POLL_S, left_s))
            left_s -= POLL_S
        return self.is_over()
