"""LocalDisk, where the operating system is seen: modes, short writes, errno, synced directories."""

import array
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from topics.errors import DirectoryLocked, DiskFailed, DiskFull, TooManyFiles
from topics.storage.disk import local_disk
from topics.storage.disk.local_disk import RESERVED_DESCRIPTORS, LocalDisk


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(str(tmp_path / "root"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def synced_directories(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the directories that get an fsync."""
    names: list[str] = []
    real_fsync = os.fsync

    def fsync(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real_fsync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def fail_with(code: int) -> object:
    def call(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def test_the_root_is_made_with_its_parents_and_each_is_synced(
    tmp_path: Path, synced_directories: list[str]
) -> None:
    disk = LocalDisk(str(tmp_path / "one" / "two"))
    assert disk.list("") == []
    assert synced_directories == [tmp_path.name, "one"]


def test_a_root_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskFailed, match="file/root"):
        LocalDisk(str(tmp_path / "file" / "root"))


def test_nobody_else_can_read_what_we_make(disk: LocalDisk, root: Path) -> None:
    disk.make_dir("d")
    disk.create("d/a")
    disk.lock("LOCK")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "d" / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((root / "LOCK").stat().st_mode) == 0o600


def test_make_dir_syncs_the_parent_of_each_new_directory(
    disk: LocalDisk, synced_directories: list[str]
) -> None:
    disk.make_dir("one")
    disk.make_dir("one/two/three")
    assert synced_directories == ["root", "one", "two"]


def test_make_dir_makes_a_directory_again_that_somebody_removed(
    disk: LocalDisk, tmp_path: Path
) -> None:
    disk.make_dir("one/two")
    shutil.rmtree(next(tmp_path.rglob("one")))
    disk.make_dir("one/two")
    disk.create("one/two/file").close()


def test_make_dir_syncs_once_what_another_process_may_have_left_unsynced(
    disk: LocalDisk, root: Path, synced_directories: list[str]
) -> None:
    (root / "one").mkdir()
    disk.make_dir("one")
    disk.make_dir("one")
    assert synced_directories == ["root"]


def test_a_directory_made_again_is_synced_again(
    disk: LocalDisk, synced_directories: list[str]
) -> None:
    disk.make_dir("one")
    disk.remove_dir("one")
    disk.make_dir("one")
    assert synced_directories == ["root", "root"]


@pytest.mark.parametrize("step_bytes", [1, 3, 7])
def test_a_short_write_is_continued(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, step_bytes: int
) -> None:
    real_pwrite = os.pwrite

    def short_pwritev(fd: int, buffers: Sequence[bytes], offset: int) -> int:
        return real_pwrite(fd, b"".join(buffers)[:step_bytes], offset)

    def short_pwrite(fd: int, buffer: bytes, offset: int) -> int:
        return real_pwrite(fd, bytes(buffer)[:step_bytes], offset)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pwrite", short_pwrite)
    file = disk.create("a")
    file.write_at(1, [b"abc", b"", b"defgh", memoryview(b"ij")])
    file.write_at(11, [b"one buffer"])
    assert disk.read("a") == b"\0abcdefghijone buffer"


def test_a_write_that_makes_no_progress_fails(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(DiskFailed, match="no more bytes"):
        disk.create("a").write_at(0, [b"a", b"b"])


def test_a_short_read_is_continued(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create("a")
    file.write_at(0, [b"0123456789"])
    real_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real_pread(fd, min(size, 3), at))
    assert disk.read("a") == b"0123456789"
    assert file.read_at(1, 5) == b"12345"
    assert file.read_at(8, 5) == b"89"


PAGE = 4096


def open_descriptors() -> set[str]:
    return {place.name for place in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def direct_writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Collect (offset, size) of what is handed to the device itself."""
    seen: list[tuple[int, int]] = []
    real_pwrite = os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            seen.append((offset, len(data)))
        return real_pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return seen


def pages(content: bytes, *, lead: int = 0) -> memoryview:
    """Return writable memory with this in it, `lead` bytes behind the begin of a page."""
    view = memoryview(mmap.mmap(-1, lead + len(content)))[lead:]
    view[:] = content
    return view


def test_whole_blocks_go_past_the_cache_and_what_is_around_them_does_not(
    disk: LocalDisk, direct_writes: list[tuple[int, int]]
) -> None:
    content = os.urandom(PAGE * 100 + 300)
    file = disk.create("a")
    file.write_past_cache(PAGE - 100, pages(content, lead=PAGE - 100))
    assert direct_writes == [(PAGE, PAGE * 100)]
    assert disk.read("a")[PAGE - 100 :] == content


@pytest.mark.parametrize(
    ("offset", "lead", "size"), [(0, 8, PAGE * 100), (8, 0, PAGE * 100), (0, 0, PAGE * 10)]
)
def test_what_a_device_cannot_take_as_it_is_or_is_little_goes_through_the_cache(
    disk: LocalDisk, direct_writes: list[tuple[int, int]], offset: int, lead: int, size: int
) -> None:
    content = os.urandom(size)
    disk.create("a").write_past_cache(offset, pages(content, lead=lead))
    assert direct_writes == []
    assert disk.read("a")[offset:] == content


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOENT, errno.EMFILE, errno.EACCES])
def test_where_there_is_no_way_past_the_cache_writes_go_through_it(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real_open = os.open

    def refuse_direct(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(code, os.strerror(code))
        return real_open(path, flags, *mode)

    content = os.urandom(PAGE * 100)
    file = disk.create("a")
    monkeypatch.setattr(os, "open", refuse_direct)
    file.write_past_cache(0, pages(content))
    monkeypatch.undo()
    assert disk.read("a") == content


def test_a_device_that_refuses_only_the_write_gets_it_through_the_cache(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_pwrite = os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not aligned enough")
        return real_pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    content = os.urandom(PAGE * 100 + 9)
    disk.create("a").write_past_cache(0, pages(content))
    assert disk.read("a") == content


def test_no_page_of_the_cache_is_written_both_ways_however_large_it_is(
    disk: LocalDisk, direct_writes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_disk, "_CACHED_BYTES", 16 * PAGE)
    content = os.urandom(PAGE * 200)
    disk.create("a").write_past_cache(PAGE, pages(content))
    assert direct_writes == [(16 * PAGE, 176 * PAGE)]
    assert disk.read("a")[PAGE:] == content


@pytest.mark.parametrize("taken_bytes", [0, 512, PAGE * 7])
def test_what_the_device_leaves_of_a_write_past_the_cache_follows(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, taken_bytes: int
) -> None:
    real_pwrite = os.pwrite
    shortened: list[int] = []

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            shortened.append(len(data))
            data = data[:taken_bytes]
        return real_pwrite(fd, data, offset) if len(data) else 0

    monkeypatch.setattr(os, "pwrite", pwrite)
    content = os.urandom(PAGE * 100 + 9)
    disk.create("a").write_past_cache(0, pages(content))
    assert shortened == [PAGE * 100]
    assert disk.read("a") == content


@pytest.mark.parametrize(("code", "error"), [(errno.EIO, DiskFailed), (errno.ENOSPC, DiskFull)])
def test_a_device_that_fails_behind_the_cache_is_told_and_keeps_no_descriptor(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, code: int, error: type[DiskFailed]
) -> None:
    file = disk.create("a")
    before = open_descriptors()
    monkeypatch.setattr(os, "pwrite", fail_with(code))
    with pytest.raises(error, match=f"a: {os.strerror(code)}") as raised:
        file.write_past_cache(0, pages(bytes(PAGE * 100)))
    assert type(raised.value) is error
    assert open_descriptors() == before


@pytest.fixture
def zeros_written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of what is written."""
    sizes: list[int] = []
    real_pwrite = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        assert not any(data)
        sizes.append(len(data))
        return real_pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return sizes


def refuse_range(code: int) -> object:
    def fallocate(*_: object) -> int:
        ctypes.set_errno(code)
        return -1

    return fallocate


FULL = os.urandom((2 << 20) + 5)


def test_a_file_system_that_can_note_zeros_is_not_written_to(
    disk: LocalDisk, root: Path, zeros_written: list[int], synced_directories: list[str]
) -> None:
    (root / "a").write_bytes(FULL)
    (root / "probe").write_bytes(FULL)
    with closing(disk.open("probe")) as probe:
        if not local_disk._zero_range(probe._fd, len(FULL)):
            pytest.skip("the file system here cannot note that a range is zeros")
    file = disk.open("a")
    synced_directories.clear()
    file.clear()
    assert zeros_written == []
    assert synced_directories == ["a"], "cleared durably"
    assert disk.read("a") == bytes(len(FULL))


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, None])
def test_where_nobody_can_note_zeros_they_are_written_and_synced(
    disk: LocalDisk,
    root: Path,
    zeros_written: list[int],
    synced_directories: list[str],
    monkeypatch: pytest.MonkeyPatch,
    code: int | None,
) -> None:
    (root / "a").write_bytes(FULL)
    refuses = refuse_range(code) if code is not None else None
    monkeypatch.setattr(local_disk, "_fallocate", refuses)
    file = disk.open("a")
    synced_directories.clear()
    file.clear()
    assert sum(zeros_written) == len(FULL)
    assert synced_directories == ["a"]
    assert disk.read("a") == bytes(len(FULL))


@pytest.mark.parametrize(("code", "error"), [(errno.EIO, DiskFailed), (errno.ENOSPC, DiskFull)])
def test_a_file_that_cannot_be_cleared_says_so(
    disk: LocalDisk, root: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[DiskFailed]
) -> None:
    (root / "a").write_bytes(FULL)
    file = disk.open("a")
    monkeypatch.setattr(local_disk, "_fallocate", refuse_range(code))
    with pytest.raises(error, match=f"a: {os.strerror(code)}"):
        file.clear()
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", fail_with(code))
    with pytest.raises(error, match=f"a: {os.strerror(code)}"):
        file.clear()


def test_only_what_is_directly_below_the_root_has_its_directories_kept_apart(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def ioctl(fd: int, request: int, flags: "array.array[int]") -> int:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        if request == local_disk._FS_IOC_GETFLAGS:
            flags[0] = 0x80000
        else:
            asked.append((name, flags[0]))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    disk.make_dir("topics")
    disk.make_dir("topics/01")
    assert asked == [("topics", 0xA0000)]


def test_a_filesystem_that_keeps_nothing_apart_makes_directories_all_the_same(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "ioctl", fail_with(errno.ENOTTY))
    disk.make_dir("topics/01")
    assert disk.list("topics") == ["01"]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_the_device_cannot_preallocate_zeros_are_written(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", fail_with(code))
    file = disk.create("a")
    file.write_at(0, [b"head"])
    file.allocate(3_000_000)
    assert disk.read("a") == b"head" + bytes(2_999_996)


def test_allocated_room_is_on_the_device(disk: LocalDisk, root: Path) -> None:
    disk.create("a").allocate(1 << 20)
    assert (root / "a").stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_told_apart_from_other_failures(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = disk.create("a")
    monkeypatch.setattr(os, "posix_fallocate", fail_with(code))
    monkeypatch.setattr(os, "pwrite", fail_with(code))
    with pytest.raises(DiskFull, match=r"^a: "):
        file.allocate(10)
    with pytest.raises(DiskFull, match=r"^a: "):
        file.write_at(0, [b"x"])


def test_a_failed_sync_names_the_file_and_the_reason(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create("a")
    monkeypatch.setattr(os, "fdatasync", fail_with(errno.EIO))
    with pytest.raises(DiskFailed, match=r"^a: Input/output error"):
        file.sync_data()


def fails_for_want_of_descriptors(
    monkeypatch: pytest.MonkeyPatch, name: str, times: int, code: int = errno.EMFILE
) -> list[int]:
    """Let a call of `os` fail so often; return how often it still will."""
    left, real = [times], getattr(os, name)

    def call(*given: object, **named: object) -> object:
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return real(*given, **named)

    monkeypatch.setattr(os, name, call)
    return left


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_the_last_descriptors_are_the_disks(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    disk.create("a").write_at(0, [b"xyz"])
    before = len(open_descriptors())
    left = fails_for_want_of_descriptors(monkeypatch, "open", RESERVED_DESCRIPTORS, code)
    assert disk.read("a") == b"xyz"
    assert left == [0]
    assert len(open_descriptors()) == before  # taken back when there are some again


def test_without_a_descriptor_a_file_is_told_to_come_later(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.create("a").write_at(0, [b"xyz"])
    for name, call in (
        ("open", lambda: disk.read("a")),
        ("open", lambda: disk.open("a")),
        ("open", lambda: disk.create("b")),
        ("open", lambda: disk.map("a")),
        ("open", lambda: disk.sync_dir("")),
        ("listdir", lambda: disk.list("")),
    ):
        with monkeypatch.context() as patched:
            fails_for_want_of_descriptors(patched, name, RESERVED_DESCRIPTORS + 1)
            with pytest.raises(TooManyFiles, match="ulimit -n"):
                call()
        call()


def test_an_error_keeps_the_place_of_the_directory_for_a_note(disk: LocalDisk, root: Path) -> None:
    """What is told to a client must not say where on this machine the files are."""
    with pytest.raises(DiskFailed) as raised:
        disk.open("topics/1")
    assert str(root) not in str(raised.value)
    assert raised.value.__notes__ == [f"below {root}"]
    with pytest.raises(DiskFailed, match=r"^the cold tier: topics/1: "):
        LocalDisk(str(root), name="the cold tier: ").read("topics/1")


def test_a_real_full_device_is_disk_full() -> None:
    with pytest.raises(DiskFull, match="No space left"):
        LocalDisk("/dev").open("full").write_at(0, [b"x"])


def test_a_file_gives_its_descriptor_back_when_forgotten(disk: LocalDisk) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    file = disk.create("a")
    assert descriptors() == before + 1
    del file
    assert descriptors() == before


def test_the_refused_lock_names_the_directory_and_leaves_no_descriptor(
    disk: LocalDisk, root: Path
) -> None:
    held = disk.lock("LOCK")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(DirectoryLocked, match=f"^this process already has {root} open"):
            disk.lock("LOCK")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    held.close()


def test_a_lock_held_by_another_process_is_seen(disk: LocalDisk, root: Path) -> None:
    disk.lock("LOCK").close()
    code = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root / "LOCK")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(DirectoryLocked, match=rf"^another process \(pid {other.pid}\) has"):
            disk.lock("LOCK")
        other.communicate(b"\n")
    disk.lock("LOCK").close()


def test_a_filesystem_without_locks_is_a_disk_failure(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", fail_with(errno.ENOLCK))
    with pytest.raises(DiskFailed, match="LOCK"):
        disk.lock("LOCK")


def test_two_disks_on_one_mount_share_a_page_cache(disk: LocalDisk, tmp_path: Path) -> None:
    assert disk.page_cache_id() == LocalDisk(str(tmp_path / "other")).page_cache_id()


def test_the_page_cache_has_another_name_on_another_mount(disk: LocalDisk) -> None:
    if disk.page_cache_id() is None:
        pytest.skip("this kernel has no unique mount ids")
    assert disk.page_cache_id() != LocalDisk("/dev").page_cache_id()


def test_without_a_boot_id_the_page_cache_has_no_name(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_disk, "_BOOT_ID", tmp_path / "missing")
    assert disk.page_cache_id() is None


@pytest.mark.parametrize("mask", [0x8000_0000, 0x4000_0000], ids=["refused", "ignored"])
def test_on_a_kernel_without_unique_mount_ids_the_page_cache_has_no_name(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    monkeypatch.setattr(local_disk, "_STATX_MNT_ID_UNIQUE", mask)
    assert disk.page_cache_id() is None
