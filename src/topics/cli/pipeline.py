"""`topics pipeline`: the map of the jobs, and the file that names several of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from topics.cli import exit_codes
from topics.cli.bulk import (
    run_audit_command,
    run_bulk_load_command,
    run_compact_cold_command,
    run_replay_command,
    save_audit,
    show_audit,
)
from topics.cli.job import (
    DEFAULT_MASTER,
    DEFAULT_URL,
    AsJson,
    MetricsFile,
    Output,
    TokenFile,
    listen_at,
    print_summary,
    read_token,
)
from topics.cli.lake import DEFAULT_LAKE, LakeDir, lake_app, run_rollup_command
from topics.cli.output import for_people, print_line
from topics.cli.spark import Stop, check_installed, open_spark
from topics.cli.sql import run_sql_command
from topics.errors import ConfigError
from topics.operate.text import printable
from topics.pipeline.jobs.job import JobSummary, format_metrics

if TYPE_CHECKING:
    from topics.pipeline.audit.report import AuditReport
    from topics.pipeline.file import PipelineFile
    from topics.pipeline.job_specs import AuditJob

pipeline_app = typer.Typer(help="Bulk work on Spark.", no_args_is_help=True)
pipeline_app.add_typer(lake_app, name="lake")
pipeline_app.command("rollup")(run_rollup_command)
pipeline_app.command("sql")(run_sql_command)
pipeline_app.command("audit")(run_audit_command)
pipeline_app.command("bulk-load")(run_bulk_load_command)
pipeline_app.command("replay")(run_replay_command)
pipeline_app.command("compact-cold")(run_compact_cold_command)

File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="a TOML file; without one: a lake of every topic"),
]
UrlOver = Annotated[
    str | None,
    typer.Option("--url", envvar="TOPICS_URL", metavar="URL", help="instead of that in the file"),
]
MasterOver = Annotated[
    str | None, typer.Option("--master", metavar="MASTER", help="instead of that in the file")
]


@pipeline_app.command("plan")
def run_plan(
    file: File = None, *, url: UrlOver = None, lake: LakeDir = DEFAULT_LAKE, as_json: AsJson = False
) -> None:
    """Say what a file would do; nothing is started, nothing is asked."""
    try:
        from topics.pipeline.explain import explain  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"the pipeline is not installed ({missing.name}): "
            "run pip install 'topics-log[spark,cli]'"
        ) from missing
    people = for_people(as_json=as_json)
    for job in explain(_load(file, url, lake)):
        if not people:
            print_line(job)
            continue
        typer.secho(printable(f"{job.job} ({job.kind}), {job.when}"), bold=True)
        typer.echo(printable(f"  reads   {job.reads}"))
        for target in job.writes:
            typer.echo(printable(f"  writes  {target}"))


@pipeline_app.command("run")
def run_file(
    file: File = None,
    *,
    url: UrlOver = None,
    lake: LakeDir = DEFAULT_LAKE,
    token_file: TokenFile = None,
    master: MasterOver = None,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="end when stdin does: with whoever started it")
    ] = False,
) -> None:
    """Run all jobs of a file, until they are done or Ctrl-C; without FILE the default ones.

    Exit code 3: an audit found damage, when it looked last.
    """
    check_installed()
    from topics.pipeline.run_file import run_pipeline  # noqa: PLC0415 - an extra

    pipeline = _load(file, url, lake)
    if token_file is None and pipeline.token_file is not None:
        token_file = Path(pipeline.token_file)
    token = read_token(token_file)
    stop = Stop()
    if until_eof:
        stop.on_end_of_stdin()
    listener = listen_at(pipeline.url, token)
    summaries: list[JobSummary] = []
    try:
        with open_spark("pipeline", master or pipeline.master) as spark:
            stop.on_signals()
            run_pipeline(
                spark, pipeline, token=token, listeners=[listener], audited=_tell_audit,
                ended=summaries.append, stopped=stop,
            )  # fmt: skip
    finally:
        listener.close()
        if metrics is not None:
            metrics.write_text(format_metrics(*summaries), encoding="utf-8")
    for summary in summaries:
        print_summary(summary, Output(as_json=as_json))
    if any(summary.findings for summary in summaries):
        raise typer.Exit(exit_codes.DAMAGE)


def _tell_audit(job: "AuditJob", found: "AuditReport") -> None:
    report, html = (None if name is None else Path(name) for name in (job.report, job.html))
    save_audit(found, report, html)
    show_audit(found)


def _load(file: Path | None, url: str | None, lake: Path) -> "PipelineFile":
    from topics.pipeline.file import default_pipeline, parse_pipeline  # noqa: PLC0415 - an extra

    if file is None:
        pipeline = default_pipeline(lake=str(lake.absolute()), url=url or DEFAULT_URL)
        return msgspec.structs.replace(pipeline, master=DEFAULT_MASTER)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"the pipeline file {file} cannot be read: {problem}") from problem
    pipeline = parse_pipeline(text, name=str(file))
    return pipeline if url is None else msgspec.structs.replace(pipeline, url=url)
