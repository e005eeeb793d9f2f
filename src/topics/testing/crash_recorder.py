"""Keep the disk as it is before every call that changes it: all cut points of a run in one run.

Cutting the power at call n of a run and looking at the disk as it was before call n are the same
thing, because a run repeats itself exactly (a test proves it). Keeping the disks makes a sweep cost
one run instead of one run a cut point.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from topics.storage.disk.disk import Buffer
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_file import HostileFile, HostileLock


class Disks(NamedTuple):
    """The two disks of one log."""

    hot: HostileDisk
    cold: HostileDisk

    def copy(self) -> "Disks":
        return Disks(self.hot.copy(), self.cold.copy())

    def power_cut(self, seed: int) -> "Disks":
        return Disks(self.hot.power_cut(seed), self.cold.power_cut(seed))

    def kill(self) -> "Disks":
        return Disks(self.hot.kill(), self.cold.kill())


Hook = Callable[[], None]


class Hooks(NamedTuple):
    """What to call before every call that changes the disk, and when a sync has done its work."""

    before_call: Hook
    after_sync: Hook


class RecordingFile:
    """A file that tells before it changes."""

    def __init__(self, file: HostileFile, hooks: Hooks) -> None:
        self._file = file
        self._before_call, self._after_sync = hooks
        self.read_at = file.read_at
        self.size = file.size
        self.close = file.close

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._before_call()
        self._file.write_at(offset, buffers)

    def write_past_cache(self, offset: int, data: Buffer) -> None:
        self._before_call()
        self._file.write_past_cache(offset, data)

    def clear(self) -> None:
        """Write and sync, so that a cut between them is recorded, too."""
        self.write_at(0, [bytes(self.size())])
        self.sync_data()

    def allocate(self, size: int) -> None:
        self._before_call()
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._before_call()
        self._file.truncate(size)

    def sync_data(self) -> None:
        self._before_call()
        self._file.sync_data()
        self._after_sync()


class RecordingDisk:
    """A hostile disk that tells before it changes."""

    def __init__(self, disk: HostileDisk, hooks: Hooks) -> None:
        self._disk = disk
        self._hooks = hooks
        self._before_call = hooks.before_call
        self.read = disk.read
        self.map = disk.map
        self.exists = disk.exists
        self.size = disk.size
        self.list = disk.list
        self.location = disk.location
        self.room = disk.room
        self.page_cache_id = disk.page_cache_id

    def create(self, path: str) -> RecordingFile:
        self._before_call()
        return RecordingFile(self._disk.create(path), self._hooks)

    def open(self, path: str) -> RecordingFile:
        return RecordingFile(self._disk.open(path), self._hooks)

    def make_dir(self, path: str) -> None:
        self._before_call()
        self._disk.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self._before_call()
        self._disk.remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._before_call()
        self._disk.rename(source, target)

    def unlink(self, path: str) -> None:
        self._before_call()
        self._disk.unlink(path)

    def sync_dir(self, path: str) -> None:
        self._before_call()
        self._disk.sync_dir(path)

    def lock(self, path: str) -> HostileLock:
        return self._disk.lock(path)
