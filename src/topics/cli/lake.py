"""`topics pipeline lake`, `lake compact` and `rollup`: topics into tables."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from topics.cli.job import (
    DEFAULT_MASTER,
    DEFAULT_URL,
    AsJson,
    DryRun,
    Master,
    MetricsFile,
    Names,
    Output,
    TokenFile,
    Url,
    read_token,
    run_job,
)
from topics.cli.spark import Stop, check_installed, open_spark

if TYPE_CHECKING:
    from topics.pipeline.jobs.job import JobRun
    from topics.pipeline.lake.query import QueryOptions

LakeDir = Annotated[
    Path,
    typer.Option("--lake", envvar="TOPICS_LAKE", metavar="DIR", help="the directory of the lake"),
]
Once = Annotated[bool, typer.Option("--once", help="end when all there is was read")]
Interval = Annotated[str, typer.Option("--every", metavar="TIME", help="how often, if not once")]
MaxRecords = Annotated[int, typer.Option("--max-records", min=1, help="records of one batch")]
Recover = Annotated[
    bool, typer.Option("--recover", help="the checkpoint is lost: go on behind the last batch")
]
DEFAULT_LAKE = Path("topics-lake")
TableFormatName: TypeAlias = Literal["parquet", "delta", "iceberg"]

lake_app = typer.Typer(help="Topics to tables of Parquet files.", invoke_without_command=True)


@lake_app.callback()
def run_lake_command(  # noqa: PLR0913 - one argument a flag
    context: typer.Context,
    *,
    lake: LakeDir = DEFAULT_LAKE,
    topics: Names = "*",
    once: Once = False,
    every: Interval = "1s",
    max_records: MaxRecords = 1_000_000,
    typed: Annotated[bool, typer.Option(help="make typed tables, too")] = True,
    form: Annotated[
        TableFormatName | None,
        typer.Option(
            "--format", help="of a lake that is made: parquet (default), or tables for others too"
        ),
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="one of pyiceberg's own configuration, for iceberg"),
    ] = None,
    recover: Recover = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    master: Master = DEFAULT_MASTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> None:
    """Write topics into a lake, each record once: `_raw`, `_gaps`, and a typed table a topic."""
    if context.invoked_subcommand is not None:
        return
    check_installed()
    from topics.pipeline.file import parse_interval_ms  # noqa: PLC0415 - an extra
    from topics.pipeline.jobs.lake import run_lake  # noqa: PLC0415
    from topics.pipeline.lake.publish import parse_format  # noqa: PLC0415
    from topics.pipeline.lake.query import QueryOptions  # noqa: PLC0415

    tables = parse_format(form, catalog)
    token = read_token(token_file)
    options = QueryOptions(
        url=url,
        token=token,
        topics=topics,
        once=once,
        interval_ms=parse_interval_ms(every),
        max_records=max_records,
        recover=recover,
    )
    root = str(lake.absolute())
    output = Output(as_json=as_json, dry_run=dry_run, metrics=metrics)
    with run_job("lake", output, url=url, token=token, table=root) as run:
        if dry_run:
            _count_what_is_left(root, "lake", options, run)
            return
        stop = Stop()
        with open_spark("lake", master) as spark:
            stop.on_signals()
            run_lake(spark, root, options, run, infer=typed, tables=tables, stopped=stop)


@lake_app.command("compact")
def run_compact_command(
    *,
    lake: LakeDir = DEFAULT_LAKE,
    target_mib: Annotated[int, typer.Option("--target-mib", min=1, help="size of a file")] = 128,
    grace: Annotated[str, typer.Option("--grace", help="how long replaced files stay")] = "1h",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    master: Master = DEFAULT_MASTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> None:
    """Make large files of small ones; whoever is reading does not notice."""
    check_installed()
    from topics.pipeline.file import parse_interval_ms  # noqa: PLC0415 - an extra
    from topics.pipeline.lake.compact import CompactOptions, run_compact  # noqa: PLC0415

    root = str(lake.absolute())
    options = CompactOptions(target_bytes=target_mib << 20, grace_ms=parse_interval_ms(grace))
    output = Output(as_json=as_json, dry_run=dry_run, metrics=metrics)
    with (
        run_job("compact", output, url=url, token=read_token(token_file), table=root) as run,
        open_spark("compact", master) as spark,
    ):
        run_compact(spark, root, options, run)


def run_rollup_command(  # noqa: PLR0913 - one argument a flag
    *,
    lake: LakeDir = DEFAULT_LAKE,
    topics: Names = "*",
    once: Once = False,
    every: Interval = "10s",
    window: Annotated[str, typer.Option("--window", help="how long a window is")] = "1m",
    recover: Recover = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    master: Master = DEFAULT_MASTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> None:
    """Count records, bytes, rate and delay by topic and tag, into `_rollup` and topics.rollup."""
    check_installed()
    from topics.pipeline.file import parse_interval_ms  # noqa: PLC0415 - an extra
    from topics.pipeline.jobs.rollup import run_rollup  # noqa: PLC0415
    from topics.pipeline.lake.query import QueryOptions  # noqa: PLC0415

    token = read_token(token_file)
    interval_ms = parse_interval_ms(every)
    options = QueryOptions(
        url=url, token=token, topics=topics, once=once, interval_ms=interval_ms, recover=recover
    )
    root = str(lake.absolute())
    output = Output(as_json=as_json, dry_run=dry_run, metrics=metrics)
    with run_job("rollup", output, url=url, token=token, table=root) as run:
        if dry_run:
            _count_what_is_left(root, "rollup", options, run)
            return
        stop = Stop()
        with open_spark("rollup", master) as spark:
            stop.on_signals()
            window_ms = parse_interval_ms(window)
            run_rollup(spark, root, options, run, window_ms=window_ms, stopped=stop)


def _count_what_is_left(root: str, query: str, options: "QueryOptions", run: "JobRun") -> None:
    """Count what a run would read, without Spark."""
    from topics.pipeline.catalog import ServerCatalog  # noqa: PLC0415 - an extra
    from topics.pipeline.lake.log import LOG_DIR, open_lake  # noqa: PLC0415
    from topics.pipeline.lake.query import reached  # noqa: PLC0415
    from topics.pipeline.server import Server  # noqa: PLC0415

    known = open_lake(root).load().queries.get(query) if Path(root, LOG_DIR).is_dir() else None
    with closing(Server(options.url, options.token)) as server:
        states = ServerCatalog(server).states([part.strip() for part in options.topics.split(",")])
    for state in states:
        done = 0 if known is None else reached(state, known)
        rows = max(0, state.head_seq - max(done, state.earliest_seq - 1))
        if rows:
            run.step(rows=rows, table=state.part.name)
            run.detail[state.part.name] = rows
