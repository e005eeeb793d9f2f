"""A disk in plain memory: where ephemeral topics keep their segments.

Nothing here survives the process, so syncs do nothing. One thread may write to a file while others
read it.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from topics.errors import DiskFailed, FileMissing
from topics.storage.disk.disk import Buffer, Room
from topics.storage.disk.local_disk import parse_path

_ROOM_BYTES_MIN: Final = 4096

Node = TypeVar("Node")


class RamContent:
    """The bytes of one file, which grows under the views that were handed out.

    Python cannot resize bytes that somebody looks at. So a file outgrows its room and moves to a
    larger one; rooms with views on them get every later write too, as the pages of a real map do.
    """

    __slots__ = ("_bytes", "_outgrown", "_room", "size")

    def __init__(self, content: Buffer = b"") -> None:
        self._bytes = bytearray(content)
        self._room = memoryview(self._bytes)
        self._outgrown: list[bytearray] = []
        self.size = len(content)

    def write(self, offset: int, content: bytes) -> None:
        end = offset + len(content)
        if end > len(self._room):
            self._move_to_larger_room(end)
        self._room[offset:end] = content
        for outgrown in self._outgrown:
            outgrown[offset:end] = content[: max(0, len(outgrown) - offset)]
        self.size = max(self.size, end)

    def read(self, offset: int, size: int) -> bytes:
        # The size first: a writer in another thread moves to the larger room before it says so.
        end = min(offset + size, self.size)
        return bytes(self._room[offset:end])

    def view(self) -> memoryview:
        size = self.size
        return self._room[:size].toreadonly()

    def resize(self, size: int) -> None:
        if size > len(self._room):
            self._move_to_larger_room(size)
        if size < self.size:
            self.write(size, bytes(self.size - size))
        self.size = size

    def _move_to_larger_room(self, size: int) -> None:
        larger = bytearray(max(size, 2 * len(self._bytes), _ROOM_BYTES_MIN))
        room = memoryview(larger)
        room[: self.size] = self._room[: self.size]
        outgrown = [*self._outgrown, self._bytes]
        self._bytes, self._room = larger, room
        self._outgrown = [old for old in outgrown if _is_viewed(old)]


def _is_viewed(content: bytearray) -> bool:
    """Say whether there are views on it; where there are none, free it."""
    try:
        content.clear()
    except BufferError:
        return True
    return False


class RamFile:
    """One open file."""

    def __init__(self, content: RamContent, path: str) -> None:
        self._open_content: RamContent | None = content
        self._path = path

    @property
    def _content(self) -> RamContent:
        if self._open_content is None:
            raise DiskFailed(f"{self._path}: the file is closed")
        return self._open_content

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._content.write(offset, b"".join(buffers))

    def write_past_cache(self, offset: int, data: Buffer) -> None:
        self._content.write(offset, bytes(data))

    def read_at(self, offset: int, size: int) -> bytes:
        return self._content.read(offset, size)

    def size(self) -> int:
        return self._content.size

    def allocate(self, size: int) -> None:
        if size > self._content.size:
            self._content.resize(size)

    def clear(self) -> None:
        self._content.write(0, bytes(self._content.size))

    def truncate(self, size: int) -> None:
        self._content.resize(size)

    def sync_data(self) -> None:
        """Do nothing: memory has no later."""
        assert self._content is not None

    def close(self) -> None:
        self._open_content = None


class RamLock:
    """Nobody else can reach this memory: every lock is free."""

    def close(self) -> None: ...


class NameTree(Generic[Node]):
    """Directories of names; None in place of a node is a directory. Safe for many threads."""

    def __init__(self) -> None:
        self._directories: dict[str, dict[str, Node | None]] = {"": {}}
        self._lock = threading.Lock()

    def get(self, path: str) -> Node:
        directory, name = self._place(path)
        return _file_in(directory, name, path)

    def put(self, path: str, node: Node) -> None:
        """Give a node a name; what had the name loses it."""
        directory, name = self._place(path)
        if directory.get(name, node) is None:
            raise DiskFailed(f"{path}: Is a directory")
        directory[name] = node

    def move(self, source: str, target: str) -> None:
        with self._lock:
            directory, name = self._place(source)
            self._place(target)  # both directories are looked up before either name, as Linux does
            self.put(target, _file_in(directory, name, source))
            if parse_path(source) != parse_path(target):
                del directory[name]

    def remove(self, path: str) -> Node:
        with self._lock:
            directory, name = self._place(path)
            node = _file_in(directory, name, path)
            del directory[name]
            return node

    def exists(self, path: str) -> bool:
        path = parse_path(path)
        above, _, name = path.rpartition("/")
        return path in self._directories or name in self._directories.get(above, ())

    def list(self, path: str) -> list[str]:
        with contextlib.suppress(FileMissing):
            return sorted(self.directory(path))
        return []

    def directory(self, path: str) -> dict[str, Node | None]:
        """Return what is in a directory, or say why there is none."""
        path = parse_path(path)
        directory = self._directories.get(path)
        if directory is not None:
            return directory
        above, _, name = path.rpartition("/")
        if name in self.directory(above):
            raise DiskFailed(f"{path}: Not a directory")
        raise FileMissing(f"{path}: No such file or directory")

    def make_dir(self, path: str) -> None:
        path = parse_path(path)
        with self._lock:
            above = ""
            for name in path.split("/") if path else ():
                if self._directories[above].setdefault(name, None) is not None:
                    raise DiskFailed(f"{path}: Not a directory")
                above = f"{above}/{name}" if above else name
                self._directories.setdefault(above, {})

    def remove_dir(self, path: str) -> bool:
        """Return whether there was one."""
        with self._lock:
            if self.list(path):
                raise DiskFailed(f"{path}: Directory not empty")
            if self._directories.pop(parse_path(path), None) is None:
                return False
            directory, name = self._place(path)
            del directory[name]
            return True

    def _place(self, path: str) -> tuple[dict[str, Node | None], str]:
        above, _, name = parse_path(path).rpartition("/")
        return self.directory(above), name


def _file_in(directory: dict[str, Node | None], name: str, path: str) -> Node:
    try:
        node = directory[name]
    except KeyError:
        raise FileMissing(f"{path}: No such file or directory") from None
    if node is None:
        raise DiskFailed(f"{path}: Is a directory")
    return node


class RamDisk:
    """The files of one process, gone with it."""

    def __init__(self) -> None:
        self._names: NameTree[RamContent] = NameTree()

    def create(self, path: str) -> RamFile:
        content = RamContent()
        self._names.put(path, content)
        return RamFile(content, path)

    def open(self, path: str) -> RamFile:
        return RamFile(self._names.get(path), path)

    def read(self, path: str) -> bytes:
        content = self._names.get(path)
        return content.read(0, content.size)

    def map(self, path: str) -> memoryview:
        return self._names.get(path).view()

    def exists(self, path: str) -> bool:
        return self._names.exists(path)

    def size(self, path: str) -> int:
        return self._names.get(path).size

    def list(self, path: str) -> list[str]:
        return self._names.list(path)

    def make_dir(self, path: str) -> None:
        self._names.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self._names.remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._names.move(source, target)

    def unlink(self, path: str) -> None:
        self._names.remove(path)

    def sync_dir(self, path: str) -> None:
        self._names.directory(path)

    def lock(self, path: str) -> RamLock:  # noqa: ARG002 - the protocol names a path
        return RamLock()

    def location(self, path: str) -> str | None:  # noqa: ARG002 - nobody else sees this memory
        return None

    def room(self) -> Room | None:
        return None

    def page_cache_id(self) -> str | None:
        """Return None: memory is gone with the process."""
        return None
