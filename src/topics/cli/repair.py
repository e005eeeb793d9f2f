"""`topics repair DIR --into NEWDIR`: save what is readable, and say exactly what is not."""

from pathlib import Path
from typing import Annotated

import typer

from topics.cli import exit_codes
from topics.cli.verify import (
    AsJson,
    ColdDir,
    DataDir,
    describe,
    open_disks,
    print_json,
    progress_bar,
    say,
)
from topics.errors import ConfigError, DiskFailed, DiskFull
from topics.operate.repair import repair
from topics.operate.report import LostRange, RepairedTopic, RepairReport
from topics.operate.source import Meter, holding
from topics.operate.text import format_range, plural
from topics.operate.verify import measure
from topics.storage.disk.disk import Disk
from topics.storage.disk.local_disk import LocalDisk

SHOWN_MAX = 40

Into = Annotated[
    Path | None,
    typer.Option("--into", metavar="NEWDIR", help="the new directory: empty, or not there yet"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only say what would be saved and lost")]


def run_repair(
    directory: DataDir,
    *,
    into: Into = None,
    cold: ColdDir = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Save everything readable of a damaged data directory into a new one.

    The original is never touched. Seqs, topic ids, floors, configs, keys and
    producers stay, deleted stays deleted, cold segments become hot.

    What cannot be read is listed by topic and seq; readers of the new directory
    get a tombstone with reason crash for it. Seqs set aside may have been given
    out by the damaged log: they are never given out again.

    Exit code 0: nothing was lost. 3: something was, or may have been.
    4: another process has DIR open.
    """
    disk, cold_disk = open_disks(directory, cold)
    _check_into(directory, into, cold, dry_run=dry_run)
    with holding(disk), progress_bar("salvaging", measure(disk, cold_disk)) as meter:
        target = None if dry_run or into is None else LocalDisk(str(into))
        report = _repair(disk, cold_disk, target, into, meter)
    if as_json:
        print_json(report)
    else:
        _print(report, into)
    if target is not None and not report.verified:
        raise DiskFailed(f"{into} does not pass verify: the disk under it may be bad, use another")
    lost = report.records_lost > 0 or report.seqs_set_aside > 0
    raise typer.Exit(exit_codes.DAMAGE if lost else exit_codes.OK)


def _check_into(directory: Path, into: Path | None, cold: Path | None, *, dry_run: bool) -> None:
    if into is None:
        if not dry_run:
            raise ConfigError("where to? Name a new directory with --into, or ask with --dry-run")
        return
    target = into.resolve()
    for source in filter(None, (directory, cold)):
        if target == source.resolve() or source.resolve() in target.parents:
            raise ConfigError(f"{into} is inside {source}, which is only read: name another place")
    if into.exists() and not into.is_dir():
        raise ConfigError(f"{into} is a file: name a new directory")
    if into.is_dir() and any(into.iterdir()):
        raise ConfigError(f"{into} is not empty: name a new directory, nothing is overwritten")


def _repair(
    disk: Disk, cold: Disk | None, target: Disk | None, into: Path | None, meter: Meter
) -> RepairReport:
    try:
        return repair(disk, cold=cold, into=target, into_name=str(into), meter=meter)
    except DiskFull as error:
        raise DiskFull(f"{error}: remove {into}, which is not whole, and give it room") from error


def _print(report: RepairReport, into: Path | None) -> None:
    for finding in report.damage:
        say(f"damage   {describe(finding)}")
    for note in report.notes:
        say(f"note     {note}")
    for topic in report.topics:
        _print_topic(topic)
    say(
        f"{plural(report.records_kept, 'record')} kept, {report.records_lost:,} lost, "
        f"{plural(report.seqs_set_aside, 'seq')} set aside"
    )
    if report.into is None:
        say("dry run: nothing was written", bold=True)
    elif report.verified:
        say(f"{into} is healthy: open it in place of the old one", bold=True)


def _print_topic(topic: RepairedTopic) -> None:
    unnamed = "" if topic.name_is_known else " (its name and config are lost)"
    say(
        f"topic    {topic.name}{unnamed}: {plural(topic.records_kept, 'record')} kept, "
        f"{topic.lost_records:,} lost"
    )
    _print_ranges("lost", topic.lost)
    _print_ranges("set aside", topic.set_aside)


def _print_ranges(word: str, ranges: list[LostRange]) -> None:
    for lost in ranges[:SHOWN_MAX]:
        say(f"         {word}: {format_range(lost.first_seq, lost.last_seq)}: {lost.why}")
    if len(ranges) > SHOWN_MAX:
        say(f"         and {len(ranges) - SHOWN_MAX} more: --json shows all")
