"""What each kind of job of a pipeline file runs: one round of it, with the options of the job."""

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from topics.pipeline.audit.report import AuditReport
from topics.pipeline.file import PipelineFile
from topics.pipeline.job_specs import (
    AuditJob,
    BulkLoadJob,
    CompactColdJob,
    CompactJob,
    JobSpec,
    LakeJob,
    ReplayJob,
    RollupJob,
)
from topics.pipeline.jobs.audit import audit
from topics.pipeline.jobs.bulk_load import bulk_load
from topics.pipeline.jobs.compact_cold import compact_cold
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.jobs.lake import run_lake
from topics.pipeline.jobs.replay import replay
from topics.pipeline.jobs.rollup import run_rollup
from topics.pipeline.lake.compact import run_compact
from topics.pipeline.lake.log import check_root, has_lake
from topics.pipeline.lake.query import QueryOptions, Stopped
from topics.pipeline.options import Token
from topics.pipeline.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Audited: TypeAlias = Callable[[AuditJob, AuditReport], None]
"""Told what an audit has found, after each."""


class Site(NamedTuple):
    """Where the jobs of a file run, and until when."""

    spark: "SparkSession"
    pipeline: PipelineFile
    token: Token | None
    audited: Audited
    is_over: Stopped


def run_round(site: Site, job: JobSpec, run: JobRun) -> None:
    """Run a job once; `lake` and `rollup` keep their interval themselves."""
    _ROUNDS[type(job)](site, job, run)


def written_by(job: JobSpec, pipeline: PipelineFile) -> str | None:
    """Return what a job writes, as its progress names it."""
    if isinstance(job, ReplayJob):
        return job.into
    if isinstance(job, BulkLoadJob):
        return job.topic
    return None if isinstance(job, AuditJob | CompactColdJob) else pipeline.lake


def _query(site: Site, job: LakeJob | RollupJob) -> QueryOptions:
    return QueryOptions(
        url=site.pipeline.url,
        token=site.token,
        topics=site.pipeline.topics_of(job),
        starting=site.pipeline.starting_of(job),
        once=job.interval_ms is None,
        interval_ms=job.interval_ms or 0,
        max_records=job.max_records,
    )


def _lake(site: Site, job: LakeJob, run: JobRun) -> None:
    run_lake(
        site.spark,
        site.pipeline.lake,
        _query(site, job),
        run,
        typed=site.pipeline.typed_tables(),
        infer=job.infer,
        stopped=site.is_over,
    )


def _rollup(site: Site, job: RollupJob, run: JobRun) -> None:
    root, options = site.pipeline.lake, _query(site, job)
    run_rollup(site.spark, root, options, run, window_ms=job.window_ms, stopped=site.is_over)


def _compact(site: Site, job: CompactJob, run: JobRun) -> None:
    run_compact(site.spark, site.pipeline.lake, job.options(), run)


def _audit(site: Site, job: AuditJob, run: JobRun) -> None:
    root = check_root(site.pipeline.lake)
    options = job.options(
        site.pipeline.url,
        site.token,
        topics=site.pipeline.topics_of(job),
        lake=root if has_lake(root) else None,
    )
    site.audited(job, audit(site.spark, options, run))


def _compact_cold(site: Site, job: CompactColdJob, run: JobRun) -> None:
    topics = site.pipeline.topics_of(job)
    compact_cold(job.options(site.pipeline.url, site.token, topics=topics), run)


def _replay(site: Site, job: ReplayJob, run: JobRun) -> None:
    replay(site.spark, job.options(site.pipeline.url, site.token), run)


def _bulk_load(site: Site, job: BulkLoadJob, run: JobRun) -> None:
    """Load, unless the topic is there: then a file that is run again has done it before."""
    with closing(Server(site.pipeline.url, site.token)) as server:
        there = server.has_topic(job.topic)
    run.detail.update(topic=job.topic, already_there=there)
    if not there:
        bulk_load(site.spark, job.options(site.pipeline.url, site.token), run)


_ROUNDS: Final[dict[type, Callable[[Site, Any, JobRun], None]]] = {
    LakeJob: _lake,
    RollupJob: _rollup,
    CompactJob: _compact,
    AuditJob: _audit,
    CompactColdJob: _compact_cold,
    ReplayJob: _replay,
    BulkLoadJob: _bulk_load,
}
