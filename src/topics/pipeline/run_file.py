"""All jobs of a pipeline file: those that run once one after the other, the others side by side.

Keeps: a job that fails ends the others too, and its error is the one that is told. An audit that
finds damage has not failed: that is told, and the others go on.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from topics.pipeline.file import PipelineFile
from topics.pipeline.job_specs import JobSpec, LakeJob, RollupJob
from topics.pipeline.jobs.job import JobRun, JobSummary, Listener
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.query import Stopped
from topics.pipeline.lake.write import begin
from topics.pipeline.options import Token
from topics.pipeline.run_kind import Audited, Site, run_round, written_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2


def run_pipeline(
    spark: "SparkSession",
    pipeline: PipelineFile,
    *,
    token: Token | None,
    listeners: Iterable[Listener] = (),
    audited: Audited = lambda *_: None,
    ended: Callable[[JobSummary], None] = lambda _: None,
    stopped: Stopped,
) -> list[JobSummary]:
    """Run every job to its end, or until stopped; return a summary of each.

    `ended` gets each of them when its job ends, also of the job whose error ends the run.
    """
    if any(isinstance(job, LakeJob | RollupJob) for job in pipeline.jobs.values()):
        # Before a compaction beside them looks for it; where nothing writes, none is made.
        begin(LakeLog(pipeline.lake), pipeline.table_format)
    work = _Work(pipeline, tuple(listeners), ended, stopped)
    site = Site(spark, pipeline, token, audited, work.is_over)
    try:
        for name, job in pipeline.jobs.items():
            if job.interval_ms is None and not work.is_over():
                work.run(site, name, job)
        work.run_side_by_side(site)
    finally:
        work.end()
    return work.summaries


class _Work:
    """The jobs of one run, and what became of them."""

    def __init__(
        self,
        pipeline: PipelineFile,
        listeners: tuple[Listener, ...],
        ended: Callable[[JobSummary], None],
        stopped: Stopped,
    ) -> None:
        self.summaries: list[JobSummary] = []
        self._pipeline = pipeline
        self._listeners = listeners
        self._tell_end = ended
        self._stopped = stopped
        self._ended = threading.Event()

    def is_over(self) -> bool:
        return self._ended.is_set() or self._stopped()

    def end(self) -> None:
        self._ended.set()

    def run_side_by_side(self, site: Site) -> None:
        jobs = [(n, j) for n, j in self._pipeline.jobs.items() if j.interval_ms is not None]
        if not jobs or self.is_over():
            return
        with ThreadPoolExecutor(len(jobs), thread_name_prefix="topics-job") as pool:
            running = [pool.submit(self._run_beside, site, *one) for one in jobs]
            try:
                while not self.is_over():
                    if not wait(running, POLL_S, return_when=FIRST_EXCEPTION).not_done:
                        break
            finally:
                self.end()
        for one in running:
            one.result()  # raises what ended it

    def _run_beside(self, site: Site, name: str, job: JobSpec) -> None:
        try:
            self.run(site, name, job)
        except BaseException:
            self.end()  # before anybody looks at the error: the others may take long to end
            raise

    def run(self, site: Site, name: str, job: JobSpec) -> None:
        table = written_by(job, self._pipeline)
        run = JobRun(name, listeners=self._listeners, table=table)
        try:
            with run:
                run_round(site, job, run)
                while job.interval_ms is not None and self._wait(job.interval_ms):
                    run_round(site, job, run)
        finally:
            self.summaries.append(run.summary())
            self._tell_end(run.summary())

    def _wait(self, interval_ms: int) -> bool:
        """Wait for the next round; false if there is none."""
        left_s = interval_ms / 1000
        while left_s > 0 and not self.is_over():
            self._ended.wait(min(POLL_S, left_s))
            left_s -= POLL_S
        return not self.is_over()
