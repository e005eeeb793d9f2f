"""`topics import-broker DIR`: the files of the old broker become topics and groups."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from topics.broker.old.files import OFFSETS, Problem
from topics.broker.old.report import ImportReport
from topics.broker.old.run import import_broker, measure
from topics.cli import exit_codes
from topics.cli.settings import with_settings
from topics.cli.verify import AsJson, print_json, progress_bar, say
from topics.config import LoadedConfig
from topics.embedded import Log
from topics.errors import ConfigError
from topics.operate.source import looks_like_data
from topics.operate.text import plural, printable
from topics.storage.disk.local_disk import LocalDisk

OldDir = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", exists=True, file_okay=False, help="the old broker's data directory"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="read and report, write nothing")]


@with_settings
def run_import_broker(
    loaded: LoadedConfig, directory: OldDir, *, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Take over the files of the old broker: <topic>-<n>.log and offsets.json.

    Run it while neither server runs; run it again and it goes on where it was.
    What cannot be read is told on stderr, line by line.

    Exit code 0: all is here. 1: some lines or offsets are not, or it did not
    work. 4: another process has the data directory open.
    """
    config = loaded.config
    if Path(config.data_dir).resolve() == directory.resolve():
        raise ConfigError("DIR is the data directory itself: name the one of the old broker")
    old = LocalDisk(str(directory))
    if not any(name == OFFSETS or name.endswith(".log") for name in old.list("")):
        raise ConfigError(f"{directory} holds nothing of the old broker: no <topic>-<n>.log in it")
    log = Log(config) if not dry_run or _is_there(config.data_dir) else None
    try:
        with progress_bar("importing", measure(old)) as meter:
            report = import_broker(
                old, log, limits=config, dry_run=dry_run, tell=_tell, meter=meter
            )
    finally:
        if log is not None:
            log.close()
    if as_json:
        print_json(report)
    else:
        _print(report)
    raise typer.Exit(exit_codes.ERROR if report.problem_count else exit_codes.OK)


def _is_there(data_dir: str) -> bool:
    return Path(data_dir).is_dir() and looks_like_data(LocalDisk(data_dir))


def _tell(problem: Problem) -> None:
    text = str(problem)
    sys.stderr.write((printable(text) if sys.stderr.isatty() else text) + "\n")


def _print(report: ImportReport) -> None:
    would = "would be " if report.dry_run else ""
    for file in report.files:
        bad = f", {plural(file.problems, 'problem')}" if file.problems else ""
        say(
            f"{file.file}: {plural(file.imported, 'record')} {would}imported, "
            f"{file.already_there:,} were there{bad}"
        )
    for offset in report.offsets:
        say(
            f"group {offset.group}: {offset.topic} {offset.partition} at {offset.position} "
            f"({would if offset.outcome == 'set' else ''}{offset.outcome})"
        )
    imported = sum(file.imported for file in report.files)
    say(
        f"{plural(imported, 'record')} {would}imported from {plural(len(report.files), 'file')}, "
        f"{plural(len(report.offsets), 'offset')} of groups"
    )
    if report.problem_count:
        say(f"{plural(report.problem_count, 'problem')}, told on stderr", bold=True)
    else:
        say("all of it was readable" if report.dry_run else "all of it is here", bold=True)
