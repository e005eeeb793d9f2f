"""What each disk does alike: one suite over all of them."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from topics.errors import DirectoryLocked, DiskFailed, FileMissing
from topics.storage.disk.disk import Disk
from topics.storage.disk.local_disk import LocalDisk
from topics.storage.disk.ram_disk import RamDisk
from topics.testing.hostile_disk import HostileDisk

DISKS: dict[str, Callable[[Path], Disk]] = {
    "local": lambda tmp_path: LocalDisk(str(tmp_path / "root")),
    "ram": lambda _: RamDisk(),
    "hostile": lambda _: HostileDisk(),
}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return DISKS[request.param](tmp_path)


def write_file(disk: Disk, path: str, content: bytes) -> None:
    file = disk.create(path)
    file.write_at(0, [content])
    file.close()


def test_all_buffers_are_written_one_after_the_other(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(3, [b"one", bytearray(b"two"), b"", memoryview(b"three")])
    assert disk.read("a") == b"\0\0\0onetwothree"


def test_more_buffers_than_one_system_call_takes_are_written(disk: Disk) -> None:
    pieces = [b"%05d" % i for i in range(3000)]
    file = disk.create("a")
    file.write_at(0, pieces)
    assert disk.read("a") == b"".join(pieces)


def test_writing_nothing_changes_nothing(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(0, [])
    file.write_at(0, [b""])
    assert file.size() == 0


def test_a_read_is_short_only_at_the_end_of_the_file(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(0, [b"0123456789"])
    assert file.read_at(2, 3) == b"234"
    assert file.read_at(8, 100) == b"89"
    assert file.read_at(50, 1) == b""


def test_a_write_is_seen_at_once_through_every_handle(disk: Disk) -> None:
    file = disk.create("a")
    other = disk.open("a")
    file.write_at(0, [b"seen"])
    assert other.read_at(0, 4) == b"seen"
    assert disk.size("a") == other.size() == 4


def test_a_file_has_the_content_after_it_was_closed_and_opened_again(disk: Disk) -> None:
    write_file(disk, "a", b"kept")
    assert disk.open("a").read_at(0, 10) == b"kept"


def test_allocate_makes_room_with_zeros_and_never_shrinks(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(0, [b"head"])
    file.allocate(100)
    file.allocate(10)
    file.allocate(0)
    assert disk.read("a") == b"head" + bytes(96)


def test_bytes_cut_off_by_truncate_come_back_as_zeros(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(0, [b"0123456789"])
    file.truncate(4)
    assert disk.read("a") == b"0123"
    file.truncate(8)
    assert disk.read("a") == b"0123\0\0\0\0"


@pytest.mark.parametrize("size", [0, 5, 4096, 3 << 20])
def test_a_file_that_is_cleared_keeps_its_size_and_nothing_else(disk: Disk, size: int) -> None:
    file = disk.create("a")
    file.write_at(0, [os.urandom(size)])
    shown = disk.map("a")
    file.clear()
    assert disk.read("a") == file.read_at(0, size + 1) == bytes(shown) == bytes(size)
    file.write_at(0, [b"new"])
    assert disk.read("a") == b"new" + bytes(max(0, size - 3))


def test_syncs_of_what_is_there_succeed(disk: Disk) -> None:
    disk.make_dir("d")
    file = disk.create("d/a")
    file.write_at(0, [b"x"])
    file.sync_data()
    disk.sync_dir("d")
    disk.sync_dir("")


@pytest.mark.parametrize("offset", [0, 1, 4096, 10_000])
@pytest.mark.parametrize("size", [0, 5, 4096, 300_000, 1 << 20])
@pytest.mark.parametrize("lead", [0, 1, 512])
def test_what_is_written_past_the_cache_is_what_a_write_would_be(
    disk: Disk, offset: int, size: int, lead: int
) -> None:
    before = os.urandom(offset)
    data = in_step(offset, os.urandom(size), lead=lead)
    file = disk.create("a")
    file.write_at(0, [before])
    file.write_past_cache(offset, data)
    assert file.read_at(0, offset + size) == disk.read("a") == before + bytes(data)
    file.write_past_cache(offset, bytes(data))  # memory that cannot be written to
    file.write_past_cache(offset + size, data)
    file.write_at(offset // 2, [b"over"])
    file.sync_data()
    whole = bytearray(before + bytes(data) * 2)
    whole[offset // 2 : offset // 2 + 4] = b"over"
    assert disk.read("a") == bytes(disk.map("a")) == bytes(whole)


def in_step(offset: int, content: bytes, *, lead: int) -> memoryview:
    """Return memory that begins in a page where the file does, or `lead` bytes behind."""
    room = memoryview(mmap.mmap(-1, offset % 4096 + lead + len(content) + 1))
    view = room[offset % 4096 + lead :][: len(content)]
    view[:] = content
    return view


def test_a_directory_that_is_missing_cannot_be_synced(disk: Disk) -> None:
    with pytest.raises(FileMissing):
        disk.sync_dir("nowhere")


def test_a_closed_file_takes_no_more_calls_and_closes_twice(disk: Disk) -> None:
    file = disk.create("a")
    file.close()
    file.close()
    with pytest.raises(DiskFailed):
        file.write_at(0, [b"x"])
    with pytest.raises(DiskFailed):
        file.write_past_cache(0, b"x")
    with pytest.raises(DiskFailed):
        file.write_past_cache(0, memoryview(mmap.mmap(-1, 1 << 20)))
    with pytest.raises(DiskFailed):
        file.clear()
    with pytest.raises(DiskFailed):
        file.read_at(0, 1)
    with pytest.raises(DiskFailed):
        file.sync_data()
    with pytest.raises(DiskFailed):
        file.truncate(0)
    with pytest.raises(DiskFailed):
        file.allocate(10)


def test_create_replaces_the_file_and_leaves_old_readers_alone(disk: Disk) -> None:
    write_file(disk, "a", b"old")
    old = disk.open("a")
    disk.create("a")
    assert disk.read("a") == b""
    assert old.read_at(0, 3) == b"old"


def test_a_map_is_read_only_and_follows_later_writes(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(0, [b"0123456789"])
    view = disk.map("a")
    file.write_at(4, [b"XY"])
    assert bytes(view) == b"0123XY6789"
    assert view.readonly


def test_a_map_keeps_its_size_and_follows_writes_while_the_file_grows(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(0, [b"0123456789"])
    view = disk.map("a")
    part = view[4:8]
    file.write_at(10, [bytes(100_000)])
    file.allocate(1_000_000)
    file.write_at(5, [b"X"])
    file.write_at(9, [b"YZ"])
    assert bytes(view) == b"01234X678Y"
    assert bytes(part) == b"4X67"
    assert len(disk.map("a")) == 1_000_000


def test_a_map_outlives_the_name_of_its_file(disk: Disk) -> None:
    write_file(disk, "a", b"0123456789")
    view = disk.map("a")
    disk.unlink("a")
    assert bytes(view) == b"0123456789"


def test_the_map_of_an_empty_file_is_empty(disk: Disk) -> None:
    disk.create("a")
    assert len(disk.map("a")) == 0


@pytest.mark.parametrize("call", ["open", "read", "map", "size", "unlink"])
def test_a_missing_file_is_named_by_the_error(disk: Disk, call: str) -> None:
    disk.make_dir("d")
    with pytest.raises(FileMissing, match="d/gone"):
        getattr(disk, call)("d/gone")


def test_a_file_in_a_missing_directory_cannot_be_created(disk: Disk) -> None:
    with pytest.raises(FileMissing):
        disk.create("nowhere/a")


def test_make_dir_makes_parents_and_is_fine_where_it_exists(disk: Disk) -> None:
    disk.make_dir("one/two/three")
    disk.make_dir("one/two/three")
    disk.make_dir("")
    assert disk.list("") == ["one"]
    assert disk.list("one/two") == ["three"]
    assert disk.exists("one/two/three")


def test_a_file_is_no_directory(disk: Disk) -> None:
    disk.create("a")
    with pytest.raises(DiskFailed):
        disk.make_dir("a")
    with pytest.raises(DiskFailed):
        disk.make_dir("a/b")
    with pytest.raises(DiskFailed):
        disk.list("a")
    with pytest.raises(DiskFailed):
        disk.create("a/b")


def test_a_directory_is_no_file(disk: Disk) -> None:
    disk.make_dir("d")
    for call in (disk.create, disk.open, disk.read, disk.unlink):
        with pytest.raises(DiskFailed):
            call("d")


def test_a_listing_is_sorted_and_empty_where_nothing_is(disk: Disk) -> None:
    for path in ("c", "a", "b"):
        disk.create(path)
    assert disk.list("") == ["a", "b", "c"]
    assert disk.list("nowhere") == []


def test_only_an_empty_directory_is_removed(disk: Disk) -> None:
    disk.make_dir("d")
    disk.create("d/a")
    with pytest.raises(DiskFailed, match="not empty"):
        disk.remove_dir("d")
    disk.unlink("d/a")
    disk.remove_dir("d")
    disk.remove_dir("d")
    assert not disk.exists("d")


def test_a_directory_that_was_removed_can_be_made_again(disk: Disk) -> None:
    disk.make_dir("one/two")
    disk.remove_dir("one/two")
    disk.make_dir("one/two")
    disk.create("one/two/a")
    assert disk.list("one/two") == ["a"]


def test_rename_moves_a_file_between_directories(disk: Disk) -> None:
    disk.make_dir("d")
    write_file(disk, "a", b"moved")
    disk.rename("a", "d/b")
    assert not disk.exists("a")
    assert disk.read("d/b") == b"moved"


def test_rename_replaces_its_target(disk: Disk) -> None:
    write_file(disk, "new", b"new")
    write_file(disk, "old", b"old")
    disk.rename("new", "old")
    assert disk.list("") == ["old"]
    assert disk.read("old") == b"new"


def test_rename_to_its_own_name_changes_nothing(disk: Disk) -> None:
    write_file(disk, "a", b"a")
    disk.rename("a", "a")
    assert disk.read("a") == b"a"


def test_rename_of_a_missing_file_fails_and_keeps_the_target(disk: Disk) -> None:
    write_file(disk, "a", b"a")
    with pytest.raises(FileMissing):
        disk.rename("gone", "a")
    assert disk.read("a") == b"a"


def test_an_open_handle_follows_its_file_through_a_rename(disk: Disk) -> None:
    file = disk.create("a")
    disk.rename("a", "b")
    file.write_at(0, [b"late"])
    assert disk.read("b") == b"late"


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "a/../b", "a//b", "a/", "./a", "a\0b"])
def test_a_path_that_could_leave_the_root_is_refused(disk: Disk, path: str) -> None:
    disk.make_dir("a")
    for call in (disk.create, disk.open, disk.read, disk.exists, disk.list, disk.make_dir):
        with pytest.raises(DiskFailed, match="relative path"):
            call(path)
    disk.create("b")
    with pytest.raises(DiskFailed, match="relative path"):
        disk.rename("b", path)


def test_a_lock_is_free_again_after_it_was_closed(disk: Disk) -> None:
    disk.lock("LOCK").close()
    disk.lock("LOCK").close()


def test_a_lock_that_is_held_is_refused(disk: Disk) -> None:
    if isinstance(disk, RamDisk):
        pytest.skip("memory belongs to one process")
    held = disk.lock("LOCK")
    with pytest.raises(DirectoryLocked, match=r"has .* open"):
        disk.lock("LOCK")
    held.close()


def test_the_page_cache_keeps_its_name(disk: Disk) -> None:
    assert disk.page_cache_id() == disk.page_cache_id()
