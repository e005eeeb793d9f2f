"""One shard of the WAL as a row of files: append, rotate, sync.

Owns the open file, its tail, the spare file and `CURRENT` of one shard directory.
Keeps: after a write or sync failed nothing more is written (`failed`); the first write after a
finished sync starts with a SyncMark that names how far the log was synced; a batch never spans two
files. Not thread-safe: the shard's lock is held around everything but `SyncPoint.sync` and
`prepare_spare`, which may meet a rotation at any of its steps.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple, cast

from topics.errors import (
    DiskFailed,
    DiskFull,
    Exhausted,
    FileMissing,
    ShardReadOnly,
    TooManyFiles,
)
from topics.histogram import LATENCY_US, SIZES, Histogram
from topics.storage.disk import paths
from topics.storage.disk.data_dir import write_file
from topics.storage.disk.disk import Buffer, Disk, DiskFile
from topics.storage.disk.reserve import Reserve
from topics.storage.wal.frame import encode_sync_mark

RECYCLED = (f"recycled{paths.TEMPORARY_SUFFIX}", f"recycled-2{paths.TEMPORARY_SUFFIX}")
"""So many are kept of the files that one trim finds, which under load are several."""
IN_USE_SHARE = 16
"""Of a file that is filled by a sixteenth it is worth writing the next one ahead."""
_ZEROS = bytes(1 << 20)
JOINED_BYTES_MAX = 4096
"""So few bytes are sooner copied behind their SyncMark than handed to the kernel beside it.

Measured: half a microsecond of the 14 that a lone write takes without its sync.
"""
NO_FILE = -1
"""The capacity of no file."""
SMALL_FILE_BYTES = 1 << 20
"""What a file of the log has on a full disk."""
BLOCK_BYTES = 4096
"""What a kernel keeps of a file at a time, most often: where it is more, some reads remain."""


class Position(NamedTuple):
    """A place in the log: the number of the file's first frame, and a byte in it."""

    file: int
    offset: int


class SyncPoint(NamedTuple):
    """What one sync has to cover; `sync` runs without the shard's lock."""

    files: list[DiskFile]
    upto: Position

    def sync(self) -> None:
        for file in self.files:
            file.sync_data()


class WalCounters:
    """What the metrics show of one shard."""

    def __init__(self) -> None:
        self.frames = 0
        self.batches = 0
        self.fsyncs = 0
        self.bytes_written = 0
        self.rotations = 0
        self.sync_us = Histogram(LATENCY_US)
        self.batch_tickets = Histogram(SIZES)


