"""What every command of `topics pipeline` shares: the server, the bar, the summary."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from topics.cli.output import for_people, print_line
from topics.errors import ConfigError
from topics.operate.text import printable
from topics.pipeline.jobs.job import JobRun, JobSummary, Listener, Progress, format_metrics
from topics.pipeline.options import Token

if TYPE_CHECKING:
    from topics.pipeline.jobs.tell import TopicListener

Names = Annotated[
    str, typer.Option("--topics", metavar="NAMES", help="names and prefixes*, with commas between")
]
Url = Annotated[
    str, typer.Option("--url", envvar="TOPICS_URL", metavar="URL", help="the server of the topics")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="TOPICS_TOKEN_FILE",
        metavar="FILE",
        help="a file with the key for the server; default: the variable TOPICS_TOKEN",
    ),
]
Master = Annotated[
    str, typer.Option("--master", metavar="MASTER", help="where Spark runs, e.g. spark://host:7077")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would be done, and do nothing")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON document, for programs")]
MetricsFile = Annotated[
    Path | None,
    typer.Option("--metrics", metavar="FILE", help="write metrics for Prometheus to FILE"),
]
DEFAULT_URL = "http://127.0.0.1:4000"
DEFAULT_MASTER = "local[*]"


class Output(Struct, frozen=True, kw_only=True):
    """How a command talks."""

    as_json: bool = False
    dry_run: bool = False
    metrics: Path | None = None


def read_token(file: Path | None) -> Token | None:
    if file is None:
        token = os.environ.get("TOPICS_TOKEN", "")
        return Token(token) if token else None
    try:
        return Token(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"the token file {file} cannot be read: {problem}") from problem


def listen_at(url: str, token: Token | None) -> "TopicListener":
    """Return who writes progress to a server."""
    from topics.pipeline.jobs.tell import TopicListener  # noqa: PLC0415 - needs an extra

    return TopicListener(url, token)


@contextmanager
def run_job(
    name: str, output: Output, *, url: str | None, token: Token | None, table: str | None = None
) -> Iterator[JobRun]:
    """Run a job: show a bar, tell the server, and print the summary at the end, also of Ctrl-C."""
    topic = None if url is None or output.dry_run else listen_at(url, token)
    with _bar(name) as bar:
        listeners: Iterable[Listener] = [bar] if topic is None else [bar, topic]
        run = JobRun(name, listeners=listeners, table=table, dry_run=output.dry_run)
        try:
            with run:
                yield run
        except KeyboardInterrupt:
            pass  # a job that runs on and on ends like this
        finally:
            if topic is not None:
                topic.close()
            if output.metrics is not None:
                output.metrics.write_text(format_metrics(run.summary()), encoding="utf-8")
    print_summary(run.summary(), output)


def print_summary(summary: JobSummary, output: Output) -> None:
    if not for_people(as_json=output.as_json):
        print_line(summary)
        return
    would = "would be " if summary.dry_run else ""
    typer.echo(
        f"{summary.job} {would}{summary.state}: {summary.rows:,} rows in {summary.batches} "
        f"batches, {summary.seconds:.1f} s, {summary.rows_per_s:,.0f} rows/s"
    )
    for name, value in summary.detail.items():
        typer.echo(printable(f"  {name}: {value}"))


@contextmanager
def _bar(name: str) -> Iterator[Listener]:
    """Show a line that lives on stderr; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)

        def show(progress: Progress) -> None:
            lag = "" if progress.lag is None else f", {progress.lag:,} to go"
            text = f"{progress.job}: {progress.rows:,} rows, {progress.rows_per_s:,.0f}/s{lag}"
            bar.update(task, description=text)

        yield show
