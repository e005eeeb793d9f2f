"""That the hostile disk is hostile: every kind of damage of the model really happens."""

from collections import Counter

import pytest

from topics.errors import DiskFailed
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan
from topics.testing.hostile_file import HostileFile
from topics.testing.hostile_power_cut import Damage

SEEDS = range(300)
OFTEN = 10
NO_NOISE = Damage(garbled_write_odds=0.0)


def disk_with_file(damage: Damage = NO_NOISE) -> tuple[HostileDisk, HostileFile]:
    """Return a disk with a durable name for an empty file."""
    disk = HostileDisk(damage=damage)
    file = disk.create("a")
    disk.sync_dir("")
    return disk, file


def contents_after_cuts(disk: HostileDisk, path: str = "a") -> Counter[bytes]:
    return Counter(disk.power_cut(seed).read(path) for seed in SEEDS)


def listings_after_cuts(disk: HostileDisk) -> Counter[tuple[str, ...]]:
    return Counter(tuple(disk.power_cut(seed).list("")) for seed in SEEDS)


def test_writes_are_lost_kept_and_kept_without_the_earlier_ones() -> None:
    disk, file = disk_with_file()
    file.allocate(2048)
    file.sync_data()
    file.write_at(0, [b"A" * 512])
    file.write_at(512, [b"B" * 512])
    file.write_at(1024, [b"C" * 512])
    found = Counter(
        content.replace(b"\0" * 512, b"-").replace(b"A" * 512, b"A").replace(b"B" * 512, b"B")
        .replace(b"C" * 512, b"C").decode()
        for content in contents_after_cuts(disk).elements()
    )  # fmt: skip
    assert set(found) == {"----", "A---", "-B--", "--C-", "AB--", "A-C-", "-BC-", "ABC-"}
    assert min(found.values()) > 2


def test_a_long_write_is_lost_whole_while_a_later_one_is_there() -> None:
    disk, file = disk_with_file()
    file.allocate(512 * 16)
    file.sync_data()
    file.write_at(0, [b"A" * 512 * 8])
    file.write_at(512 * 8, [b"B" * 512 * 8])
    found = contents_after_cuts(disk)
    assert found[bytes(512 * 8) + b"B" * 512 * 8] >= OFTEN


def test_writes_over_one_another_are_found_in_any_order() -> None:
    disk, file = disk_with_file()
    file.allocate(9)
    file.sync_data()
    file.write_at(0, [b"AAAAAA"])
    file.write_at(3, [b"BBBBBB"])
    found = contents_after_cuts(disk)
    nothing, first, second = bytes(9), b"AAAAAA" + bytes(3), bytes(3) + b"BBBBBB"
    assert set(found) == {nothing, first, second, b"AAABBBBBB", b"AAAAAABBB"}
    assert min(found.values()) >= OFTEN


def test_a_long_write_is_torn_at_the_end_in_the_middle_and_at_the_front() -> None:
    disk, file = disk_with_file()
    file.allocate(512 * 8)
    file.sync_data()
    file.write_at(0, [b"x" * 512 * 8])
    found = contents_after_cuts(disk)
    torn = [content for content in found if 0 < content.count(b"x") < 512 * 8]
    assert len(torn) > OFTEN
    assert any(content.startswith(b"x") for content in torn)
    assert any(content.endswith(b"x") for content in torn)
    assert any(not content.strip(b"\0").startswith(b"x" * 512 * 7) for content in torn)
    assert all(content.count(b"x") % 512 == 0 for content in torn)


def test_a_write_that_starts_inside_a_sector_tears_at_the_borders_of_sectors() -> None:
    disk, file = disk_with_file()
    file.allocate(512 * 6)
    file.sync_data()
    file.write_at(100, [b"x" * 512 * 5])
    torn = [content for content in contents_after_cuts(disk) if content.count(b"x") < 512 * 5]
    sizes = {content[start : start + 512].count(b"x") for content in torn for start in (0, 512)}
    last_sizes = {content[512 * 5 :].count(b"x") for content in torn}
    assert sizes == {0, 412, 512}
    assert last_sizes == {0, 100}


