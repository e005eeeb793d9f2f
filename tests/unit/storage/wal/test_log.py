"""One WAL shard as files: rotation, large batches, SyncMarks, full and failing disks."""

from collections.abc import Sequence

import pytest

from topics.errors import DiskFailed, DiskFull, ShardReadOnly
from topics.limits import KIB
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer
from topics.storage.wal.frame import Hole, SyncMark, TopicDelete, decode_control, encode_control
from topics.storage.wal.log import BLOCK_BYTES, RECYCLED, Position, WalLog, list_wal_files
from topics.storage.wal.replay import ShardReplay, replay_shard
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan
from topics.testing.hostile_file import HostileFile

FILE_BYTES = 4 * KIB
START = Position(1, 0)


def open_log(disk: HostileDisk, *, next_frame: int = 1) -> WalLog:
    disk.make_dir("wal")
    return WalLog(disk, "wal", file_bytes=FILE_BYTES, next_frame=next_frame)


def frame_of(size: int) -> bytes:
    """Return one whole frame of about this size."""
    return encode_control(Hole(1, 2, "x" * max(0, size - 60)))


def write(log: WalLog, *frames: bytes) -> None:
    log.write(list(frames), frames=len(frames), size=sum(map(len, frames)))


def sync(log: WalLog) -> None:
    point = log.begin_sync()
    point.sync()
    log.finish_sync(point)


def leaves_file(log: WalLog) -> bool:
    """Tell whether the log should go over to its spare now."""
    return log.has_better_spare


def marks_of(replay: ShardReplay) -> list[Position]:
    bodies = [decode_control(f.buffer, run[4]) for f in replay.files for run in f.runs]
    return [Position(b.file, b.offset) for b in bodies if isinstance(b, SyncMark)]


