"""A disk that can be filled up and emptied again while it is in use.

Wraps another one. While `full` is true, whatever needs new room fails as on a full device; reading,
removing, syncing, and writing where there is room already go on. With `size_bytes` it is a device
of that size: what files take of it comes back when they are removed.
"""

from collections.abc import Sequence

from topics.errors import DiskFull
from topics.storage.disk.disk import Buffer, Disk, DiskFile, DiskLock, Room


class FullDisk:
    """The disk below it, or no room."""

    def __init__(self, disk: Disk, *, size_bytes: int | None = None) -> None:
        self.full = False
        self.size_bytes = size_bytes
        """May be changed: a device that grew, or one that others fill."""
        self._disk = disk
        self._sizes: dict[str, int] = {}

    @property
    def used_bytes(self) -> int:
        """Return what was written by way of this object and not removed since."""
        return sum(self._sizes.values())

    def grow(self, path: str, size: int) -> None:
        """Take room for a file; without any it keeps what it had."""
        more = size - self._sizes.get(path, 0)
        if more <= 0:
            return
        if self.full or (self.size_bytes is not None and self.used_bytes + more > self.size_bytes):
            raise DiskFull(f"{path}: no space left on device (a test filled the disk)")
        self._sizes[path] = size

    def cut(self, path: str, size: int) -> None:
        if path in self._sizes:
            self._sizes[path] = min(size, self._sizes[path])

    def create(self, path: str) -> DiskFile:
        if self.full:
            raise DiskFull(f"{path}: no space left on device (a test filled the disk)")
        file = self._disk.create(path)
        self._sizes[path] = 0
        return _FullFile(self, path, file)

    def open(self, path: str) -> DiskFile:
        return _FullFile(self, path, self._disk.open(path))

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def map(self, path: str) -> memoryview:
        return self._disk.map(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def make_dir(self, path: str) -> None:
        if self.full and not self._disk.exists(path):
            raise DiskFull(f"{path}: no space left on device (a test filled the disk)")
        self._disk.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self._disk.remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._sizes[target] = self._sizes.pop(source, 0)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)
        self._sizes.pop(path, None)

    def sync_dir(self, path: str) -> None:
        self._disk.sync_dir(path)

    def lock(self, path: str) -> DiskLock:
        return self._disk.lock(path)

    def location(self, path: str) -> str | None:
        return self._disk.location(path)

    def room(self) -> Room | None:
        if self.size_bytes is not None:
            return Room(max(0, self.size_bytes - self.used_bytes), self.size_bytes)
        return Room(0, 1 << 30) if self.full else None

    def page_cache_id(self) -> str | None:
        return self._disk.page_cache_id()


class _FullFile:
    """One open file of it."""

    def __init__(self, disk: FullDisk, path: str, file: DiskFile) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._grow(offset + sum(map(len, buffers)))
        self._file.write_at(offset, buffers)

    def write_past_cache(self, offset: int, data: Buffer) -> None:
        self._grow(offset + len(data))
        self._file.write_past_cache(offset, data)

    def _grow(self, size: int) -> None:
        if size > self._file.size():
            self._disk.grow(self._path, size)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def size(self) -> int:
        return self._file.size()

    def allocate(self, size: int) -> None:
        self._grow(size)
        self._file.allocate(size)

    def clear(self) -> None:
        self._file.clear()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._disk.cut(self._path, size)

    def sync_data(self) -> None:
        self._file.sync_data()

    def close(self) -> None:
        self._file.close()
