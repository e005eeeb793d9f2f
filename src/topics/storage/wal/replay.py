"""Read one shard of the WAL back and decide where it ends.

Keeps: a torn tail is cut, damage of bytes that were once synced is an error that names file and
offset.
How the two are told apart: docs/internals/formats/wal.md, "Where the log ends".
"""

from typing import NamedTuple

from topics.errors import CorruptData
from topics.kernel import find_frame, scan_frames
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk
from topics.storage.wal.frame import FrameType, SyncMark, decode_control
from topics.storage.wal.log import Position, list_wal_files, read_current, write_current

Run = tuple[int, int, int, int, int, int]
"""type, topic_id, first_seq, count, start, end: as `topics.kernel.scan_frames` gives it."""

REWRITE_BYTES = 1 << 20


class ReplayedFile(NamedTuple):
    """The frames of one WAL file that are to be applied."""

    number: int
    buffer: memoryview
    runs: list[Run]


class ShardReplay(NamedTuple):
    """What a shard directory holds from the replay start to its end."""

    directory: str
    files: list[ReplayedFile]
    end: Position
    next_frame: int
    synced: Position
    """A SyncMark proves that everything before this place was synced."""
    dropped: list[int]
    """Files behind the end, written after a sync that never finished."""


def replay_shard(
    disk: Disk, directory: str, *, start: Position, cache_intact: bool = False
) -> ShardReplay:
    """Scan the shard from `start`, up to which a snapshot says that the log was synced.

    With `cache_intact` no write was torn by a power cut, only the last one may be cut short: then
    any whole frame behind a bad one proves damage.
    """
    numbers = [n for n in list_wal_files(disk, directory) if n >= start.file]
    if not numbers or numbers[0] != start.file:
        raise _missing(directory, start.file)
    if read_current(disk, directory) > numbers[-1]:
        raise _missing(directory, read_current(disk, directory))
    files: list[ReplayedFile] = []
    end, next_frame, synced = start, start.file, start
    while numbers:
        number = numbers[0]
        buffer = disk.map(f"{directory}/{paths.wal_file_name(number)}")
        skip = min(start.offset, len(buffer)) if number == start.file else 0
        skipped = scan_frames(buffer, 0, skip)
        if skipped.end < skip:
            # Its frames cannot be counted, so the next file would get a name that is taken.
            raise _damaged(f"{directory}/{paths.wal_file_name(number)}", skipped.end)
        frames_skipped = _count_frames(skipped.runs)
        scan = scan_frames(buffer, skip, len(buffer))
        files.append(ReplayedFile(number, buffer, scan.runs))
        end = Position(number, scan.end)
        next_frame = number + frames_skipped + _count_frames(scan.runs)
        synced = max([synced, *_marks(buffer, scan.runs)])
        following = _used(disk, directory, numbers[1:], next_frame=next_frame)
        whole = scan.clean and scan.end == scan.stopped
        if following and whole and following[0] == next_frame:
            numbers = following
            continue
        stopped = Position(number, scan.stopped)
        marks = _marks_behind(disk, directory, buffer, stopped, following)
        proven = any(mark > stopped for mark in marks)
        if cache_intact:
            proven = proven or bool(following) or find_frame(buffer, scan.stopped, len(buffer)) >= 0
        if proven or end < start:
            raise _damaged(f"{directory}/{paths.wal_file_name(number)}", scan.end)
        return ShardReplay(directory, files, end, next_frame, synced, following)
    raise AssertionError("a shard has at least one file")


def _used(disk: Disk, directory: str, numbers: list[int], *, next_frame: int) -> list[int]:
    """Leave out empty files of rotations that found the disk full: the log went on before them."""
    used = []
    for number in numbers:
        if number < next_frame:
            buffer = disk.map(f"{directory}/{paths.wal_file_name(number)}")
            if find_frame(buffer, 0, len(buffer)) < 0:
                continue
        used.append(number)
    return used


def _missing(directory: str, number: int) -> CorruptData:
    path = f"{directory}/{paths.wal_file_name(number)}"
    return CorruptData(f"{path} is missing: restore a backup or run topics repair", segment=path)


def _damaged(path: str, offset: int) -> CorruptData:
    return CorruptData(
        f"{path} is damaged at offset {offset}: frames that were synced cannot be read. "
        "Nothing was changed; restore a backup or run topics repair",
        segment=path,
    )


def seal_tail(disk: Disk, replay: ShardReplay) -> None:
    """Cut the log at its end and make what is left of it durable.

    A sync that failed before the restart may have left pages that look clean but are not on the
    device: everything that no SyncMark proves is written once more, so that this sync means
    something. Running it twice changes nothing.
    """
    for replayed in replay.files:
        if replayed.number >= replay.synced.file:
            _seal_file(disk, replay, replayed)
    if replay.dropped:
        write_current(disk, replay.directory, replay.end.file)
    for number in replay.dropped:
        disk.unlink(f"{replay.directory}/{paths.wal_file_name(number)}")
    disk.sync_dir(replay.directory)


def _seal_file(disk: Disk, replay: ShardReplay, replayed: ReplayedFile) -> None:
    """Write a file's unproven frames once more, cut what is behind them, and sync it.

    Not the last file alone: those before it may never have been synced, and all that follows
    stands on them.
    """
    end = replayed.runs[-1][5] if replayed.runs else 0
    begin = 0
    if replayed.number == replay.synced.file:
        begin = replay.synced.offset
    if replayed.number == replay.end.file:
        end = replay.end.offset
    file = disk.open(f"{replay.directory}/{paths.wal_file_name(replayed.number)}")
    for offset in range(begin, end, REWRITE_BYTES):
        stop = min(offset + REWRITE_BYTES, end)
        file.write_at(offset, [bytes(replayed.buffer[offset:stop])])
    file.truncate(max(begin, end))
    file.sync_data()
    file.close()


def _count_frames(runs: list[Run]) -> int:
    return sum(run[3] for run in runs)


def _marks(buffer: memoryview, runs: list[Run]) -> list[Position]:
    found = []
    for run in runs:
        if run[0] == FrameType.SYNC_MARK:
            mark = decode_control(buffer, run[4])
            assert isinstance(mark, SyncMark)
            found.append(Position(mark.file, mark.offset))
    return found


def _marks_behind(
    disk: Disk, directory: str, buffer: memoryview, stopped: Position, following: list[int]
) -> list[Position]:
    """Collect every SyncMark that is still readable behind the place where the scan stopped."""
    found = _all_marks(buffer, stopped.offset)
    for number in following:
        found += _all_marks(disk.map(f"{directory}/{paths.wal_file_name(number)}"), 0)
    return found


def _all_marks(buffer: memoryview, offset: int) -> list[Position]:
    found: list[Position] = []
    while (offset := find_frame(buffer, offset, len(buffer))) >= 0:
        scan = scan_frames(buffer, offset, len(buffer))
        found += _marks(buffer, scan.runs)
        offset = max(scan.stopped, offset + 1)
    return found
