"""A disk that can be filled up and emptied again while it is in use.

Wraps a real one. While `full` is true, whatever needs new room fails as on a full device; reading,
removing, syncing, and writing where there is room already go on.
"""

from collections.abc import Sequence

from topics.errors import DiskFull
from topics.storage.disk.disk import Buffer, Disk, DiskFile, DiskLock


class FullDisk:
    """The disk below it, or no room."""

    def __init__(self, disk: Disk) -> None:
        self.full = False
        self._disk = disk

    def check_room(self, path: str) -> None:
        if self.full:
            raise DiskFull(f"{path}: no space left on device (a test filled the disk)")

    def create(self, path: str) -> DiskFile:
        self.check_room(path)
        return _FullFile(self, path, self._disk.create(path))

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
        if not self._disk.exists(path):
            self.check_room(path)
        self._disk.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self._disk.remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)

    def sync_dir(self, path: str) -> None:
        self._disk.sync_dir(path)

    def lock(self, path: str) -> DiskLock:
        return self._disk.lock(path)

    def location(self, path: str) -> str | None:
        return self._disk.location(path)

    def page_cache_id(self) -> str | None:
        return self._disk.page_cache_id()


class _FullFile:
    """One open file of it."""

    def __init__(self, disk: FullDisk, path: str, file: DiskFile) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._check_growth(offset + sum(map(len, buffers)))
        self._file.write_at(offset, buffers)

    def write_past_cache(self, offset: int, data: Buffer) -> None:
        self._check_growth(offset + len(data))
        self._file.write_past_cache(offset, data)

    def _check_growth(self, size: int) -> None:
        if self._disk.full and size > self._file.size():
            self._disk.check_room(self._path)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def size(self) -> int:
        return self._file.size()

    def allocate(self, size: int) -> None:
        if size > self._file.size():
            self._disk.check_room(self._path)
        self._file.allocate(size)

    def clear(self) -> None:
        self._file.clear()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync_data(self) -> None:
        self._file.sync_data()

    def close(self) -> None:
        self._file.close()
