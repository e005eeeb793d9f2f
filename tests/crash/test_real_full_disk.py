"""A small real file system, filled to its last byte: tmpfs, and ext4 in a file.

What is read, deleted and started there is what the reserve is for; a kernel that counts its own
blocks finds what a disk in memory would not.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import topics
from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import DiskFailed, DiskFull, RetryLater
from topics.limits import KIB, MIB

SIZE_BYTES = 24 * MIB
CONFIG = ServerConfig(
    wal_shards=1,
    wal_file_bytes=512 * KIB,
    disk_reserve_bytes=512 * KIB,
    checkpoint_ms=20,
    snapshot_ms=100,
    sweep_ms=20,
    segment_max_events=200,
)
RECORDS = [{"data": "x" * 4_000}] * 20


@pytest.fixture(params=["tmpfs", "ext4"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return a file system of its own; only root may mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    place = tmp_path / "device"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(place)]
    if request.param == "ext4":
        image = tmp_path / "image"
        image.write_bytes(b"")
        os.truncate(image, SIZE_BYTES)
        make = ["mkfs.ext4", "-q", "-m", "0", str(image)]
        command = ["mount", "-o", "loop", str(image), str(place)]
        if not any(Path(d, "mkfs.ext4").exists() for d in ("/sbin", "/usr/sbin")):
            pytest.skip("there is no mkfs.ext4 here")
        subprocess.run(make, check=True, capture_output=True)
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(log: Log, topic: str) -> int:
    """Append until there is no room; return how many records are there."""
    count = 0
    for _ in range(10_000):
        try:
            log.append(topic, RECORDS)
            count += len(RECORDS)
        except RetryLater:
            continue  # the queue is full, or segments are behind
        except DiskFull:
            return count
    raise AssertionError("the device is too large")


def take_all(place: Path) -> Path:
    """Be another program that takes all that is left."""
    other = place / "other"
    with suppress(OSError), other.open("ab", buffering=0) as file:
        for size in (64 * KIB, 4 * KIB, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass
    return other


@pytest.mark.crash
def test_a_full_file_system_is_read_emptied_started_and_written_again(mounted: Path) -> None:
    directory = str(mounted / "data")
    with topics.open(directory, config=CONFIG) as log:
        log.create("big", durability="fsync")
        log.create("small", durability="fsync")
        log.append("small", RECORDS)
        count = fill(log, "big")
        assert count > 1_000
        other = take_all(mounted)
        with pytest.raises(DiskFull, match="no space left"):
            log.append("small", RECORDS)
        assert len(log.diff("small").records) == len(RECORDS)
    for _ in range(2):
        with topics.open(directory, config=CONFIG) as log:
            assert log.state("big").head_seq >= count
            assert len(log.diff("small").records) in (len(RECORDS), len(RECORDS) - 1)
            assert log.delete("small", before_seq=2).deleted <= 1
            take_all(mounted)
    log = topics.open(directory, config=CONFIG)
    assert log.drop("big")
    wait_for_room(log)
    other.unlink()
    assert log.append("small", RECORDS).first_seq == len(RECORDS) + 1
    assert not any(shard.commit.log.failed for shard in log.engine.shards)
    log.close()
    with topics.open(directory, config=CONFIG) as log:
        assert [record.seq for record in log.diff("small").records] == list(range(2, 41))
        assert log.topics() == ["small"]


def wait_for_room(log: Log) -> None:
    for _ in range(3):
        with suppress(DiskFailed):
            log.engine.snapshot()
    log.engine.look_at_room()
