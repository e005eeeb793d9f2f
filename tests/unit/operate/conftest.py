"""Small data directories of every kind, and ways to break them."""

from pathlib import Path
from typing import Any

import pytest

from topics.config import ServerConfig
from topics.embedded import Log
from topics.model.diff import Tombstone
from topics.operate.report import FileVerdict, VerifyReport
from topics.operate.verify import verify
from topics.storage.disk.local_disk import LocalDisk
from topics.testing.manual_clock import ManualClock

RECORDS_PER_SEGMENT = 10
TOPIC = "topics/0000000000000001"


class Place:
    """A data directory, its cold folder, and what was written to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.cold = root / "cold"
        self.clock = ManualClock()

    def open(self, **settings: Any) -> Log:  # noqa: ANN401 - of ServerConfig
        """Open without background threads: nothing happens that a test has not asked for."""
        config = ServerConfig(
            data_dir=str(self.data),
            wal_shards=settings.pop("wal_shards", 1),
            wal_file_bytes=settings.pop("wal_file_bytes", 65_536),
            segment_max_events=RECORDS_PER_SEGMENT,
            compact_dead_ratio=settings.pop("compact_dead_ratio", 0.0),
            **settings,
        )
        return Log(config, clock=self.clock, background=False)

    @property
    def disk(self) -> LocalDisk:
        return LocalDisk(str(self.data))

    @property
    def cold_disk(self) -> LocalDisk | None:
        return LocalDisk(str(self.cold)) if self.cold.exists() else None

    def verify(self) -> VerifyReport:
        return verify(self.disk, cold=self.cold_disk)

    def verdicts(self) -> dict[str, str]:
        """Return path → verdict of every file that is not simply ok."""
        return {file.path: file.verdict for file in self.verify().files if file.verdict != "ok"}

    def file(self, path: str) -> FileVerdict:
        found = [file for file in self.verify().files if file.path == path]
        assert len(found) == 1
        return found[0]

    def segment(self, first_seq: int, kind: str = "data") -> Path:
        return self.data / TOPIC / f"seg-{first_seq:016d}.{kind}"

    def wal(self, number: int = 1) -> Path:
        return self.data / "wal" / f"wal-{number:020d}.log"

    def snapshots(self) -> list[Path]:
        return sorted((self.data / "meta").glob("snapshot.*.bin"))

    def bytes_of_all_files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


def records(first: int, last: int) -> list[dict[str, Any]]:
    """Return records whose payload is the seq they will get, with tags g:0 to g:4."""
    return [{"data": seq, "tag": f"g:{seq % 5}"} for seq in range(first, last + 1)]


def flip(path: Path, offset: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= bit
    path.write_bytes(content)


def read_all(log: Log, topic: str) -> tuple[list[int], list[Tombstone]]:
    """Return the seqs that a reader gets from the start on, and what it is told to be lost."""
    seqs: list[int] = []
    lost: list[Tombstone] = []
    cursor = 0
    while True:
        page = log.diff(topic, from_seq=cursor, limit=1000)
        if page.tombstone is not None:
            lost.append(page.tombstone)
        for record in page.records:
            assert record.data == record.seq, "a record under a wrong seq"
            seqs.append(record.seq)
        cursor = page.next_from_seq
        if page.caught_up:
            return seqs, lost


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def stopped(place: Place) -> Place:
    """Fifty records in five segments, stopped cleanly."""
    with place.open() as log:
        log.create("orders", durability="fsync")
        for first in range(1, 51, 5):
            place.clock.advance_ms(1)
            log.append("orders", records(first, first + 4))
        log.checkpoint()
    return place


@pytest.fixture
def killed(place: Place) -> Place:
    """Twenty records in segments, thirty more on the log alone, and then a kill."""
    log = place.open()
    log.create("orders", durability="fsync")
    log.append("orders", records(1, 20))
    log.checkpoint()
    for first in range(21, 51, 5):
        log.append("orders", records(first, first + 4))
    log.engine.abandon()
    return place
