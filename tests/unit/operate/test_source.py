"""Files on a device that fails, and the lock."""

from pathlib import Path

import pytest
from tests.unit.operate.conftest import TOPIC, Place, records

from topics.errors import DirectoryLocked, DiskFailed
from topics.operate.repair import repair
from topics.operate.source import PIECE_BYTES, hold_directory, looks_like_data, read_source
from topics.operate.verify import verify
from topics.storage.disk.local_disk import LocalDisk, LocalFile


class BadSectors(LocalDisk):
    """A disk that cannot read some bytes of one file."""

    def __init__(self, root: Path, path: str, bad: range) -> None:
        super().__init__(str(root))
        self._bad_path = path
        self._bad = bad

    def read(self, path: str) -> bytes:
        if path == self._bad_path:
            raise DiskFailed(f"{path}: Input/output error")
        return super().read(path)

    def open(self, path: str) -> LocalFile:
        file = super().open(path)
        return BadFile(file, self._bad) if path == self._bad_path else file


class BadFile(LocalFile):
    """A file with an unreadable range."""

    def __init__(self, file: LocalFile, bad: range) -> None:
        super().__init__(file._fd, file._place)
        self._file = file
        self._bad = bad

    def read_at(self, offset: int, size: int) -> bytes:
        if offset < self._bad.stop and offset + size > self._bad.start:
            raise DiskFailed("Input/output error")
        return super().read_at(offset, size)

    def close(self) -> None:
        self._file.close()
        self._fd = (1 << 31) - 1


@pytest.fixture
def large(place: Place) -> Place:
    """One segment of ten records, a kilobyte each."""
    with place.open() as log:
        log.append("orders", [{"data": "x" * 1000} for _ in range(10)])
        for _ in range(3):
            log.checkpoint()
    return place


def bad_disk(place: Place) -> BadSectors:
    bad = range(PIECE_BYTES + 10, PIECE_BYTES + 20)
    return BadSectors(place.data, f"{TOPIC}/{place.segment(1).name}", bad)


def test_a_file_is_read_around_its_bad_sectors(large: Place) -> None:
    source = read_source(bad_disk(large), f"{TOPIC}/{large.segment(1).name}")
    assert source is not None
    content = large.segment(1).read_bytes()
    assert source.unreadable == [(PIECE_BYTES, 2 * PIECE_BYTES)]
    assert source.data[:PIECE_BYTES] == content[:PIECE_BYTES]
    assert source.data[2 * PIECE_BYTES :] == content[2 * PIECE_BYTES :]


def test_verify_names_the_bytes_that_the_device_cannot_read(large: Place) -> None:
    report = verify(bad_disk(large))
    (file,) = [file for file in report.files if file.is_bad]
    assert file.findings[0].message == "the device cannot read bytes 4096 to 8192"


def test_repair_saves_what_is_around_them(large: Place) -> None:
    with large.open() as log:
        log.checkpoint()
    for path in large.data.glob("wal/wal-*.log"):
        assert b"xxxx" not in path.read_bytes(), "only the segment has the records"
    into = LocalDisk(str(large.root / "rescued"))
    report = repair(bad_disk(large), into=into, into_name="rescued")
    assert report.verified
    assert 3 <= report.records_kept < 10
    assert report.records_kept + report.records_lost == 10


def test_a_missing_file_is_none(place: Place) -> None:
    assert read_source(place.disk, "meta/FORMAT") is None


def test_a_directory_in_use_is_refused_with_a_way_out(place: Place) -> None:
    with place.open() as log:
        log.append("orders", records(1, 1))
        with pytest.raises(DirectoryLocked, match="stop it first, or use a copy"):
            hold_directory(place.disk)
    lock = hold_directory(place.disk)
    assert lock is not None
    with pytest.raises(DirectoryLocked):
        place.open()
    lock.close()


def test_a_copy_without_a_lock_file_gets_none(stopped: Place) -> None:
    (stopped.data / ".topics.lock").unlink()
    assert hold_directory(stopped.disk) is None
    assert not (stopped.data / ".topics.lock").exists()


def test_a_folder_of_other_things_is_no_data_directory(tmp_path: Path, stopped: Place) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    assert not looks_like_data(LocalDisk(str(tmp_path)))
    assert looks_like_data(stopped.disk)