class WalLog:
    """Appends batches of frames to the newest file of one shard directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        file_bytes: int,
        next_frame: int,
        reserve: Reserve | None = None,
    ) -> None:
        self._disk = disk
        self._reserve = reserve
        self.directory = directory
        self._file_bytes = file_bytes
        self._next_frame = next_frame
        self._unsynced: list[DiskFile] = []
        self.failed: DiskFailed | None = None
        self.counters = WalCounters()
        self.on_spare_due: Callable[[], None] | None = None
        """Called after a rotation: whoever prepares spares need not look for it."""
        self._maps: dict[int, memoryview] = {}
        self._closed = False
        self._is_written = self._spare_is_written = False
        """Of the file and of the spare: its blocks were written before, not only reserved."""
        self._file = self._open_first_file()
        self.position = Position(next_frame, 0)
        self.synced = self.position
        self._marked = self.position

    def write(self, batches: Sequence[Buffer], *, frames: int, size: int) -> None:
        """Append whole batches; the caller may publish what needs no sync when this returns."""
        if self.failed is not None:
            self.check_writable()
        marked = self.synced
        if marked > self._marked:
            mark = encode_sync_mark(*self.synced)
            small = size <= JOINED_BYTES_MAX
            batches = [b"".join((mark, *batches))] if small else [mark, *batches]
            size += len(mark)
            frames += 1
        if self.position.offset + size > self._capacity and (
            self.position.offset or self.has_no_file
        ):
            self._rotate(size)
        zeros = self._rest_of_block(size)
        try:
            self._file.write_at(self.position.offset, [*batches, zeros] if zeros else batches)
        except DiskFailed as error:
            self.fail(error)
            raise
        self._marked = marked
        self.position = Position(self.position.file, self.position.offset + size)
        self._next_frame += frames
        self.counters.frames += frames
        self.counters.batches += 1
        self.counters.bytes_written += size

    def _open_first_file(self) -> DiskFile:
        """Begin a file; without room for any, the first write does: a log can be read without."""
        try:
            return self._open_next_file(0)
        except DiskFull:
            if self._reserve is None:
                raise
            self._capacity = NO_FILE
            return cast("DiskFile", None)  # nothing asks for it before there is one

    @property
    def has_no_file(self) -> bool:
        """Tell whether there was no room for one yet."""
        return self._capacity == NO_FILE

    def need_file(self) -> None:
        """Begin the file that a start had no room for: somebody is about to name it."""
        if self.has_no_file:
            self._rotate(0)

    def _rest_of_block(self, size: int) -> bytes:
        """Return zeros for what a write leaves of a block that it is the first to write to.

        They are there already. But where the kernel has given the page up, it would read the block
        before it can write a part of it, and the writer would wait for the device.
        """
        end = self.position.offset + size
        used = end % BLOCK_BYTES
        if used == 0 or end - used < self.position.offset:
            return b""
        return _ZEROS[: max(0, min(BLOCK_BYTES - used, self._capacity - end))]

    def end_file(self) -> None:
        """Have the next write begin a new file."""
        if not self.has_no_file:
            self._capacity = self.position.offset

    def fail(self, error: DiskFailed) -> None:
        """Take no more writes, and let no later start trust the page cache."""
        self.failed = error
        if not self._closed:
            with suppress(DiskFailed):
                self._disk.unlink(paths.RUNNING)

    def check_writable(self) -> None:
        if self.failed is not None:
            raise ShardReadOnly(
                f"the WAL in {self.directory} failed ({self.failed}) and takes no more writes: "
                "check the disk, then restart"
            )

    @property
    def needs_sync(self) -> bool:
        return self.position > self.synced

    def begin_sync(self) -> SyncPoint:
        files = [*self._unsynced, self._file]
        return SyncPoint(files, self.position)

    def finish_sync(self, point: SyncPoint) -> None:
        """Remember that everything before `point` is on the device."""
        if self._unsynced:
            # The point's last file stays: it got more writes if the log was rotated meanwhile.
            done = point.files[:-1]
            self._unsynced = [file for file in self._unsynced if file not in done]
        self.synced = point.upto
        self.counters.fsyncs += 1

    def prepare_spare(self, *, in_flood: bool = False) -> None:
        """Make the next file ahead of its need, without the shard's lock.

        Its blocks are reserved, and once the log is in use they are written, which spares each
        later sync to note that they are in use now: that is a third of its time. But not in a
        flood: there the device has enough to write, and few syncs cover many records.
        A disk that refuses is told by the rotation that needs the file.
        """
        if self._is_short:
            return
        has_spare, worth_writing = self._is_whole(self._spare), self._is_in_use and not in_flood
        if has_spare and (self._spare_is_written or not worth_writing):
            return
        preparing = f"{self.directory}/preparing{paths.TEMPORARY_SUFFIX}"
        places = [self._spare] if has_spare else self._recycled_places()
        used = next(filter(self._is_whole, places), None)
        self._spare_is_written = False
        try:
            if used is not None:
                self._disk.rename(used, preparing)
                # Before the first zero: no power cut brings a WAL file back without its frames.
                self._disk.sync_dir(self.directory)
            else:
                self._allocate(preparing, self._file_bytes)
            if used is not None and in_flood:
                self._clear(preparing)
            elif used is not None or worth_writing:
                self._write_zeros(preparing)
                self._spare_is_written = True  # before a rotation can take it
            self._disk.rename(preparing, self._spare)
        except DiskFailed:
            self._spare_is_written = False
            if self._disk.exists(preparing):
                self._disk.unlink(preparing)

    @property
    def has_better_spare(self) -> bool:
        """Tell whether syncs would be shorter in the spare, and this file is not half full."""
        return (
            self._spare_is_written
            and not self._is_written
            and self._is_in_use
            and self.position.offset < self._capacity // 2
        )

    @property
    def _is_in_use(self) -> bool:
        return self.position.offset >= self._file_bytes // IN_USE_SHARE

    def _is_whole(self, path: str) -> bool:
        """Tell whether a file is there in the size of today: one of another has other zeros."""
        try:
            return self._disk.size(path) == self._file_bytes
        except FileMissing:
            return False

    def view(self, position: Position, size: int) -> memoryview | None:
        """Return a view of frames just written; None where there can be none."""
        if position.file != self.position.file:
            return None
        mapped = self._maps.get(position.file)
        if mapped is None:
            try:
                mapped = self._disk.map(f"{self.directory}/{paths.wal_file_name(position.file)}")
            except TooManyFiles:
                return None
            self._maps = {position.file: mapped}
        return mapped[position.offset : position.offset + size]

    def trim(self, upto: Position) -> list[str]:
        """Remove every file that ends before `upto`; return their names."""
        numbers = list_wal_files(self._disk, self.directory)
        gone = [n for n, following in pairwise(numbers) if following <= upto.file]
        names = [f"{self.directory}/{paths.wal_file_name(n)}" for n in gone]
        places = [] if self._is_short else self._recycled_places()
        free = [place for place in places if not self._is_whole(place)]
        for name in names:
            if free and self._is_whole(name):
                self._disk.rename(name, free.pop())
            else:
                self._disk.unlink(name)
        return names

    def close(self) -> None:
        self._closed = True
        self._unsynced, self._maps = [], {}
        if not self.has_no_file:
            self._file.close()

    def _rotate(self, size: int) -> None:
        waited = self.has_no_file
        following = self._open_next_file(size)
        if not waited:
            self._unsynced.append(self._file)
        self._file = following
        self.position = Position(self._next_frame, 0)
        self.counters.rotations += 1
        if self.on_spare_due is not None:
            self.on_spare_due()

    def _open_next_file(self, size: int) -> DiskFile:
        """Give the spare, or a new file, the next name.

        What ran out, room or descriptors, changes nothing: the same write may succeed later. Any
        other failure is final.
        """
        name = paths.wal_file_name(self._next_frame)
        try:
            if size > self._file_bytes or not self._take_spare(name):
                source = f"{self.directory}/rotating{paths.TEMPORARY_SUFFIX}"
                self._make_file(source, size)
                self._disk.rename(source, f"{self.directory}/{name}")
                self._is_written = False
            # Durable before CURRENT says so: a file that CURRENT names and that is gone is a loss.
            self._disk.sync_dir(self.directory)
            self._note_current()
            file = self._disk.open(f"{self.directory}/{name}")
        except Exhausted:
            raise
        except DiskFailed as error:
            self.fail(error)
            raise
        self._capacity = file.size()
        return file

    def _note_current(self) -> None:
        """Name the newest file; without room for that an older one stays named, which is there."""
        try:
            write_current(self._disk, self.directory, self._next_frame)
        except DiskFull:
            if self._reserve is None:
                raise
            self._reserve.give()
            with suppress(DiskFull):
                write_current(self._disk, self.directory, self._next_frame)

    def _make_file(self, path: str, size: int) -> None:
        """Make the next file; on a full disk a small one, so that what frees room can be written.

        Its room is what was kept for later, and then the reserve: from there on the engine takes
        no records.
        """
        try:
            self._allocate(path, max(size, self._file_bytes))
        except DiskFull:
            self._remove(path, *self._recycled_places())
            if self._reserve is None or size > SMALL_FILE_BYTES:
                raise
            self._reserve.give()
            self._make_small_file(path, size)

    def _make_small_file(self, path: str, size: int) -> None:
        small = min(self._file_bytes, SMALL_FILE_BYTES)
        while True:
            try:
                self._allocate(path, max(size, small))
            except DiskFull:
                self._remove(path)
                small //= 4
                if max(size, small) < BLOCK_BYTES or small < size:
                    raise
            else:
                return

    def _remove(self, *paths_: str) -> bool:
        """Remove what is there of some files; tell whether there was any."""
        there = [path for path in paths_ if self._disk.exists(path)]
        for path in there:
            with suppress(FileMissing):  # taken for a spare just now
                self._disk.unlink(path)
        return bool(there)

    def give_room(self) -> bool:
        """Remove what is kept to be used again; tell whether there was any."""
        return self._remove(*self._recycled_places())

    @property
    def _is_short(self) -> bool:
        return self._reserve is not None and self._reserve.is_short

    def _take_spare(self, name: str) -> bool:
        if not self._is_whole(self._spare):
            return False
        try:
            self._disk.rename(self._spare, f"{self.directory}/{name}")
        except FileMissing:  # it is being written just now
            return False
        self._is_written, self._spare_is_written = self._spare_is_written, False
        return True

    def _write_zeros(self, path: str) -> None:
        file = self._disk.open(path)
        for offset in range(0, self._file_bytes, len(_ZEROS)):
            file.write_at(offset, [_ZEROS[: self._file_bytes - offset]])
        file.sync_data()
        file.close()

    def _clear(self, path: str) -> None:
        file = self._disk.open(path)
        file.clear()
        file.close()

    @property
    def _spare(self) -> str:
        return f"{self.directory}/{paths.SPARE_WAL}"

    def _recycled_places(self) -> list[str]:
        return [f"{self.directory}/{name}" for name in RECYCLED]

    def _allocate(self, path: str, size: int) -> None:
        file = self._disk.create(path)
        file.allocate(size)
        file.sync_data()
        file.close()


def write_current(disk: Disk, directory: str, number: int) -> None:
    """Name the newest file of a shard."""
    name = paths.wal_file_name(number)
    write_file(disk, f"{directory}/{paths.CURRENT}", name.encode() + b"\n")


def read_current(disk: Disk, directory: str) -> int:
    """Return the number of the newest file there must be, 0 where nothing tells."""
    path = f"{directory}/{paths.CURRENT}"
    if not disk.exists(path):
        return 0
    name = disk.read(path).decode(errors="replace").strip()
    return paths.parse_wal_file_name(name) or 0


def list_wal_files(disk: Disk, directory: str) -> list[int]:
    """Return the numbers of a shard's files in log order."""
    numbers = (paths.parse_wal_file_name(name) for name in disk.list(directory))
    return sorted(n for n in numbers if n is not None)
