"""The door to the disk: every byte we store passes through these protocols.

Paths are relative to the root of the disk, with `/` between names. What a call promises is what a
power cut respects:

- `write_at`, `write_past_cache`, `allocate`, `truncate` change what readers see at once and survive
  a power cut only after `sync_data`;
- `create`, `rename`, `unlink` change the directory at once and survive only after `sync_dir` of
  the directory.

Failures are `topics.errors.DiskFailed` (`DiskFull`, `TooManyFiles`, `FileMissing`), never OSError.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class Room(NamedTuple):
    """How much there is on a device for us, and how much of it is free."""

    free_bytes: int
    total_bytes: int


class DiskFile(Protocol):
    """One open file. Closed by `close`, or when the last reference to it is gone."""

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other, starting at `offset`."""

    def write_past_cache(self, offset: int, data: Buffer) -> None:
        """Write as `write_at` does; where that is possible, without keeping it in memory.

        For many bytes that nobody is about to read.
        """

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long, with zeros that have room on the device."""

    def clear(self) -> None:
        """Make every byte zero, durably; size and room stay.

        Where the file system can note that, nothing is written, but the next sync over each part
        takes longer.
        """

    def truncate(self, size: int) -> None: ...

    def sync_data(self) -> None: ...

    def close(self) -> None: ...


class DiskLock(Protocol):
    """An exclusive lock, held until `close` or the end of the process."""

    def close(self) -> None: ...


class ReadableDisk(Protocol):
    """What it takes to read; a copy in an object store can do that, too."""

    def read(self, path: str) -> bytes: ...

    def map(self, path: str) -> memoryview: ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]: ...

    def location(self, path: str) -> str | None: ...


class Disk(Protocol):
    """The files below one root directory."""

    def create(self, path: str) -> DiskFile:
        """Open a new empty file for reading and writing, replacing what had the name."""

    def open(self, path: str) -> DiskFile:
        """Open an existing file for reading and writing."""

    def read(self, path: str) -> bytes: ...

    def map(self, path: str) -> memoryview:
        """Return a read-only view of a whole file that follows later writes inside its size."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] where there is none."""

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents, durably; fine where it exists."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory; fine where there is none."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> DiskLock:
        """Take the lock or raise `topics.errors.DirectoryLocked`."""

    def location(self, path: str) -> str | None:
        """Return the URI by which another process finds a file, None where none can."""

    def room(self) -> Room | None:
        """Return how much room there is; None where nobody can tell."""

    def page_cache_id(self) -> str | None:
        """Name the cache of unsynced bytes: equal at two times only if none were lost between.

        None where this cannot be told.
        """
