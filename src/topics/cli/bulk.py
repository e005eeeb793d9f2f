"""`topics pipeline audit`, `bulk-load`, `replay` and `compact-cold`: whole topics at a time."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from topics.cli import exit_codes
from topics.cli.connect import DropDeadLetterMeta
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
from topics.cli.output import say
from topics.cli.spark import check_installed, open_spark
from topics.clock import SystemClock
from topics.errors import ConfigError

if TYPE_CHECKING:
    from topics.pipeline.audit.report import AuditReport


def run_audit_command(  # noqa: PLR0913 - one argument a flag
    *,
    path: Annotated[
        Path | None,
        typer.Option("--path", metavar="DIR", help="a data directory that nobody has open"),
    ] = None,
    cold: Annotated[
        Path | None, typer.Option("--cold", metavar="DIR", help="its cold tier, with --path")
    ] = None,
    topics: Names = "*",
    lake: Annotated[
        list[Path] | None,
        typer.Option("--lake", metavar="DIR", help="compare this lake with the log; repeatable"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="write JSON to FILE")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="write a page with plots to FILE")
    ] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    master: Master = DEFAULT_MASTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> None:
    """Read every frame of every segment, and lakes against their log; change nothing.

    Exit code 0: healthy. 3: damage; segments, bytes and rows are named.
    """
    check_installed()
    from topics.pipeline.jobs.audit import AuditOptions, audit, check_options  # noqa: PLC0415

    token = read_token(token_file)
    options = AuditOptions(
        url=None if path else url,
        token=None if path else token,
        path=_absolute(path),
        cold=_absolute(cold),
        topics=_split(topics),
        lakes=tuple(str(one.absolute()) for one in lake or ()),
    )
    check_options(options)
    output = Output(as_json=as_json, dry_run=dry_run, metrics=metrics)
    asked = None if path else url
    with (
        run_job("audit", output, url=asked, token=token) as run,
        open_spark("audit", master) as spark,
    ):
        found = audit(spark, options, run)
    if not dry_run:
        save_audit(found, report, html)
        show_audit(found)
        raise typer.Exit(exit_codes.OK if found.healthy else exit_codes.DAMAGE)


def save_audit(found: "AuditReport", report: Path | None, html: Path | None) -> None:
    from topics.pipeline.audit.page import render_page  # noqa: PLC0415 - an extra

    if report is not None:
        report.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    if html is not None:
        now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
        html.write_text(render_page(found, made=f"{now:%Y-%m-%d %H:%M} UTC"), encoding="utf-8")


def show_audit(found: "AuditReport") -> None:
    """Name what is wrong, on stderr: stdout is for the summary."""
    for segment in found.bad_segments:
        what = segment.findings[0].message if segment.findings else segment.verdict
        say(f"{segment.topic} {segment.first_seq}: {segment.verdict}: {what}")
    for topic in found.topics:
        for finding in topic.findings:
            where = f"{finding.first_seq} to {finding.last_seq}"
            say(f"{topic.name}: {finding.message}: {where}")
    for lake in found.lakes:
        for names, what in (
            (lake.dropped_topics, "was dropped: nothing to compare with"),
            (lake.earlier_lives, "was made anew: older rows stand alone"),
            (lake.damaged_topics, "is damaged in the log: not compared"),
        ):
            for name in names:
                typer.echo(f"{lake.table}: {name} {what}", err=True)
        for fault in lake.faults:
            place = f"{fault.topic}/{fault.partition} {fault.seq}"
            say(f"{lake.table}: {place} is {fault.fault}")


def run_bulk_load_command(  # noqa: PLR0913 - one argument a flag
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="the topic to be made")],
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="a file or folder; `kafka` with --option")
    ],
    *,
    kind: Annotated[str, typer.Option("--format", help="jsonl, csv, parquet or kafka")] = "jsonl",
    tag: Annotated[
        str | None, typer.Option("--tag", help="column, or member a.b of JSON lines")
    ] = None,
    ts: Annotated[
        str | None, typer.Option("--ts", help="the same for the time; sorts by it")
    ] = None,
    schema: Annotated[str | None, typer.Option("--schema", help="of CSV, as DDL")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="for Spark's reader")
    ] = None,
    config: Annotated[str, typer.Option("--config", help="of the topic, as JSON")] = "{}",
    drop_dead_letter_meta: DropDeadLetterMeta = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    master: Master = DEFAULT_MASTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> None:
    """Load files into a new topic: it is there whole or not at all."""
    check_installed()
    from topics.pipeline.jobs.bulk_load import LoadOptions, bulk_load  # noqa: PLC0415 - an extra
    from topics.pipeline.load_input import parse_input  # noqa: PLC0415

    token = read_token(token_file)
    path = None if kind == "kafka" else _source(source)
    given = parse_input(kind, path=path, tag=tag, ts=ts, schema=schema, options=_options(option))
    options = LoadOptions(
        url=url, topic=topic, token=token, input=given, config=_config(config),
        drop_dead_letter_meta=drop_dead_letter_meta,
    )  # fmt: skip
    output = Output(as_json=as_json, dry_run=dry_run, metrics=metrics)
    with (
        run_job("bulk-load", output, url=url, token=token, table=topic) as run,
        open_spark("bulk-load", master) as spark,
    ):
        bulk_load(spark, options, run)


def run_replay_command(  # noqa: PLR0913 - one argument a flag
    into: Annotated[str, typer.Argument(metavar="INTO", help="the topic that gets the records")],
    *,
    name: Annotated[
        str, typer.Option("--name", help="of this replay: under it nothing is written twice")
    ],
    topic: Annotated[str | None, typer.Option("--topic", help="what is replayed")] = None,
    lake: Annotated[Path | None, typer.Option("--lake", metavar="DIR", help="or a lake")] = None,
    where: Annotated[str | None, typer.Option("--where", help="rows to take, as SQL")] = None,
    first_seq: Annotated[int, typer.Option("--from", min=1, help="first seq")] = 1,
    last_seq: Annotated[int | None, typer.Option("--to", min=1, help="last seq")] = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="records a second")] = None,
    drop_dead_letter_meta: DropDeadLetterMeta = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    master: Master = DEFAULT_MASTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> None:
    """Write a range of a topic, or of a lake, into a topic, each record once, in order."""
    check_installed()
    from topics.pipeline.jobs.replay import ReplayOptions, replay  # noqa: PLC0415 - an extra

    token = read_token(token_file)
    options = ReplayOptions(
        url=url, token=token, into=into, name=name, topic=topic, lake=_absolute(lake), where=where,
        first_seq=first_seq, last_seq=last_seq, records_per_second=rate,
        drop_dead_letter_meta=drop_dead_letter_meta,
    )  # fmt: skip
    output = Output(as_json=as_json, dry_run=dry_run, metrics=metrics)
    with (
        run_job("replay", output, url=url, token=token, table=into) as run,
        open_spark("replay", master) as spark,
    ):
        replay(spark, options, run)


def run_compact_cold_command(
    *,
    topics: Names = "*",
    min_dead_ratio: Annotated[
        float, typer.Option("--min-dead-ratio", min=0.0, max=1.0, help="share of dead bytes")
    ] = 0.5,
    at_a_time: Annotated[int, typer.Option("--at-a-time", min=1, help="segments a call")] = 64,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    metrics: MetricsFile = None,
) -> None:
    """Rewrite cold segments without their dead records; the server does it, no Spark is needed."""
    from topics.pipeline.jobs.compact_cold import CompactOptions, compact_cold  # noqa: PLC0415

    token = read_token(token_file)
    options = CompactOptions(
        url=url, token=token, topics=_split(topics), min_dead_ratio=min_dead_ratio,
        segments_at_a_time=at_a_time,
    )  # fmt: skip
    output = Output(as_json=as_json, dry_run=dry_run, metrics=metrics)
    with run_job("compact-cold", output, url=url, token=token) as run:
        compact_cold(options, run)


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _source(source: str) -> str:
    return source if "://" in source else str(Path(source).absolute())


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(","))


def _options(given: list[str] | None) -> dict[str, str]:
    found = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise ConfigError(f"--option takes NAME=VALUE, not {one!r}")
        found[name] = value
    return found


def _config(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--config must be a JSON object: {error}") from None
