"""`topics inspect DIR`: what is where in a data directory."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from topics.cli.verify import AsJson, ColdDir, DataDir, describe, open_disks, print_json, say
from topics.errors import DirectoryLocked, RequestError
from topics.operate.inspect import inspect, list_frames
from topics.operate.report import InspectReport, TopicInfo, WalListing
from topics.operate.source import holding
from topics.operate.text import format_size, printable
from topics.storage.disk.disk import Disk

PLAIN_WIDTH = 200  # of tables that go to a file or a pipe
SHOWN_MAX = 40

WalFile = Annotated[
    str | None,
    typer.Option(
        "--wal", metavar="FILE", help="list the frames of this WAL file: a path in DIR, or a name"
    ),
]
Offset = Annotated[int, typer.Option(min=0, help="with --wal: the byte to start at")]
Limit = Annotated[int, typer.Option(min=1, help="with --wal: how many frames")]


def run_inspect(
    directory: DataDir,
    *,
    cold: ColdDir = None,
    wal: WalFile = None,
    offset: Offset = 0,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show what is where: format, snapshots, logs, topics, segments, holes; change nothing.

    Works on a damaged directory as far as it can be read, and on one that a
    process has open. At risk are bytes that nothing proves to be synced: a
    power cut may take them.
    """
    disk, cold_disk = open_disks(directory, cold)
    if wal is not None:
        listing = list_frames(disk, _find_wal(directory, wal), offset=offset, limit=limit)
        print_json(listing) if as_json else _print_listing(listing)
    else:
        report = _inspect(disk, cold_disk)
        print_json(report) if as_json else _print(report)


def _inspect(disk: Disk, cold: Disk | None) -> InspectReport:
    try:
        with holding(disk):
            return inspect(disk, cold=cold)
    except DirectoryLocked:
        return inspect(disk, cold=cold, in_use=True)


def _find_wal(directory: Path, named: str) -> str:
    """Return the path below the directory of a file that was named in any way."""
    root = directory.resolve()
    for candidate in (directory / named, Path(named), *directory.glob(f"wal/**/{named}")):
        if candidate.is_file() and root in candidate.resolve().parents:
            return candidate.resolve().relative_to(root).as_posix()
    raise RequestError(f"{named} is no file in {directory}: topics inspect DIR lists the WAL files")


def _print(report: InspectReport) -> None:
    say(f"format {report.format or 'missing'}; {_how_it_stopped(report)}")
    for note in report.notes:
        say(f"note: {note}")
    _print_table(
        "snapshots", ("file", "size", "state", "topics", "replay from"), _snapshot_rows(report)
    )
    _print_table(
        "logs",
        ("directory", "files", "frames", "replay from", "end", "synced to", "at risk"),
        _log_rows(report),
    )
    for shard in report.shards:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in shard.frames_by_type.items())
        say(f"{shard.directory}: {kinds or 'no frames'}")
        for finding in shard.findings:
            say(f"  {describe(finding)}")
    columns = ("id", "topic", "durability", "floor", "earliest", "head", "records", "on the log")
    more = ("segments", "size", "dead", "holes", "tag runs", "keys", "producers")
    _print_table("topics", (*columns, *more), [_topic_row(topic) for topic in report.topics])
    for topic in report.topics:
        _print_topic(topic)
    if report.partitioned:
        head = ("id", "topic", "partitions", "found")
        _print_table("partitioned topics", head, _parent_rows(report))
    if report.groups:
        _print_table("groups", ("group", "generation", "members", "committed"), _group_rows(report))
    if report.unknown_topic_ids:
        ids = ", ".join(map(str, report.unknown_topic_ids))
        say(f"topics that nothing names: {ids}: run topics verify")


def _parent_rows(report: InspectReport) -> list[tuple[str, ...]]:
    return [
        (
            str(parent.topic_id),
            parent.name,
            " → ".join(map(str, parent.counts)),
            str(parent.found),
        )
        for parent in report.partitioned
    ]