def test_the_file_grows_without_its_data_and_has_data_cut_off() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"x" * 1000])
    file.write_at(1000, [b"y" * 1000])
    found = contents_after_cuts(disk)
    assert {len(content) for content in found} >= {0, 1000, 2000}
    assert found[bytes(1000)] > 0
    assert any(content.endswith(b"\0" * 1000) for content in found)


def test_an_unsynced_truncation_may_be_undone() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"0123456789"])
    file.sync_data()
    file.truncate(4)
    found = contents_after_cuts(disk)
    assert set(found) == {b"0123456789", b"0123"}
    assert min(found.values()) >= OFTEN


def test_what_a_surviving_truncation_cut_off_stays_off() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"0123456789"])
    file.sync_data()
    file.write_at(10, [b"xx"])
    file.truncate(4)
    found = contents_after_cuts(disk)
    assert set(found) == {
        b"0123", b"0123456789", b"0123456789xx", b"0123456789\0\0",
    }  # fmt: skip


def test_a_file_grows_again_after_a_surviving_truncation() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"0123456789"])
    file.sync_data()
    file.truncate(4)
    file.write_at(4, [b"xx"])
    found = contents_after_cuts(disk)
    assert found.keys() >= {b"0123", b"0123456789", b"0123xx", b"0123xx6789", b"0123\0\0"}
    assert b"0123\0\0\0\0\0\0" not in found


def test_noise_is_found_in_fresh_room_only() -> None:
    disk, file = disk_with_file(Damage(garbled_write_odds=1.0))
    file.allocate(2048)
    file.write_at(0, [b"s" * 600])
    file.sync_data()
    file.write_at(590, [b"x" * 800])
    noisy = 0
    for content in contents_after_cuts(disk).elements():
        assert content[:590] == b"s" * 590
        assert set(content[590:600]) <= set(b"sx")
        noisy += not set(content[600:1390]) <= set(b"\0x")
        assert content[1390:] == bytes(2048 - 1390)
    assert noisy > 100


def test_synced_bytes_are_overwritten_with_old_or_new_only() -> None:
    disk, file = disk_with_file(Damage(garbled_write_odds=1.0))
    file.write_at(0, [b"o" * 400])
    file.sync_data()
    file.write_at(100, [b"nnn"])
    found = contents_after_cuts(disk)
    assert {content[99:104] for content in found} == {b"ooooo", b"onnno"}


def test_a_sector_is_mixed_only_where_asked_for() -> None:
    disk, file = disk_with_file(Damage(garbled_write_odds=0.0, mixed_sector_odds=1.0))
    file.write_at(0, [b"old!"])
    file.sync_data()
    file.write_at(0, [b"new."])
    assert set(contents_after_cuts(disk)) == {b"old!", b"nld!", b"ned!", b"new!", b"new."}


def test_after_a_failed_sync_a_later_one_saves_only_what_came_after() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"doubtful"])
    disk.arm(FaultPlan().fail(operation="sync_data"))
    with pytest.raises(DiskFailed, match="injected"):
        file.sync_data()
    file.sync_data()
    file.write_at(8, [b"sure"])
    file.sync_data()
    assert file.read_at(0, 100) == b"doubtfulsure"
    found = contents_after_cuts(disk)
    assert set(found) == {bytes(8) + b"sure", b"doubtfulsure"}
    assert min(found.values()) >= OFTEN


def test_what_a_failed_sync_lost_is_saved_by_writing_it_again() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"doubtful"])
    disk.arm(FaultPlan().fail(operation="sync_data"))
    with pytest.raises(DiskFailed):
        file.sync_data()
    file.write_at(0, [file.read_at(0, 8)])
    file.sync_data()
    assert set(contents_after_cuts(disk)) == {b"doubtful"}


def test_doubtful_bytes_stay_doubtful_after_a_kill() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"doubtful"])
    disk.arm(FaultPlan().fail(operation="sync_data"))
    with pytest.raises(DiskFailed):
        file.sync_data()
    survivor = disk.kill()
    survivor.open("a").sync_data()
    assert survivor.read("a") == b"doubtful"
    assert len(contents_after_cuts(survivor)) > 1


