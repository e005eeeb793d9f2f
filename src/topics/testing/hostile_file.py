"""An open file of a hostile disk."""

from collections.abc import Sequence

from topics.errors import DiskFailed
from topics.storage.disk.disk import Buffer
from topics.testing.hostile_calls import HostileCalls
from topics.testing.hostile_inode import HostileInode


class HostileFile:
    """A handle that dies with its process, or when closed."""

    def __init__(self, calls: HostileCalls, inode: HostileInode, path: str) -> None:
        self._calls = calls
        self._open_inode: HostileInode | None = inode
        self._content = inode.thaw()
        self._path = path

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        new = b"".join(buffers)
        calls = self._calls
        with calls.lock:
            fault = calls.begin("write_at", self._path)
            inode = self._open_inode or self._refuse()
            if fault is not None:
                inode.write(offset, new[: fault.written_bytes or 0])
                raise fault.error_for(self._path)
            inode.write(offset, new)

    def write_past_cache(self, offset: int, data: Buffer) -> None:
        """Write: that the device has seen it all is no promise either."""
        self.write_at(offset, [data])

    def read_at(self, offset: int, size: int) -> bytes:
        self._calls.look("read_at", self._path)
        if self._open_inode is None:
            self._refuse()
        return self._content.read(offset, size)

    def size(self) -> int:
        self._calls.look("size", self._path)
        if self._open_inode is None:
            self._refuse()
        return self._content.size

    def allocate(self, size: int) -> None:
        with self._calls.lock:
            self._calls.begin_or_fail("allocate", self._path)
            inode = self._open_inode or self._refuse()
            if size > inode.size():
                inode.resize(size)

    def clear(self) -> None:
        """Write and sync: a cut may come between."""
        self.write_at(0, [bytes(self.size())])
        self.sync_data()

    def truncate(self, size: int) -> None:
        with self._calls.lock:
            self._calls.begin_or_fail("truncate", self._path)
            inode = self._open_inode or self._refuse()
            inode.resize(size)

    def sync_data(self) -> None:
        calls = self._calls
        with calls.lock:
            fault = calls.begin("sync_data", self._path)
            inode = self._open_inode or self._refuse()
            if fault is not None and fault.written_bytes is None:
                inode.fail_sync()
                raise fault.error_for(self._path)
            inode.sync()

    def close(self) -> None:
        """Release the handle; closing syncs nothing, and is fine in a process that is gone."""
        self._open_inode = None

    def _refuse(self) -> HostileInode:
        raise DiskFailed(f"{self._path}: the file is closed")


class HostileLock:
    """A lock that is free again when closed, or when its process is gone."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def close(self) -> None:
        if self._path:
            self._held.discard(self._path)
            self._path = ""