@pytest.fixture
def disk() -> HostileDisk:
    return HostileDisk()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where each write to a file began, and where it ended."""
    places: list[tuple[int, int]] = []
    write_at = HostileFile.write_at

    def note(file: HostileFile, offset: int, buffers: Sequence[Buffer]) -> None:
        places.append((offset, offset + sum(map(len, buffers))))
        write_at(file, offset, buffers)

    monkeypatch.setattr(HostileFile, "write_at", note)
    return places


def test_a_new_log_has_a_preallocated_file_and_current_names_it(disk: HostileDisk) -> None:
    open_log(disk)
    assert disk.size("wal/" + paths.wal_file_name(1)) == FILE_BYTES
    assert disk.read("wal/CURRENT").decode() == paths.wal_file_name(1) + "\n"


def test_what_does_not_fit_goes_to_the_next_file_named_by_its_first_frame(
    disk: HostileDisk,
) -> None:
    log = open_log(disk)
    write(log, frame_of(1_500), frame_of(1_500))
    write(log, frame_of(1_500))
    assert list_wal_files(disk, "wal") == [1, 3]
    assert log.position.file == 3
    assert log.counters.rotations == 1
    assert disk.read("wal/CURRENT").decode() == paths.wal_file_name(3) + "\n"


def test_a_batch_never_spans_two_files_and_a_large_one_gets_a_file_of_its_own(
    disk: HostileDisk,
) -> None:
    log = open_log(disk)
    write(log, frame_of(100))
    large = frame_of(3 * FILE_BYTES)
    write(log, large)
    assert disk.size("wal/" + paths.wal_file_name(2)) == len(large)
    write(log, frame_of(100))
    assert list_wal_files(disk, "wal") == [1, 2, 3]
    replay = replay_shard(disk, "wal", start=START)
    assert [len(file.runs) for file in replay.files] == [1, 1, 1]


def test_a_large_batch_takes_an_empty_preallocated_file_and_makes_it_longer(
    disk: HostileDisk,
) -> None:
    log = open_log(disk)
    write(log, frame_of(2 * FILE_BYTES))
    assert list_wal_files(disk, "wal") == [1]
    assert len(replay_shard(disk, "wal", start=START).files[0].runs) == 1


def test_the_first_write_to_a_block_writes_all_of_it_and_no_other_writes_more_than_its_own(
    disk: HostileDisk, written: list[tuple[int, int]]
) -> None:
    disk.make_dir("wal")
    log = WalLog(disk, "wal", file_bytes=2 * BLOCK_BYTES + 1_000, next_frame=1)
    written.clear()
    frames = [bytes([n]) * size for n, size in enumerate((1_000, 1_000, 3_000, 3_192, 500, 500), 1)]
    for frame in frames:
        write(log, frame)
    first, second, end = BLOCK_BYTES, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 1_000
    assert written == [
        (0, first),
        (1_000, 2_000),
        (2_000, second),
        (5_000, second),
        (second, end),
        (second + 500, end),
    ]
    assert disk.read("wal/" + paths.wal_file_name(1)) == b"".join(frames)


def test_a_file_that_is_ended_gets_no_zeros_behind_its_end(
    disk: HostileDisk, written: list[tuple[int, int]]
) -> None:
    log = open_log(disk)
    log.end_file()
    written.clear()
    write(log, b"x" * 100)
    assert written == [(0, 100)]


def test_rotation_takes_the_spare_file(disk: HostileDisk) -> None:
    log = open_log(disk)
    log.prepare_spare()
    assert disk.exists("wal/" + paths.SPARE_WAL)
    write(log, frame_of(3_000))
    write(log, frame_of(3_000))
    assert not disk.exists("wal/" + paths.SPARE_WAL)
    assert disk.size("wal/" + paths.wal_file_name(2)) == FILE_BYTES


def test_the_spare_of_a_log_that_nobody_uses_is_only_reserved(disk: HostileDisk) -> None:
    log = open_log(disk)
    disk.arm(FaultPlan().fail(operation="write_at", forever=True))
    log.prepare_spare()
    assert disk.read("wal/" + paths.SPARE_WAL) == bytes(FILE_BYTES)
    assert not leaves_file(log)


@pytest.mark.parametrize("reserved_before", [True, False])
def test_the_spare_of_a_log_in_use_is_written_and_better_than_a_file_that_is_not(
    disk: HostileDisk, *, reserved_before: bool
) -> None:
    log = open_log(disk)
    if reserved_before:
        log.prepare_spare()
    write(log, frame_of(FILE_BYTES // 8))
    log.prepare_spare()
    assert leaves_file(log)
    assert disk.read("wal/" + paths.SPARE_WAL) == bytes(FILE_BYTES)
    log.end_file()
    assert not leaves_file(log)
    write(log, frame_of(FILE_BYTES // 8))
    assert list_wal_files(disk, "wal") == [1, 2]
    log.prepare_spare()
    assert not leaves_file(log), "the file is as good as its spare"
    sync(log)
    cut = disk.power_cut(0)
    assert [len(f.runs) for f in replay_shard(cut, "wal", start=START).files] == [1, 1]


def test_a_spare_of_a_flood_is_as_empty_as_any_but_not_written_before_the_flood_is_over(
    disk: HostileDisk,
) -> None:
    log = open_log(disk)
    for _ in range(3):
        write(log, frame_of(3_000))
    log.trim(Position(3, 0))
    log.prepare_spare(in_flood=True)
    spare = "wal/" + paths.SPARE_WAL
    assert disk.read(spare) == bytes(FILE_BYTES)
    disk.arm(FaultPlan().fail(operation="write_at", forever=True))
    log.prepare_spare(in_flood=True)
    disk.arm(FaultPlan())
    assert disk.exists(spare)
    write(log, frame_of(1_500))
    assert not disk.exists(spare)
    log.prepare_spare()
    assert leaves_file(log), "what was cleared has slow syncs"
    write(log, frame_of(300))
    sync(log)
    cut = disk.power_cut(0)
    assert [len(f.runs) for f in replay_shard(cut, "wal", start=Position(3, 0)).files] == [1, 2]


def test_a_spare_that_nobody_has_used_is_only_reserved_in_a_flood(disk: HostileDisk) -> None:
    log = open_log(disk)
    write(log, frame_of(FILE_BYTES // 8))
    disk.arm(FaultPlan().fail(operation="write_at", forever=True))
    log.prepare_spare(in_flood=True)
    assert disk.read("wal/" + paths.SPARE_WAL) == bytes(FILE_BYTES)
    assert not leaves_file(log)


@pytest.mark.parametrize("operation", ["rename", "sync_dir", "write_at", "sync_data"])
def test_a_file_that_cannot_be_cleared_is_no_spare_and_no_failure(
    disk: HostileDisk, operation: str
) -> None:
    log = open_log(disk)
    for _ in range(3):
        write(log, frame_of(3_000))
    log.trim(Position(3, 0))
    disk.arm(FaultPlan().fail(operation=operation))  # type: ignore[arg-type]
    log.prepare_spare(in_flood=True)
    assert not disk.exists("wal/" + paths.SPARE_WAL)
    assert not disk.exists("wal/preparing.tmp")
    write(log, frame_of(3_000))
    assert log.failed is None


def test_a_file_that_is_half_full_is_not_left_for_its_spare(disk: HostileDisk) -> None:
    log = open_log(disk)
    write(log, frame_of(FILE_BYTES // 2 + 100))
    log.prepare_spare()
    assert not leaves_file(log)


@pytest.mark.parametrize("operation", ["rename", "sync_dir", "write_at", "sync_data"])
@pytest.mark.parametrize("error", [DiskFailed, DiskFull])
def test_a_spare_that_cannot_be_written_is_no_spare_and_no_failure(
    disk: HostileDisk, operation: str, error: type[DiskFailed]
) -> None:
    log = open_log(disk)
    log.prepare_spare()
    write(log, frame_of(FILE_BYTES // 8))
    disk.arm(FaultPlan().fail(operation=operation, error=error))  # type: ignore[arg-type]
    log.prepare_spare()
    assert not leaves_file(log)
    assert not disk.exists("wal/preparing.tmp")
    write(log, frame_of(FILE_BYTES - 300))
    assert log.failed is None
    assert list_wal_files(disk, "wal") == [1, 2]


def test_a_rotation_while_the_spare_is_being_written_makes_a_file_itself(
    disk: HostileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk)
    log.prepare_spare()
    write(log, frame_of(FILE_BYTES // 8))
    write_zeros = log._write_zeros

    def rotate_meanwhile(path: str) -> None:
        assert not disk.exists("wal/" + paths.SPARE_WAL)
        write(log, frame_of(FILE_BYTES - 300))
        write_zeros(path)

    monkeypatch.setattr(log, "_write_zeros", rotate_meanwhile)
    log.prepare_spare()
    assert log.failed is None
    assert list_wal_files(disk, "wal") == [1, 2]
    assert disk.read("wal/" + paths.SPARE_WAL) == bytes(FILE_BYTES)


@pytest.mark.parametrize("left", [*RECYCLED, paths.SPARE_WAL])
@pytest.mark.parametrize("size", [FILE_BYTES // 2, FILE_BYTES * 2])
def test_a_file_from_when_files_had_another_size_is_not_used(
    disk: HostileDisk, left: str, size: int
) -> None:
    disk.make_dir("wal")
    disk.create(f"wal/{left}").write_at(0, [frame_of(100) * (size // 100)])
    log = open_log(disk)
    write(log, frame_of(FILE_BYTES // 8))
    for _ in range(2):
        log.prepare_spare()
        assert disk.read("wal/" + paths.SPARE_WAL) == bytes(FILE_BYTES)
        write(log, frame_of(FILE_BYTES - 300))
    replay = replay_shard(disk, "wal", start=START, cache_intact=True)
    assert [len(file.runs) for file in replay.files] == [1, 1, 1]


def test_a_spare_that_is_taken_as_soon_as_it_is_there_is_known_to_be_written(
    disk: HostileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk)
    write(log, frame_of(FILE_BYTES // 8))
    rename = disk.rename

    def rotate_after(source: str, target: str) -> None:
        rename(source, target)
        if target.endswith(paths.SPARE_WAL):
            write(log, frame_of(FILE_BYTES - 300))

    monkeypatch.setattr(disk, "rename", rotate_after)
    log.prepare_spare()
    assert list_wal_files(disk, "wal") == [1, 2]
    assert not disk.exists("wal/" + paths.SPARE_WAL)
    assert not leaves_file(log), "there is nothing to leave it for"


def test_a_log_that_nobody_writes_to_stays_in_its_file(disk: HostileDisk) -> None:
    log = open_log(disk)
    for _ in range(3):
        write(log, frame_of(3_000))
    log.trim(Position(3, 0))
    log = open_log(disk, next_frame=4)
    log.prepare_spare()
    assert not leaves_file(log)


def test_the_first_write_after_a_sync_says_how_far_it_reached(disk: HostileDisk) -> None:
    log = open_log(disk)
    frame = encode_control(TopicDelete())
    write(log, frame)
    sync(log)
    write(log, frame)
    write(log, frame)
    replay = replay_shard(disk, "wal", start=START)
    assert marks_of(replay) == [Position(1, len(frame))]
    assert replay.synced == Position(1, len(frame))
    assert replay.next_frame == 5


def test_without_a_sync_there_is_no_mark(disk: HostileDisk) -> None:
    log = open_log(disk)
    for _ in range(3):
        write(log, encode_control(TopicDelete()))
    assert marks_of(replay_shard(disk, "wal", start=START)) == []


def test_a_sync_covers_the_file_before_the_rotation(disk: HostileDisk) -> None:
    log = open_log(disk)
    write(log, frame_of(3_000))
    write(log, frame_of(3_000))
    sync(log)
    cut = disk.power_cut(0)
    assert [len(f.runs) for f in replay_shard(cut, "wal", start=START).files] == [1, 1]


def test_a_full_disk_at_rotation_is_not_final(disk: HostileDisk) -> None:
    log = open_log(disk)
    write(log, frame_of(3_000))
    sync(log)
    disk.arm(FaultPlan().fail(operation="allocate", error=DiskFull))
    with pytest.raises(DiskFull):
        write(log, frame_of(3_000))
    assert log.failed is None
    write(log, frame_of(3_000))
    replay = replay_shard(disk, "wal", start=START)
    assert sum(len(f.runs) for f in replay.files) == 3
    assert len(marks_of(replay)) == 1, "the mark of the sync before came with the second try"


@pytest.mark.parametrize("operation", ["create", "allocate", "rename", "sync_data", "sync_dir"])
def test_any_other_failure_at_rotation_is_final(disk: HostileDisk, operation: str) -> None:
    log = open_log(disk)
    write(log, frame_of(3_000))
    disk.arm(FaultPlan().fail(operation=operation))  # type: ignore[arg-type]
    with pytest.raises(DiskFailed):
        write(log, frame_of(3_000))
    with pytest.raises(ShardReadOnly, match="takes no more writes: check the disk"):
        write(log, frame_of(10))


def test_a_failed_write_is_final_and_told_as_the_reason(disk: HostileDisk) -> None:
    log = open_log(disk)
    disk.arm(FaultPlan().fail(operation="write_at"))
    with pytest.raises(DiskFailed):
        write(log, frame_of(10))
    with pytest.raises(ShardReadOnly, match="Input/output error"):
        log.check_writable()


def test_after_a_failure_no_start_trusts_the_page_cache(disk: HostileDisk) -> None:
    disk.make_dir("meta")
    disk.create(paths.RUNNING)
    open_log(disk).fail(DiskFailed("input/output error"))
    assert not disk.exists(paths.RUNNING)


def test_trim_removes_only_files_that_end_before_the_place(disk: HostileDisk) -> None:
    log = open_log(disk)
    for _ in range(3):
        write(log, frame_of(3_000))
    log.trim(Position(2, 0))
    assert list_wal_files(disk, "wal") == [2, 3]
    log.trim(Position(3, 5_000))
    assert list_wal_files(disk, "wal") == [3], "the active file always stays"


def test_some_of_the_files_of_a_trim_become_spares_and_the_others_go(disk: HostileDisk) -> None:
    log = open_log(disk)
    for _ in range(8):
        write(log, frame_of(3_000))
    log.trim(Position(8, 0))

    def recycled() -> list[str]:
        return [name for name in disk.list("wal") if name.startswith("recycled")]

    for left in (2, 1, 0):
        assert len(recycled()) == left
        log.prepare_spare()
        assert disk.read("wal/" + paths.SPARE_WAL) == bytes(FILE_BYTES)
        disk.unlink("wal/" + paths.SPARE_WAL)
