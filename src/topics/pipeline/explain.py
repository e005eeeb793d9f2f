"""What a pipeline file would do, said without doing any of it. Pure."""

from msgspec import Struct

from topics.pipeline.file import PipelineFile
from topics.pipeline.job_specs import (
    ONCE,
    AuditJob,
    BulkLoadJob,
    CompactColdJob,
    CompactJob,
    JobSpec,
    LakeJob,
    ReplayJob,
    RollupJob,
)


class PlannedJob(Struct, frozen=True, kw_only=True):
    """One job, in words for people and in fields for programs."""

    job: str
    kind: str
    reads: str
    writes: list[str]
    when: str


def explain(pipeline: PipelineFile) -> list[PlannedJob]:
    """Return the jobs in the order in which they are named; those that run once start first."""
    return [
        PlannedJob(
            job=name,
            kind=job.kind,
            reads=_reads(pipeline, job),
            writes=_writes(pipeline, job),
            when="once, until all there is was read"
            if job.trigger == ONCE
            else f"every {job.trigger}",
        )
        for name, job in pipeline.jobs.items()
    ]


def _reads(pipeline: PipelineFile, job: JobSpec) -> str:  # noqa: PLR0911 - one a kind
    url = pipeline.url
    match job:
        case CompactJob():
            return f"small files of {pipeline.lake}"
        case AuditJob():
            lakes = [pipeline.lake] if job.lake is None else job.lake
            return ", ".join([f"every frame of {pipeline.topics_of(job)} of {url}", *lakes])
        case CompactColdJob():
            return f"cold segments of {pipeline.topics_of(job)} of {url}"
        case ReplayJob():
            what = job.lake or f"{job.topic} of {url}"
            where = f", where {job.where}" if job.where else ""
            return f"{what}, from {job.first_seq} to {job.last_seq or 'the end'}{where}"
        case BulkLoadJob():
            return f"{job.path or 'what its options name'} ({job.format})"
        case LakeJob() | RollupJob():
            return f"{pipeline.topics_of(job)} of {url}, from {pipeline.starting_of(job)}"


def _writes(pipeline: PipelineFile, job: JobSpec) -> list[str]:  # noqa: PLR0911 - one a kind
    match job:
        case CompactJob():
            return [f"files of up to {job.target_bytes >> 20} MiB in {pipeline.lake}"]
        case RollupJob():
            windows = f"{pipeline.lake}: _rollup, windows of {job.window_ms} ms"
            return [windows, "topic topics.rollup"]
        case AuditJob():
            return [file for file in (job.report, job.html) if file is not None]
        case CompactColdJob():
            return [f"those with more than {job.min_dead_ratio:.0%} of dead bytes, without these"]
        case ReplayJob():
            rate = f", {job.rate} records a second" if job.rate else ""
            return [f"topic {job.into}, as producer {job.name}{rate}"]
        case BulkLoadJob():
            return [f"topic {job.topic}, unless it is there"]
        case LakeJob():
            return _tables(pipeline, job)


def _tables(pipeline: PipelineFile, job: LakeJob) -> list[str]:
    typed = [
        f"{pipeline.lake}: {name} ({', '.join(table.topics)}; "
        f"{'schema ' + table.schema if table.schema else 'schema of what comes'})"
        for name, table in pipeline.tables.items()
    ]
    rest = [f"{pipeline.lake}: a table for every other topic"] if job.infer else []
    shown = pipeline.table_format
    others = [f"{pipeline.lake}: all of it as tables of {shown.name}"] if shown else []
    return [f"{pipeline.lake}: _raw, _gaps", *typed, *rest, *others]
