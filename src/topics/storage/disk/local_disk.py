"""The disk of the machine: the only file of the storage layer that calls the operating system.

Keeps: no OSError passes this border, it becomes `DiskFailed` (or `DiskFull`, `TooManyFiles`,
`FileMissing`) with reason and path, below the root: a message may go to somebody who should not
know where on this machine that is, so the root is a note beside it. Every path stays below the
root; what `make_dir` returned from is durable.
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from topics.errors import DirectoryLocked, DiskFailed, DiskFull, FileMissing, TooManyFiles
from topics.storage.disk.disk import Buffer, Room

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_BUFFERS_PER_CALL_MAX: Final = 1024  # IOV_MAX of Linux
_CLOSED: Final = (1 << 31) - 1  # a descriptor that no process has: calls on it fail with EBADF
_ZEROS: Final = bytes(1 << 20)
_BLOCK_BYTES: Final = 4096  # no usual device wants places in file and memory rounded to more
_CACHED_BYTES: Final = max(_BLOCK_BYTES, mmap.PAGESIZE)  # a page is written one way, never both
_DIRECT_BYTES_MIN: Final = 256 * 1024  # below, a copy is cheaper than to wait for the device
_CANNOT_PREALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_CANNOT_GO_DIRECT: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_LOCKS: Final = Path("/proc/locks")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

# Flags of a file that Linux keeps for whoever lays it out: chattr(1) has their meanings.
_FS_IOC_GETFLAGS: Final = 0x8008_6601
_FS_IOC_SETFLAGS: Final = 0x4008_6602
_FS_TOPDIR_FL: Final = 0x2_0000

# fallocate(2) with a mode, which Python reaches only by ctypes; absent outside of Linux with glibc.
_FALLOC_FL_ZERO_RANGE: Final = 0x10
_fallocate: Final = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)

# statx(2), which Python reaches only by ctypes: a mount id that is never used twice since boot.
_AT_FDCWD: Final = -100
_STATX_MNT_ID_UNIQUE: Final = 0x4000
_STATX_BYTES: Final = 256
_STX_MASK: Final = slice(0, 4)
_STX_MNT_ID: Final = slice(144, 152)


T = TypeVar("T")

RESERVED_DESCRIPTORS: Final = 8
"""So many are held back for the disk: what was begun can be finished when there are no others."""


class _Reserve:
    """Descriptors that nobody else gets: at the end of all others they are given to the disk.

    Each that is given away is taken back from the next call that finds one free.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[int] = []
        self._lock = threading.Lock()

    def fill(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < self._most:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def call(self, work: Callable[[], T]) -> T:
        """Return what a call returns that needs a descriptor, if need be one of these."""
        while True:
            try:
                done = work()
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self._give():
                    raise
            else:
                if len(self._held) < self._most:
                    self.fill()
                return done

    def _give(self) -> bool:
        with self._lock:
            if self._held:
                os.close(self._held.pop())
                return True
        return False


_RESERVE: Final = _Reserve(RESERVED_DESCRIPTORS)


@lru_cache(maxsize=4096)
def parse_path(path: str) -> str:
    """Return the path in its one spelling, or refuse it; the root is the empty string."""
    if path in {"", "."}:
        return ""
    if "\0" in path or not all(name and name not in {".", ".."} for name in path.split("/")):
        raise DiskFailed(f"{path!r} is not the relative path of a file below the root")
    return path


class LocalFile:
    """Owns one file descriptor."""

    def __init__(self, fd: int, place: "_Place") -> None:
        self._fd = fd
        self._place = place

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> None:
        try:
            if len(buffers) == 1:
                written_bytes = os.pwrite(self._fd, buffers[0], offset)
                whole_bytes = len(buffers[0])
            else:
                written_bytes = os.pwritev(self._fd, buffers[:_BUFFERS_PER_CALL_MAX], offset)
                whole_bytes = sum(map(len, buffers))
            if written_bytes < whole_bytes:
                self._write_rest(offset, buffers, written_bytes)
        except OSError as error:
            raise self._place.translate(error) from error

    def _write_rest(self, offset: int, buffers: Sequence[Buffer], done_bytes: int) -> None:
        """Go on after a short write: a signal, a full page, more than one call can take."""
        rest = list(_without_first(done_bytes, buffers))
        while rest:
            offset_now = offset + done_bytes
            step_bytes = os.pwritev(self._fd, rest[:_BUFFERS_PER_CALL_MAX], offset_now)
            if step_bytes == 0:
                raise OSError(errno.EIO, "the file takes no more bytes and gives no reason")
            done_bytes += step_bytes
            rest = list(_without_first(step_bytes, rest))

    def write_past_cache(self, offset: int, data: Buffer) -> None:
        begin = -offset % _CACHED_BYTES
        end = len(data) - (offset + len(data)) % _CACHED_BYTES
        if end - begin < _DIRECT_BYTES_MIN or not _is_block(data, begin):
            self.write_at(offset, [data])
            return
        view = memoryview(data)
        if begin:
            self.write_at(offset, [view[:begin]])
        with _os_errors_of(self._place):
            done = begin + _write_blocks(self._fd, offset + begin, view[begin:end])
        if done < len(data):
            self.write_at(offset + done, [view[done:]])

    def read_at(self, offset: int, size: int) -> bytes:
        try:
            return _read_fully(self._fd, offset, size)
        except OSError as error:
            raise self._place.translate(error) from error

    def size(self) -> int:
        with _os_errors_of(self._place):
            return os.fstat(self._fd).st_size

    def allocate(self, size: int) -> None:
        if size == 0:
            return
        with _os_errors_of(self._place):
            try:
                os.posix_fallocate(self._fd, 0, size)
            except OSError as error:
                if error.errno not in _CANNOT_PREALLOCATE:
                    raise
                self._write_zeros(os.fstat(self._fd).st_size, size)

    def clear(self) -> None:
        with _os_errors_of(self._place):
            size = os.fstat(self._fd).st_size
            if not _zero_range(self._fd, size):
                self._write_zeros(0, size)
            # A file with another time is synced as a whole, on older kernels and without a journal
            # too: what was noted of it is not among its data.
            os.utime(self._fd)
            os.fsync(self._fd)

    def _write_zeros(self, offset: int, end: int) -> None:
        while offset < end:
            offset += os.pwrite(self._fd, _ZEROS[: end - offset], offset)

    def truncate(self, size: int) -> None:
        with _os_errors_of(self._place):
            os.ftruncate(self._fd, size)

    def sync_data(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._place.translate(error) from error

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            with _os_errors_of(self._place):
                os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(DiskFailed):
            self.close()


class LocalLock:
    """Holds a flock as long as its descriptor is open."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def close(self) -> None:
        self._file.close()


class LocalDisk:
    """The files below one directory, which is created where it is missing.

    A file that replaces another (`create`, `rename`) is a new file: whoever has the old one open or
    mapped goes on reading the old bytes.
    """

    def __init__(self, root: str, *, name: str = "") -> None:
        """Take a directory; errors begin with the `name` of a disk that is not the usual one."""
        self._root = str(Path(root).absolute())
        self._name = name
        self._durable_directories: set[str] = set()
        _RESERVE.fill()
        with _os_errors_of(_Place("", self._root, self._root)):
            self._make_root()

    def create(self, path: str) -> LocalFile:
        full, place = self._below_root(path), self._place(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        with _os_errors_of(place):
            with contextlib.suppress(FileExistsError):
                return LocalFile(_open(full, flags), place)
            os.unlink(full)
            return LocalFile(_open(full, flags), place)

    def open(self, path: str) -> LocalFile:
        full, place = self._below_root(path), self._place(path)
        with _os_errors_of(place):
            return LocalFile(_open(full, os.O_RDWR), place)

    def read(self, path: str) -> bytes:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)), _descriptor(full, os.O_RDONLY) as fd:
            return _read_fully(fd, 0, os.fstat(fd).st_size)

    def map(self, path: str) -> memoryview:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)), _descriptor(full, os.O_RDONLY) as fd:
            if os.fstat(fd).st_size == 0:
                return memoryview(b"")
            if sys.version_info >= (3, 13):  # before, each map costs a descriptor until it is gone
                return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ, trackfd=False))
            return memoryview(_RESERVE.call(lambda: mmap.mmap(fd, 0, access=mmap.ACCESS_READ)))

    def exists(self, path: str) -> bool:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)):
            try:
                os.stat(full)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def size(self, path: str) -> int:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)):
            return os.stat(full).st_size

    def list(self, path: str) -> list[str]:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)):
            try:
                return sorted(_RESERVE.call(lambda: os.listdir(full)))
            except FileNotFoundError:
                return []

    def make_dir(self, path: str) -> None:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)):
            self._make_durable_directory(full)

    def remove_dir(self, path: str) -> None:
        full = self._below_root(path)
        self._durable_directories.discard(full)
        with _os_errors_of(self._place(path)), contextlib.suppress(FileNotFoundError):
            os.rmdir(full)

    def rename(self, source: str, target: str) -> None:
        full = self._below_root(source)
        with _os_errors_of(self._place(source)):
            os.replace(full, self._below_root(target))

    def unlink(self, path: str) -> None:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)):
            os.unlink(full)

    def sync_dir(self, path: str) -> None:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)):
            _sync_directory(full)

    def lock(self, path: str) -> LocalLock:
        full = self._below_root(path)
        with _os_errors_of(self._place(path)):
            fd = _open(full, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if isinstance(error, BlockingIOError):
                    raise DirectoryLocked(
                        f"{_holder_of(full)} has {os.path.dirname(full)} open"
                    ) from error
                raise
        return LocalLock(LocalFile(fd, self._place(path)))

    def location(self, path: str) -> str | None:
        return Path(self._below_root(path)).as_uri()

    def room(self) -> Room | None:
        try:
            found = os.statvfs(self._root)
        except OSError:
            return None
        return Room(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def page_cache_id(self) -> str | None:
        mount_id = _unique_mount_id(self._root)
        try:
            boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
            device = os.stat(self._root).st_dev
        except OSError:
            return None
        return f"{boot_id}/{mount_id}/{device}" if boot_id and mount_id is not None else None

    def _place(self, path: str) -> "_Place":
        return _Place(self._name, self._root, path)

    def _below_root(self, path: str) -> str:
        below = parse_path(path)
        return f"{self._root}/{below}" if below else self._root

    def _make_root(self) -> None:
        root = Path(self._root)
        missing = [root] if not root.exists() else []
        while missing and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for directory in reversed(missing):
            directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
            _sync_directory(str(directory.parent))
        if not missing:
            with contextlib.suppress(PermissionError):  # made by somebody else, for us
                _sync_directory(str(root.parent))

    def _make_durable_directory(self, directory: str) -> None:
        known = directory in self._durable_directories and Path(directory).is_dir()
        if known or directory == self._root:
            return
        parent = os.path.dirname(directory)
        self._make_durable_directory(parent)
        Path(directory).mkdir(_DIRECTORY_MODE, exist_ok=True)
        if parent == self._root:
            _spread(directory)
        # One that was there already may be what a killed process made and had no time to sync.
        _sync_directory(parent)
        self._durable_directories.add(directory)


def _holder_of(path: str) -> str:
    """Say who holds the lock of a file, as far as the system tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        inode = os.stat(path).st_ino
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            # 1: FLOCK  ADVISORY  WRITE 708 103:02:1310723 0 EOF
            fields = line.split()
            if fields[1] == "FLOCK" and int(fields[5].rpartition(":")[2]) == inode:
                holder = int(fields[4])
                if holder == os.getpid():
                    return "this process already"
                return f"another process (pid {holder})" if holder > 0 else "another process"
    return "another process"


def _spread(directory: str) -> None:
    """Ask for room on the device for each directory in here, away from that of the others: a hint.

    They have nothing to do with each other. Measured: ext4 without a journal tries each inode that
    was deleted nearby within five minutes; behind a topic that was dropped that is half a
    millisecond a file.
    """
    with contextlib.suppress(OSError), _descriptor(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        flags = array.array("l", [0])
        fcntl.ioctl(fd, _FS_IOC_GETFLAGS, flags)
        flags[0] |= _FS_TOPDIR_FL
        fcntl.ioctl(fd, _FS_IOC_SETFLAGS, flags)


def _open(path: str, flags: int) -> int:
    return _RESERVE.call(lambda: os.open(path, flags | os.O_CLOEXEC, _FILE_MODE))


def _sync_directory(directory: str) -> None:
    with _descriptor(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


@contextlib.contextmanager
def _descriptor(path: str, flags: int) -> Iterator[int]:
    fd = _open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


class _Place(NamedTuple):
    """What an error is about."""

    disk: str
    root: str
    path: str

    def translate(self, error: OSError) -> DiskFailed:
        message = f"{self.disk}{self.path or '.'}: {error.strerror or error}"
        failed = DiskFailed(message)  # if it is nothing that tells itself apart
        if error.errno in _NO_ROOM:
            failed = DiskFull(message)
        elif error.errno in _NO_DESCRIPTOR:
            failed = TooManyFiles(f"{message}: raise the limit of open files (ulimit -n)")
        elif error.errno == errno.ENOENT:
            failed = FileMissing(message)
        failed.add_note(f"below {self.root}")
        return failed


class _os_errors_of:  # noqa: N801 - a `with` word; as a generator it takes 1 µs more
    """Translate what the system reports about a path."""

    __slots__ = ("_place",)

    def __init__(self, place: _Place) -> None:
        self._place = place

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            raise self._place.translate(error) from error


def _read_fully(fd: int, offset: int, size: int) -> bytes:
    """Read on after a short read: one call takes 2 GiB at most."""
    found = os.pread(fd, size, offset)
    if len(found) == size or not found:
        return found
    parts = [found]
    done_bytes = len(found)
    while done_bytes < size and (found := os.pread(fd, size - done_bytes, offset + done_bytes)):
        parts.append(found)
        done_bytes += len(found)
    return b"".join(parts)


def _is_block(data: Buffer, begin: int) -> bool:
    """Tell whether a device can take the bytes from `begin` on from where they are in memory."""
    try:
        return not (ctypes.addressof(ctypes.c_char.from_buffer(data)) + begin) % _BLOCK_BYTES
    except TypeError:  # read-only memory does not say where it is
        return False


def _write_blocks(fd: int, offset: int, blocks: memoryview) -> int:
    """Write past the page cache; return how much was, which is nothing where that cannot be done.

    With a descriptor of its own: those who read by the other one need no alignment.
    """
    try:
        direct = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:  # whatever it is, it has cost nothing: the common way needs no descriptor
        return 0
    try:
        return os.pwrite(direct, blocks, offset)
    except OSError as error:
        if error.errno not in _CANNOT_GO_DIRECT:
            raise
        return 0
    finally:
        os.close(direct)


def _zero_range(fd: int, size: int) -> bool:
    """Have the file system note that the first bytes are zeros; tell whether it could."""
    if _fallocate is None:
        return False
    if _fallocate(fd, _FALLOC_FL_ZERO_RANGE, ctypes.c_int64(0), ctypes.c_int64(size)) == 0:
        return True
    code = ctypes.get_errno()
    if code not in _CANNOT_PREALLOCATE:
        raise OSError(code, os.strerror(code))
    return False


def _without_first(skip_bytes: int, buffers: Sequence[Buffer]) -> Iterator[memoryview]:
    """Yield what is left of the buffers, without empty ones."""
    for buffer in buffers:
        if skip_bytes < len(buffer):
            yield memoryview(buffer)[skip_bytes:]
        skip_bytes = max(0, skip_bytes - len(buffer))


def _unique_mount_id(path: str) -> int | None:
    """Return None where the kernel (before 6.8) or the C library (before 2.28) has no such id."""
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    name = os.fsencode(path)
    if statx(_AT_FDCWD, ctypes.c_char_p(name), 0, ctypes.c_uint(_STATX_MNT_ID_UNIQUE), found) != 0:
        return None
    mask = int.from_bytes(found.raw[_STX_MASK], sys.byteorder)
    if not mask & _STATX_MNT_ID_UNIQUE:
        return None
    return int.from_bytes(found.raw[_STX_MNT_ID], sys.byteorder)
