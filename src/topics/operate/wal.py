"""Every frame of every log, and whether what cannot be read was torn or damaged.

    parts of a file (frames without a gap) → gaps between them → what SyncMarks and snapshots prove
    → torn or damaged

The rule is that of recovery (docs/internals/formats/wal.md, "Where the log ends"), but a bad frame
does not end the reading.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from topics.kernel import find_frame, scan_frames
from topics.operate.report import Finding
from topics.operate.source import Meter, Source, no_meter, read_source
from topics.storage.disk import paths
from topics.storage.disk.data_dir import cache_is_intact
from topics.storage.disk.disk import Buffer, Disk
from topics.storage.wal.frame import (
    HEADER,
    LEN_FIELD_BYTES,
    OVERHEAD_BYTES,
    Body,
    FrameType,
    SyncMark,
    decode_control,
)
from topics.storage.wal.log import Position, list_wal_files
from topics.storage.wal.replay import Run

WAL_START: Final = Position(1, 0)
NO_END: Final = 1 << 62
CLEAN_END: Final = "zeros in the place of frames"
UNKNOWN_FRAMES: Final = 1 << 20
"""How many frames a file may have held of which nothing is known but its name."""


class Part(NamedTuple):
    """Frames that follow each other: whole batches up to `end`, an open one up to `stopped`."""

    runs: list[Run]
    end: int
    stopped: int
    clean: bool


class Gap(NamedTuple):
    """A place where frames should follow and do not."""

    at: Position
    end: int
    cut: Position
    """Where the last whole batch before it ends."""
    message: str
    frames_lost_max: int
    missing: int | None = None
    """The number of the file that should be there."""
    certain: bool = False
    """Damage, whatever SyncMarks say."""
    torn: bool = False

    @property
    def finding(self) -> Finding:
        return Finding(message=self.message, offset=self.at.offset)


class WalFile(NamedTuple):
    """One file, all frames of which were read."""

    number: int
    size: int
    used: int
    """Where its last readable frame ends."""
    frames: int
    by_type: dict[int, int]
    gaps: list[Gap]
    undecodable: list[Finding]
    topic_ids: set[int]


class Log(NamedTuple):
    """One shard directory."""

    directory: str
    in_use: bool
    files: list[WalFile]
    start: Position
    proven: Position
    """Everything before this place was synced once."""
    gaps: list[Gap]
    """In log order; what is behind a torn one is what recovery would cut."""

    @property
    def damage(self) -> list[Gap]:
        return [gap for gap in self.gaps if not gap.torn]

    @property
    def cut(self) -> Position | None:
        return next((gap.cut for gap in self.gaps if gap.torn), None)

    @property
    def end(self) -> Position:
        if self.cut is not None:
            return self.cut
        last = self.files[-1] if self.files else None
        return Position(last.number, last.used) if last else self.start

    @property
    def at_risk_bytes(self) -> int:
        """Return how many bytes before the end nothing proves to be synced."""
        total = 0
        for file in self.files:
            if file.number <= self.end.file:
                stop = self.end.offset if file.number == self.end.file else file.used
                begin = self.proven.offset if file.number == self.proven.file else 0
                total += max(0, stop - begin) if file.number >= self.proven.file else 0
        return total

    def is_replayed(self, gap: Gap) -> bool:
        """Tell whether a gap may have held frames that the snapshot does not know."""
        upto = Position(gap.at.file, gap.end)
        return upto > self.start or (gap.missing is not None and gap.missing >= self.start.file)

    def path(self, number: int) -> str:
        return f"{self.directory}/{paths.wal_file_name(number)}"


def log_directories(disk: Disk) -> list[str]:
    """Return every directory with WAL files or a CURRENT, whatever the shard count was."""
    names = disk.list(paths.WAL_DIR)
    shards = [f"{paths.WAL_DIR}/{n}" for n in names if paths.parse_shard_dir_name(n) is not None]
    return [
        directory
        for directory in [paths.WAL_DIR, *shards]
        if list_wal_files(disk, directory) or disk.exists(f"{directory}/{paths.CURRENT}")
    ]


def survey_logs(
    disk: Disk,
    places: dict[str, Position] | None,
    *,
    proven: dict[str, Position] | None = None,
    meter: Meter = no_meter,
) -> list[Log]:
    """Read all logs; `places` is where the snapshot in use starts each of its own."""
    directories = [*(places or {})]
    directories += [d for d in log_directories(disk) if d not in directories]
    logs = []
    for directory in directories:
        in_use = not places or directory in places
        start = (places or {}).get(directory, WAL_START)
        known = max(start, (proven or {}).get(directory, start))
        files, mark = _read_files(disk, directory, meter)
        log = Log(directory, in_use, files, start, max(known, mark), [])
        logs.append(log._replace(gaps=_judge(disk, log)))
    return logs


def _read_files(disk: Disk, directory: str, meter: Meter) -> tuple[list[WalFile], Position]:
    files = []
    newest_mark = Position(0, 0)
    for number in list_wal_files(disk, directory):
        source = read_source(disk, f"{directory}/{paths.wal_file_name(number)}", meter)
        if source is not None:
            file, mark = _read_file(source, number)
            files.append(file)
            newest_mark = max(newest_mark, mark)
    return files, newest_mark


def _read_file(source: Source, number: int) -> tuple[WalFile, Position]:
    by_type: Counter[int] = Counter()
    gaps: list[Gap] = []
    undecodable: list[Finding] = []
    topic_ids: set[int] = set()
    mark = Position(0, 0)
    used = 0
    buffer = source.data
    for part in read_parts(buffer):
        _close_gap(gaps, part)
        for run in _all_runs(buffer, part):
            by_type[run[0]] += run[3]
            topic_ids.add(run[1])
            if run[0] != FrameType.APPEND:
                body = decode(buffer, run[4])
                if body is None:
                    message = "a control frame whose body cannot be decoded"
                    undecodable.append(Finding(message=message, offset=run[4]))
                elif isinstance(body, SyncMark):
                    mark = max(mark, Position(body.file, body.offset))
        used = part.stopped
        gaps += _gap_behind(part, number, len(buffer), source)
    last = gaps.pop()
    if last.message != CLEAN_END or last.cut != last.at:
        gaps.append(last._replace(end=len(buffer)))
    frames, size = by_type.total(), len(buffer)
    topic_ids.discard(0)
    file = WalFile(number, size, used, frames, dict(by_type), gaps, undecodable, topic_ids)
    return file, mark


def read_parts(buffer: Buffer) -> Iterator[Part]:
    """Yield the frames of a file, going on behind every gap."""
    at = 0
    while at >= 0:
        scan = scan_frames(buffer, at, len(buffer))
        yield Part(scan.runs, scan.end, scan.stopped, scan.clean)
        at = find_frame(buffer, scan.stopped, len(buffer))


def walk_frames(buffer: Buffer, start: int, stop: int) -> Iterator[Run]:
    """Yield frames one by one where a scan has found nothing but intact ones."""
    while start < stop:
        size, kind, _, topic_id, seq, *_ = HEADER.unpack_from(buffer, start)
        end = start + LEN_FIELD_BYTES + size
        yield kind, topic_id, seq, 1, start, end
        start = end


def decode(buffer: Buffer, offset: int) -> Body | None:
    """Decode a control frame; None where its body is not what its type says."""
    try:
        return decode_control(buffer, offset)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None


def _all_runs(buffer: Buffer, part: Part) -> Iterator[Run]:
    yield from part.runs
    yield from walk_frames(buffer, part.end, part.stopped)


def _gap_behind(part: Part, number: int, size: int, source: Source) -> list[Gap]:
    """Return the gap that a part ends with; its end is -1 until the next part begins."""
    at, cut = Position(number, part.stopped), Position(number, part.end)
    unreadable = next((r for r in source.unreadable if r[0] <= part.stopped < r[1]), None)
    if unreadable is not None:
        message = f"the device cannot read bytes {unreadable[0]} to {unreadable[1]}"
    elif part.clean:
        message = CLEAN_END if part.end == part.stopped else "a batch without its end"
    else:
        message = "a frame that fails its length or checksum"
    return [Gap(at, -1, cut, message, (size - part.stopped) // OVERHEAD_BYTES)]


def _close_gap(gaps: list[Gap], part: Part) -> None:
    if gaps and gaps[-1].end < 0:
        begin = part.runs[0][4] if part.runs else part.end
        lost_max = (begin - gaps[-1].at.offset) // OVERHEAD_BYTES
        gaps[-1] = gaps[-1]._replace(end=begin, frames_lost_max=lost_max)


def _judge(disk: Disk, log: Log) -> list[Gap]:
    """Put the gaps of all files, and those between files, in order and tell torn from damaged."""
    gaps = [*_missing_start(log), *_gaps_of_files(log), *_missing_end(disk, log)]
    # While the page cache is the one that was written through, only the last write can be torn.
    last = Position(log.files[-1].number, log.files[-1].used) if log.files else log.start
    proven = max(log.proven, last) if cache_is_intact(disk) else log.proven
    return [gap._replace(torn=gap.at >= proven and not gap.certain) for gap in gaps]


def _gaps_of_files(log: Log) -> Iterator[Gap]:
    for place, file in enumerate(log.files):
        following = log.files[place + 1].number if place + 1 < len(log.files) else None
        expected = file.number + file.frames
        gaps = list(file.gaps)
        if gaps and following is None:
            gaps[-1] = _cut_short(log, file, gaps[-1])
        elif gaps and following is not None:
            lost = max(0, following - expected)
            gaps = [gap._replace(frames_lost_max=min(gap.frames_lost_max, lost)) for gap in gaps]
        elif following is not None and following != expected:
            end = Position(file.number, file.used)
            name = paths.wal_file_name(expected)
            message = f"{name} should follow and is missing"
            if following < expected:
                message = f"{paths.wal_file_name(following)} follows, but {name} should"
            missing = expected if following > expected else None
            gaps = [Gap(end, file.used, end, message, max(0, following - expected), missing)]
        yield from gaps


def _cut_short(log: Log, file: WalFile, gap: Gap) -> Gap:
    """Let the last gap of a log have no end where more was synced than the file still has."""
    if gap.end < file.size or log.proven <= Position(file.number, file.size):
        return gap
    message = f"{gap.message}, and the file is cut short"
    return gap._replace(end=NO_END, message=message, frames_lost_max=UNKNOWN_FRAMES)


def _missing_start(log: Log) -> Iterator[Gap]:
    numbers = [file.number for file in log.files]
    if not log.in_use or log.start.file in numbers:
        return
    following = next((n for n in numbers if n > log.start.file), None)
    lost = UNKNOWN_FRAMES if following is None else following - log.start.file
    message = f"{paths.wal_file_name(log.start.file)}, where the replay starts, is missing"
    start = log.start
    yield Gap(start, start.offset, start, message, lost, start.file, certain=True)


def _missing_end(disk: Disk, log: Log) -> Iterator[Gap]:
    if not log.in_use or not log.files:
        return
    last = log.files[-1]
    end = Position(last.number, last.used)
    named = read_current(disk, log.directory)
    if named is not None and named > last.number:
        # It is written after the file has its name: whoever has one has the other.
        message = f"{paths.CURRENT} names {paths.wal_file_name(named)}, which is missing"
        yield Gap(end, NO_END, end, message, UNKNOWN_FRAMES, named, certain=True)
    elif log.proven > end and not last.gaps:
        file, offset = log.proven
        message = f"the log was synced up to byte {offset} of file {file}, but ends here"
        yield Gap(end, NO_END, end, message, UNKNOWN_FRAMES)


def read_current(disk: Disk, directory: str) -> int | None:
    """Return the number of the file that CURRENT names."""
    source = read_source(disk, f"{directory}/{paths.CURRENT}")
    text = bytes(source.data).decode("ascii", "replace").strip() if source else ""
    return paths.parse_wal_file_name(text)


def iter_runs(
    disk: Disk, log: Log, *, past_torn: bool, meter: Meter = no_meter
) -> Iterator[tuple[int, Buffer, Run]]:
    """Yield (file number, buffer, run) in log order: what recovery applies, or all there is.

    With `past_torn` frames of a batch that damage has broken are there too, one by one; those of a
    batch that was never finished are not.
    """
    damaged = {gap.at for gap in log.damage}
    for file in log.files:
        if not past_torn and log.cut is not None and file.number > log.cut.file:
            return
        source = read_source(disk, log.path(file.number), meter)
        if source is None:
            continue
        for part in read_parts(source.data):
            broken = past_torn and Position(file.number, part.stopped) in damaged
            runs = _all_runs(source.data, part) if broken else iter(part.runs)
            for run in runs:
                if not past_torn and log.cut is not None and (file.number, run[4]) >= log.cut:
                    return
                yield file.number, source.data, run