def _how_it_stopped(report: InspectReport) -> str:
    if report.in_use_by_a_process:
        return "in use by a process"
    return "stopped cleanly" if report.stopped_cleanly else "not stopped cleanly"


def _snapshot_rows(report: InspectReport) -> list[tuple[str, ...]]:
    return [
        (
            found.path,
            format_size(found.bytes),
            "damaged" if not found.readable else "in use" if found.in_use else "older",
            "" if found.topics is None else str(found.topics),
            ", ".join(f"{file}:{at}" for file, at in found.places.values()),
        )
        for found in report.snapshots
    ]


def _log_rows(report: InspectReport) -> list[tuple[str, ...]]:
    return [
        (
            shard.directory + ("" if shard.in_use else " (left over)"),
            str(len(shard.files)),
            f"{sum(file.frames for file in shard.files):,}",
            *(f"{file}:{offset}" for file, offset in (shard.replay_from, shard.end, shard.synced)),
            format_size(shard.at_risk_bytes),
        )
        for shard in report.shards
    ]


def _group_rows(report: InspectReport) -> list[tuple[str, ...]]:
    return [
        (
            found.group,
            str(found.generation),
            ", ".join(found.members),
            ", ".join(f"{topic}/{number}: {seq}" for topic, number, _, seq in found.committed),
        )
        for found in report.groups
    ]


def _topic_row(topic: TopicInfo) -> tuple[str, ...]:
    size = sum(segment.bytes for segment in topic.segments)
    dead = sum(segment.bytes * segment.dead_share for segment in topic.segments)
    return (
        str(topic.topic_id),
        topic.name or "?",
        str(topic.config.get("durability", "?")),
        str(topic.evict_floor),
        str(topic.earliest_seq),
        str(topic.head_seq),
        f"{topic.records:,}",
        f"{topic.wal_records:,}",
        str(len(topic.segments)),
        format_size(size),
        f"{dead / size:.0%}" if size else "",
        str(len(topic.holes)),
        str(len(topic.tag_runs)),
        str(topic.idempotency_keys),
        str(topic.producers),
    )


def _print_topic(topic: TopicInfo) -> None:
    """Print what a row has no room for."""
    changed = {
        name: value
        for name, value in topic.config.items()
        if value and name not in ("type", "durability", "durable")
    }
    say(f"{topic.name or '?'} ({topic.topic_id}): {msgspec.json.encode(changed).decode()}")
    if topic.pending_deletes:
        say(f"  {topic.pending_deletes} deletes on the log are applied by the next start")
    for first_seq, last_seq, reason in topic.holes[:SHOWN_MAX]:
        say(f"  hole {first_seq} to {last_seq}: {reason}")
    rows = [
        (
            f"{segment.first_seq} to {segment.last_seq}",
            segment.tier,
            format_size(segment.bytes),
            f"{segment.live_records:,}",
            f"{segment.dead_share:.0%}",
            "" if segment.readable else "the index cannot be read",
        )
        for segment in topic.segments[:SHOWN_MAX]
    ]
    if rows:
        _print_table("", ("seqs", "tier", "size", "live", "dead", ""), rows)
    rest = max(len(topic.segments), len(topic.holes)) - SHOWN_MAX
    if rest > 0:
        say(f"  and {rest} more: --json shows all")


def _print_listing(listing: WalListing) -> None:
    rows = [
        (
            str(frame.offset),
            str(frame.bytes),
            frame.type,
            str(frame.topic_id or ""),
            str(frame.seq or ""),
            str(frame.ts or ""),
            " ".join(frame.flags),
            msgspec.json.encode(frame.body).decode() if frame.body else "",
        )
        for frame in listing.frames
    ]
    _print_table(listing.path, ("offset", "bytes", "type", "topic", "seq", "ts", "flags", ""), rows)
    if listing.next_offset is not None:
        say(f"go on with --offset {listing.next_offset}")


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    Console(width=width, highlight=False, markup=False).print(table)
