"""`topics verify DIR`: whether every byte is still what was written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import TransferSpeedColumn as SpeedColumn

from topics.cli import exit_codes
from topics.errors import ConfigError
from topics.operate.report import FileVerdict, Finding, VerifyReport
from topics.operate.source import Meter, holding, looks_like_data, no_meter
from topics.operate.text import format_range, format_size, plural, printable
from topics.operate.verify import measure, verify
from topics.storage.disk.disk import Disk
from topics.storage.disk.local_disk import LocalDisk

DataDir = Annotated[
    Path,
    typer.Argument(metavar="DIR", exists=True, file_okay=False, help="the data directory"),
]
ColdDir = Annotated[
    Path | None,
    typer.Option(
        "--cold",
        metavar="DIR",
        exists=True,
        file_okay=False,
        envvar="TOPICS_COLD_DIR",
        help="the folder of the cold tier, if the directory was used with one",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON document, for programs")]


def run_verify(directory: DataDir, *, cold: ColdDir = None, as_json: AsJson = False) -> None:
    """Check every frame, index entry and snapshot of a data directory; change nothing.

    Torn tails and files that a crash has left behind are told, but are not
    damage: the next start clears them away.

    Exit code 0: healthy. 3: damage; file and offset are named, then restore a
    backup or run topics repair. 4: another process has the directory open.
    """
    disk, cold_disk = open_disks(directory, cold)
    with holding(disk), progress_bar("checking", measure(disk, cold_disk)) as meter:
        report = verify(disk, cold=cold_disk, meter=meter)
    if as_json:
        print_json(report)
    else:
        _print(report, directory)
    raise typer.Exit(exit_codes.OK if report.healthy else exit_codes.DAMAGE)


def open_disks(directory: Path, cold: Path | None) -> tuple[Disk, Disk | None]:
    """Open a directory that is there, and make none."""
    disk = LocalDisk(str(directory))
    if not looks_like_data(disk):
        raise ConfigError(f"{directory} holds no topics data: it has no meta, wal or topics in it")
    return disk, None if cold is None else LocalDisk(str(cold))


def print_json(report: msgspec.Struct) -> None:
    typer.echo(msgspec.json.encode(report))


def say(text: str, *, bold: bool = False) -> None:
    """Print one line; on a terminal nothing in it can steer the terminal."""
    typer.secho(printable(text) if sys.stdout.isatty() else text, bold=bold)


@contextmanager
def progress_bar(what: str, total_bytes: int) -> Iterator[Meter]:
    """Show a bar on stderr while work goes on; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield no_meter
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        SpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda size: progress.advance(task, size)


def describe(finding: Finding) -> str:
    """Return a finding as one line: `offset 80, seqs 3 to 4: what is wrong`."""
    place = ", ".join(
        part
        for part in (
            f"offset {finding.offset}" if finding.offset is not None else "",
            format_range(finding.first_seq, finding.last_seq),
        )
        if part
    )
    return f"{place}: {finding.message}" if place else finding.message


def _print(report: VerifyReport, directory: Path) -> None:
    for file in report.files:
        if file.verdict != "ok":
            _print_file(file)
    for topic in report.topics:
        if topic.verdict != "ok":
            name = topic.name if topic.name is not None else "without a name"
            say(f"{topic.verdict:8} topic {topic.topic_id} ({name})")
            for finding in topic.findings:
                say(f"         {describe(finding)}")
    for note in report.notes:
        say(f"note     {note}")
    say(_summary(report))
    if report.healthy:
        say("healthy", bold=True)
    else:
        bad = sum(file.is_bad for file in report.files)
        say(f"damaged: {plural(bad, 'file')}", bold=True)
        say(f"restore a backup, or run: topics repair {directory} --into NEWDIR")


def _print_file(file: FileVerdict) -> None:
    where = " (cold)" if file.tier == "cold" else ""
    say(f"{file.verdict:8} {file.path}{where}")
    for finding in file.findings:
        say(f"         {describe(finding)}")


def _summary(report: VerifyReport) -> str:
    return ", ".join(
        (
            plural(len(report.files), "file"),
            format_size(report.bytes_checked),
            plural(report.wal_frames, "WAL frame"),
            f"{plural(report.segment_records, 'record')} in segments",
            plural(len(report.topics), "topic"),
        )
    )