def test_a_new_file_may_vanish_with_all_its_synced_bytes() -> None:
    disk = HostileDisk()
    file = disk.create("a")
    file.write_at(0, [b"synced"])
    file.sync_data()
    found = listings_after_cuts(disk)
    assert set(found) == {(), ("a",)}
    assert min(found.values()) >= OFTEN
    assert all(
        after.read("a") == b"synced" for after in map(disk.power_cut, SEEDS) if after.exists("a")
    )


def test_an_unlinked_file_may_be_back() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"synced"])
    file.sync_data()
    disk.unlink("a")
    found = listings_after_cuts(disk)
    assert set(found) == {(), ("a",)}
    assert min(found.values()) >= OFTEN


def test_a_renamed_file_has_one_of_its_names_and_the_target_may_be_the_old_one() -> None:
    disk = HostileDisk()
    for path in ("old", "new"):
        file = disk.create(path)
        file.write_at(0, [path.encode()])
        file.sync_data()
    disk.sync_dir("")
    disk.rename("new", "old")
    found = Counter(
        tuple((path, after.read(path)) for path in after.list(""))
        for after in map(disk.power_cut, SEEDS)
    )
    assert set(found) == {(("new", b"new"), ("old", b"old")), (("old", b"new"),)}
    assert min(found.values()) >= OFTEN


def test_a_file_renamed_before_its_sync_may_be_empty_under_its_new_name() -> None:
    disk = HostileDisk()
    disk.create("tmp").write_at(0, [b"content"])
    disk.rename("tmp", "CURRENT")
    disk.sync_dir("")
    found = contents_after_cuts(disk, "CURRENT")
    assert found[b""] >= OFTEN
    assert found[b"content"] >= OFTEN


def test_changes_of_different_names_survive_in_any_combination() -> None:
    disk = HostileDisk()
    for path in ("a", "b", "c"):
        disk.create(path)
    assert len(listings_after_cuts(disk)) == 8


def test_a_file_created_over_another_may_leave_neither() -> None:
    disk, file = disk_with_file()
    file.write_at(0, [b"old"])
    file.sync_data()
    new = disk.create("a")
    new.write_at(0, [b"new"])
    new.sync_data()
    found = Counter(
        after.read("a") if after.exists("a") else None for after in map(disk.power_cut, SEEDS)
    )
    assert set(found) == {None, b"old", b"new"}
    assert min(found.values()) >= OFTEN


def test_a_removed_directory_may_be_back_with_its_files() -> None:
    disk = HostileDisk()
    disk.make_dir("d")
    disk.create("d/a")
    disk.sync_dir("d")
    disk.unlink("d/a")
    disk.remove_dir("d")
    found = Counter(
        tuple(after.list("d")) if after.exists("d") else None
        for after in map(disk.power_cut, SEEDS)
    )
    assert set(found) == {None, (), ("a",)}
    assert min(found.values()) >= OFTEN


def test_a_directory_made_again_is_durable_and_empty() -> None:
    disk = HostileDisk()
    disk.make_dir("d/sub")
    disk.create("d/sub/a")
    disk.sync_dir("d/sub")
    disk.unlink("d/sub/a")
    disk.remove_dir("d/sub")
    disk.remove_dir("d")
    disk.make_dir("d/sub")
    assert {tuple(disk.power_cut(seed).list("d/sub")) for seed in SEEDS} == {()}
    assert all(disk.power_cut(seed).exists("d/sub") for seed in SEEDS)


def test_a_rename_to_another_directory_is_durable_once_the_target_is_synced() -> None:
    disk = HostileDisk()
    disk.make_dir("d")
    disk.create("a")
    disk.sync_dir("")
    disk.rename("a", "d/a")
    disk.sync_dir("")
    assert {disk.power_cut(seed).exists("d/a") for seed in SEEDS} == {True, False}
    survivor = disk.kill()
    survivor.sync_dir("d")
    assert {survivor.power_cut(seed).exists("d/a") for seed in SEEDS} == {True}
