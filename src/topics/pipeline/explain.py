"""What a pipeline file would do, said without doing any of it. Pure."""

from msgspec import Struct

from topics.pipeline.file import ONCE, JobSpec, PipelineFile


class PlannedJob(Struct, frozen=True, kw_only=True):
    """One job, in words for people and in fields for programs."""

    job: str
    kind: str
    reads: str
    writes: list[str]
    when: str


def explain(pipeline: PipelineFile) -> list[PlannedJob]:
    """Return the jobs in the order in which they start."""
    return [_explain_job(pipeline, name, job) for name, job in pipeline.jobs.items()]


def _explain_job(pipeline: PipelineFile, name: str, job: JobSpec) -> PlannedJob:
    when = "once, until all there is was read" if job.trigger == ONCE else f"every {job.trigger}"
    reads = f"{pipeline.topics_of(job)} of {pipeline.url}, from {pipeline.starting_of(job)}"
    if job.kind == "compact":
        reads = f"small files of {pipeline.lake}"
    return PlannedJob(
        job=name, kind=job.kind, reads=reads, writes=_writes(pipeline, job), when=when
    )


def _writes(pipeline: PipelineFile, job: JobSpec) -> list[str]:
    if job.kind == "compact":
        return [f"files of up to {job.target_bytes >> 20} MiB in {pipeline.lake}"]
    if job.kind == "rollup":
        return [f"{pipeline.lake}: _rollup, windows of {job.window_ms} ms", "topic topics.rollup"]
    typed = [
        f"{pipeline.lake}: {name} ({', '.join(table.topics)}; "
        f"{'schema ' + table.schema if table.schema else 'schema of what comes'})"
        for name, table in pipeline.tables.items()
    ]
    rest = [f"{pipeline.lake}: a table for every other topic"] if job.infer else []
    shown = pipeline.table_format
    others = [f"{pipeline.lake}: all of it as tables of {shown.name}"] if shown else []
    return [f"{pipeline.lake}: _raw, _gaps", *typed, *rest, *others]
