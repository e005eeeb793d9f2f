"""Power cuts of a real file system under a real process."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from topics.storage.disk import local_disk
from topics.storage.disk.local_disk import LocalDisk
from topics.testing.crash_real import power_cut_cycles
from topics.testing.power_image import PowerImage, why_not

CYCLES = 3
PIECE_BYTES = 64 * 1024
FEW_PIECES, MANY_PIECES = 2, 100
"""What says where few pieces lie stands in the inode, that of many has blocks of its own."""


@pytest.fixture
def directory(tmp_path: Path) -> str:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no power cut here: {reason}")
    return str(tmp_path)


@pytest.mark.crash
def test_a_power_cut_takes_nothing_that_was_synced(directory: str) -> None:
    acks = list(power_cut_cycles(directory, cycles=CYCLES, seed=1))
    assert len(acks) == CYCLES


@pytest.mark.crash
@pytest.mark.parametrize("pieces", [FEW_PIECES, MANY_PIECES])
@pytest.mark.parametrize("has_journal", [True, False])
def test_a_file_that_was_cleared_is_cleared_after_a_power_cut(
    directory: str, *, has_journal: bool, pieces: int
) -> None:
    with PowerImage(directory, has_journal=has_journal) as image:
        image.mount()
        disk = LocalDisk(f"{image.root}/data")
        content = bytearray(write_scattered(disk, "file", pieces))

        with closing(disk.open("file")) as file:
            assert local_disk._zero_range(file._fd, len(content))
        image.lose_memory()
        assert disk.read("file") == content, "this cut takes what is not synced"

        with closing(disk.open("file")) as file:
            file.clear()
        image.lose_memory()
        assert disk.read("file") == bytes(len(content))

        with closing(disk.open("file")) as file:
            file.write_at(PIECE_BYTES // 2, [content[:PIECE_BYTES]])
            file.sync_data()
        image.lose_memory()
        rest = len(content) - PIECE_BYTES - PIECE_BYTES // 2
        assert disk.read("file") == bytes(PIECE_BYTES // 2) + content[:PIECE_BYTES] + bytes(rest)


@pytest.mark.crash
@pytest.mark.parametrize("has_journal", [True, False])
def test_what_was_synced_in_a_reserved_file_is_there_after_a_power_cut(
    directory: str, *, has_journal: bool
) -> None:
    with PowerImage(directory, has_journal=has_journal) as image:
        image.mount()
        disk = LocalDisk(f"{image.root}/data")
        content = os.urandom(PIECE_BYTES)
        with closing(disk.create("file")) as file:
            file.allocate(3 * PIECE_BYTES)
            file.sync_data()
            disk.sync_dir("")
            file.write_at(PIECE_BYTES, [content])
            file.sync_data()
            file.write_at(2 * PIECE_BYTES, [content])
        image.lose_memory()
        assert disk.read("file") == bytes(PIECE_BYTES) + content + bytes(PIECE_BYTES)


def write_scattered(disk: LocalDisk, path: str, pieces: int) -> bytes:
    """Write a file whose pieces lie apart on the device: it takes as many notes to clear it."""
    with closing(disk.create(path)) as file, closing(disk.create("between")) as between:
        for number in range(pieces):
            file.write_at(number * PIECE_BYTES, [os.urandom(PIECE_BYTES)])
            file.sync_data()
            between.write_at(number * 4096, [os.urandom(4096)])
            between.sync_data()
    return disk.read(path)
