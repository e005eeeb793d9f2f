"""A device without room: what goes on, what is refused, and how it goes on again."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine.background import Background
from topics.errors import DiskFull, ShardReadOnly, TooManyFiles
from topics.limits import KIB
from topics.storage.disk import paths
from topics.storage.wal.log import SMALL_FILE_BYTES
from topics.testing.built_segments import build_segment, stage
from topics.testing.full_disk import FullDisk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan
from topics.testing.manual_clock import ManualClock

RECORD = {"data": "x" * 1_000}
SIZE_BYTES = 512 * KIB


class Device:
    """One data directory on a device of some size."""

    def __init__(self, size_bytes: int = SIZE_BYTES) -> None:
        self.below = HostileDisk()
        self.disk = FullDisk(self.below, size_bytes=size_bytes)
        self.cold = FullDisk(HostileDisk())
        self.clock = ManualClock()
        self.config = ServerConfig(
            wal_shards=1,
            wal_file_bytes=16 * KIB,
            segment_max_events=20,
            hot_retain_segments=100,
            disk_reserve_bytes=16 * KIB,
        )
        self.log = self.open()

    def open(self) -> Log:
        self.log = Log(
            self.config, disk=self.disk, cold_disk=self.cold, clock=self.clock, background=False
        )
        return self.log

    def kill(self) -> None:
        """End the process; what it wrote takes the room that it took."""
        self.below = self.below.kill()
        self.disk._disk = self.below

    def fill(self, topic: str) -> int:
        """Append until there is no room, with the work that goes on beside; return how many."""
        for count in range(10_000):
            try:
                self.log.append(topic, [RECORD])
                if count % 10 == 9:
                    self.work()
            except DiskFull:
                return count
        raise AssertionError("the device is too large")

    def work(self) -> None:
        """Do what is done in the background."""
        engine = self.log.engine
        for step in (engine.snapshot, engine.maintain, engine.snapshot, engine.look_at_room):
            with suppress(DiskFull):
                step()
            self.clock.advance_ms(1_000)

    def fill_up(self) -> None:
        """Let others take all that is left."""
        self.disk.size_bytes = self.disk.used_bytes

    def temporaries(self) -> list[str]:
        return [path for path in self.disk._sizes if path.endswith(paths.TEMPORARY_SUFFIX)]


@pytest.fixture
def device() -> Device:
    return Device()


def test_a_full_device_refuses_records_and_says_what_to_do(device: Device) -> None:
    device.log.create("a", durability="fsync")
    count = device.fill("a")
    assert count > 100
    with pytest.raises(DiskFull, match=r"no space left.*delete topics or records") as raised:
        device.log.append("a", [RECORD])
    assert raised.value.detail == {
        "reason": "disk_full",
        "free_bytes": raised.value.free_bytes,
        "needed_bytes": 32 * KIB,
    }
    with pytest.raises(DiskFull):
        device.log.append("new", [RECORD])
    assert device.log.topics() == ["a"]
    assert len(device.log.diff("a", limit=1_000).records) >= count
    assert not any(shard.commit.log.failed for shard in device.log.engine.shards)
    assert device.log.engine.reserve.is_short


@pytest.mark.parametrize(
    "remove",
    [
        lambda log: log.drop("a"),
        lambda log: log.delete("a", before_seq=log.state("a").head_seq - 5),
        lambda log: log.create("a", cap_records=10),
    ],
    ids=["a topic", "records", "a lower cap"],
)
def test_what_is_removed_makes_room_and_writes_go_on(
    device: Device, remove: Callable[[Log], Any]
) -> None:
    device.log.create("a", durability="fsync")
    device.fill("a")
    device.fill_up()
    remove(device.log)
    device.work()
    assert not device.log.engine.reserve.is_short
    assert device.below.exists(paths.RESERVE)
    for _ in range(50):
        device.log.append("b", [RECORD])
    device.log.close()
    assert len(device.open().diff("b", limit=100).records) == 50


def test_a_start_on_a_full_device_serves_reads_and_deletes(device: Device) -> None:
    device.log.create("a", durability="fsync")
    device.log.create("b", durability="fsync")
    device.log.append("b", [RECORD] * 3)
    count = device.fill("a")
    for _ in range(3):  # each start takes no more than the one before
        device.kill()
        device.fill_up()
        device.open()
        assert len(device.log.diff("a", limit=1_000).records) >= count
    with pytest.raises(DiskFull):
        device.log.append("b", [RECORD])
    assert device.log.delete("b", before_seq=2).deleted == 1
    assert device.log.drop("a")
    device.work()
    device.log.append("b", [RECORD])
    device.log.close()
    assert [record.seq for record in device.open().diff("b").records] == [2, 3, 4]


def test_a_device_that_others_filled_while_nobody_ran_is_no_hindrance(device: Device) -> None:
    device.log.create("a", durability="fsync")
    device.log.append("a", [RECORD] * 5)
    device.log.close()
    device.fill_up()
    device.open()
    assert len(device.log.diff("a").records) == 5
    assert device.log.engine.reserve.is_short
    device.log.delete("a", before_seq=3)
    device.log.close()
    device.disk.size_bytes = SIZE_BYTES
    device.open()
    assert device.below.exists(paths.RESERVE)
    device.log.append("a", [RECORD])
    assert [record.seq for record in device.log.diff("a").records] == [3, 4, 5, 6]


def test_a_checkpoint_and_a_snapshot_go_on_in_the_reserve(device: Device) -> None:
    device.log.create("a", durability="fsync")
    device.log.append("a", [RECORD] * 5)
    device.fill_up()
    device.log.engine.snapshot()
    assert device.log.engine.reserve.is_short
    assert not device.log.engine.shards[0].dirty
    assert device.temporaries() == []
    device.disk.size_bytes = SIZE_BYTES
    device.log.append("a", [RECORD])
    assert not device.log.engine.reserve.is_short


def test_files_kept_for_later_are_the_first_to_go(device: Device) -> None:
    device.log.create("a", durability="fsync")
    engine = device.log.engine
    for _ in range(8):
        device.log.append("a", [{"data": "x" * 9_000}])
        engine.snapshot()
    recycled = [path for path in device.temporaries() if "recycled" in path]
    assert recycled
    device.fill_up()
    device.log.append("a", [{"data": "x" * 9_000}])
    engine.snapshot()
    assert [path for path in device.temporaries() if "recycled" in path] == []


def test_what_could_not_be_made_leaves_nothing_that_takes_room(device: Device) -> None:
    device.log.create("a", durability="fsync")
    device.log.append("a", [RECORD, *[{**RECORD, "tag": "gone"}] * 14, *[RECORD] * 45])
    engine = device.log.engine
    engine.snapshot()
    engine.maintain()
    device.log.delete("a", match="gone")  # most of a segment: it is to be rewritten
    engine.reserve.give()
    device.fill_up()
    with pytest.raises(DiskFull):
        engine.maintain()
    with pytest.raises(DiskFull):
        device.log.append("a", [{"data": "x" * 15_000}])
    assert device.temporaries() == []
    assert [record.seq for record in device.log.diff("a").records] == [1, *range(16, 61)]


def test_a_full_cold_tier_keeps_what_is_hot_and_gives_up_what_is_gone() -> None:
    device = Device()
    device.log.close()
    device.config = ServerConfig(
        wal_shards=1,
        wal_file_bytes=16 * KIB,
        segment_max_events=20,
        hot_retain_segments=0,
        disk_reserve_bytes=16 * KIB,
    )
    log = device.open()
    for topic in ("a", "b"):
        log.create(topic, durability="fsync")
        log.append(topic, [RECORD] * 20)
    log.engine.snapshot()
    assert log.engine.relocate() == 2
    log.append("a", [RECORD] * 20)
    log.append("b", [RECORD] * 20)
    log.engine.snapshot()
    used = device.cold.used_bytes
    device.cold.size_bytes = used + 1_000
    log.delete("b", before_seq=20)
    with pytest.raises(DiskFull):
        log.engine.relocate()
    assert [len(log.diff(topic, limit=50).records) for topic in ("a", "b")] == [40, 21]
    assert device.cold.used_bytes == used
    log.delete("b", before_seq=21)
    log.engine.snapshot()
    log.engine.maintain()
    with pytest.raises(DiskFull):
        log.engine.relocate()
    assert log.state("b").cold_segments == 0
    with pytest.raises(DiskFull):
        log.engine.relocate()  # the one of b has no place beside that of a, which has now
    assert log.state("a").cold_segments == 2
    assert not log.engine.shards[0].commit.log.failed


def test_a_write_or_sync_that_fails_stays_final(device: Device) -> None:
    device.log.create("a", durability="fsync")
    plan = FaultPlan().fail(operation="sync_data", path="wal/wal-*", error=DiskFull)
    device.below.arm(plan)
    with pytest.raises(DiskFull):
        device.log.append("a", [RECORD])
    device.below.arm(NO_FAULTS)
    with pytest.raises(ShardReadOnly):
        device.log.append("a", [RECORD])


def test_without_a_reserve_a_full_device_is_told_as_well() -> None:
    device = Device()
    device.log.close()
    device.config = ServerConfig(
        wal_shards=1, wal_file_bytes=16 * KIB, segment_max_events=20, disk_reserve_bytes=0
    )
    device.open().create("a", durability="fsync")
    device.fill("a")
    assert not device.below.exists(paths.RESERVE)
    device.disk.size_bytes = 2 * SIZE_BYTES
    device.clock.advance_ms(2_000)
    device.log.append("a", [RECORD])


def test_the_threads_take_snapshots_and_look_for_room_while_it_is_short(device: Device) -> None:
    device.log.create("a", durability="fsync")
    device.fill("a")
    device.log.create("tiny")
    background = Background.__new__(Background)
    background._engine = engine = device.log.engine
    background._snapshot_bytes = 0
    background._was_short = False
    background._sweep_due_s = background._checkpoint_due_s = 0.0
    background._snapshot_due_s = float("inf")
    before = engine._snapshot_number
    background._segment_step()
    assert engine._snapshot_number > before
    assert [topic.name for topic in engine.largest][:1] == ["a"]
    assert SMALL_FILE_BYTES >= 16 * KIB


def test_a_backup_without_room_leaves_nothing(device: Device) -> None:
    device.log.create("a", durability="fsync")
    device.log.append("a", [RECORD] * 50)
    for size_bytes in (2_000, 30_000, 45_000):
        below = HostileDisk()
        with pytest.raises(DiskFull):
            device.log.engine.backup(FullDisk(below, size_bytes=size_bytes))
        assert below.list("") == [paths.META_DIR]
    assert device.log.engine.backup(HostileDisk()).segments > 0
    assert not device.log.engine.reserve.is_short


@pytest.mark.parametrize(
    "plan",
    [
        FaultPlan().fail(operation="sync_data", path="topics/*", error=DiskFull),
        FaultPlan().fail(operation="allocate", error=DiskFull, forever=True),
    ],
    ids=["at a sync of its files", "at the log"],
)
def test_a_bulk_load_without_room_leaves_nothing(device: Device, plan: FaultPlan) -> None:
    engine = device.log.engine
    upload = engine.begin_upload("loaded", {"durability": "fsync"})
    records = [{"data": n} for n in range(5)]
    built = build_segment(records, topic_id=upload.topic_id, first_seq=1, ts=1_690_000_000_000)
    segments = stage(device.disk, upload.upload, [built])
    engine.shards[0].commit.log.end_file()
    device.below.arm(plan)
    with pytest.raises(DiskFull):
        engine.attach(upload.upload, segments)
    device.below.arm(NO_FAULTS)
    assert not device.below.exists(paths.topic_dir(upload.topic_id))
    assert device.below.list(paths.UPLOADS_DIR) == []


def test_a_bulk_load_without_a_descriptor_may_be_tried_again(device: Device) -> None:
    engine = device.log.engine
    upload = engine.begin_upload("loaded", {"durability": "fsync"})
    built = build_segment(
        [{"data": 1}], topic_id=upload.topic_id, first_seq=1, ts=1_690_000_000_000
    )
    segments = stage(device.disk, upload.upload, [built])
    device.below.arm(FaultPlan().fail(operation="open", path="topics/*", error=TooManyFiles))
    with pytest.raises(TooManyFiles):
        engine.attach(upload.upload, segments)
    assert engine.attach(upload.upload, segments).count == 1
