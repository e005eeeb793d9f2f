"""The bytes of one file, read in a way that a bad sector cannot kill.

A memory map would end the process with SIGBUS where the device fails, so files are read; only a
file larger than `READ_BYTES_MAX` is mapped, to keep memory flat.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from topics.errors import DirectoryLocked, DiskFailed, FileMissing
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer, Disk, DiskLock

READ_BYTES_MAX: Final = 256 << 20
PIECE_BYTES: Final = 4096
Meter = Callable[[int], None]
"""Told how many bytes were read, for whoever shows progress."""


def no_meter(_: int) -> None:
    """Show no progress."""


class Source(NamedTuple):
    """A file as far as it can be read; unreadable bytes are zeros and named by range."""

    data: Buffer
    unreadable: list[tuple[int, int]]


def read_source(disk: Disk, path: str, meter: Meter = no_meter) -> Source | None:
    """Read a whole file; None where there is none."""
    try:
        size = disk.size(path)
    except FileMissing:
        return None
    try:
        data = disk.read(path) if size <= READ_BYTES_MAX else disk.map(path)
    except FileMissing:
        return None
    except DiskFailed:
        return _read_around(disk, path, size)
    meter(size)
    return Source(data, [])


def _read_around(disk: Disk, path: str, size: int) -> Source:
    """Read piece by piece and leave out what the device refuses."""
    found = bytearray(size)
    unreadable: list[tuple[int, int]] = []
    try:
        file = disk.open(path)
    except DiskFailed:
        return Source(b"", [(0, size)])
    for offset in range(0, size, PIECE_BYTES):
        stop = min(offset + PIECE_BYTES, size)
        try:
            piece = file.read_at(offset, stop - offset)
        except DiskFailed:
            if unreadable and unreadable[-1][1] == offset:
                unreadable[-1] = (unreadable[-1][0], stop)
            else:
                unreadable.append((offset, stop))
        else:
            found[offset : offset + len(piece)] = piece
    file.close()
    return Source(bytes(found), unreadable)


def hold_directory(disk: Disk) -> DiskLock | None:
    """Keep every other process out while we look; None where the lock cannot be taken from here.

    A directory without a lock file was never opened (or is a copy): then nobody has it open.
    """
    if not disk.exists(paths.LOCK):
        return None
    try:
        return disk.lock(paths.LOCK)
    except DirectoryLocked as error:
        raise DirectoryLocked(f"{error}: stop it first, or use a copy of the directory") from None
    except DiskFailed:  # read-only media, or somebody else's files
        return None


@contextmanager
def holding(disk: Disk) -> Iterator[None]:
    """Hold the directory for a while."""
    lock = hold_directory(disk)
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


def looks_like_data(disk: Disk) -> bool:
    """Tell whether anything here was ever a data directory."""
    return any(
        disk.exists(path)
        for path in (paths.FORMAT, paths.META_DIR, paths.WAL_DIR, paths.TOPICS_DIR)
    )
