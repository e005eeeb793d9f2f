"""Where a log ends, over random logs, cuts and flips.

A torn tail is cut, damage of synced bytes is an error.
"""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import CorruptData
from topics.kernel import FLAG_BATCH_OPEN
from topics.limits import KIB
from topics.storage.disk import paths
from topics.storage.wal.frame import (
    FrameType,
    Hole,
    SyncMark,
    decode_control,
    encode_control,
)
from topics.storage.wal.log import Position, WalLog, list_wal_files
from topics.storage.wal.replay import ReplayedFile, replay_shard, seal_tail
from topics.testing.hostile_disk import HostileDisk

START = Position(1, 0)
BATCHES = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from((0, 40, 900)), st.booleans()),
    min_size=1,
    max_size=14,
)
"""Frames of a batch, padding of each frame, and whether a sync follows."""


class Written(NamedTuple):
    """A log, the number that each batch carries, and how many of them are synced."""

    disk: HostileDisk
    batches: list[int]
    synced_batches: int


def write_log(batches: list[tuple[int, int, bool]]) -> Written:
    disk = HostileDisk()
    disk.make_dir("wal")
    log = WalLog(disk, "wal", file_bytes=4 * KIB, next_frame=1)
    synced_batches = 0
    for number, (count, padding, syncs) in enumerate(batches):
        frames = [
            encode_control(
                Hole(number, i, "x" * padding), flags=0 if i == count - 1 else FLAG_BATCH_OPEN
            )
            for i in range(count)
        ]
        log.write(frames, frames=count, size=sum(map(len, frames)))
        if syncs:
            point = log.begin_sync()
            point.sync()
            log.finish_sync(point)
            synced_batches = number + 1
    return Written(disk, list(range(len(batches))), synced_batches)


def batches_in(disk: HostileDisk) -> list[int]:
    """Return the numbers of the batches that a replay gives, whole ones only."""
    replay = replay_shard(disk, "wal", start=START)
    bodies = [decode_control(f.buffer, run[4]) for f in replay.files for run in f.runs]
    found = dict.fromkeys(body.first_seq for body in bodies if isinstance(body, Hole))
    return list(found)


@given(batches=BATCHES)
def test_a_whole_log_comes_back(batches: list[tuple[int, int, bool]]) -> None:
    written = write_log(batches)
    assert batches_in(written.disk) == written.batches
    replay = replay_shard(written.disk, "wal", start=START)
    assert replay.next_frame == 1 + sum(run[3] for file in replay.files for run in file.runs)


@given(batches=BATCHES, seed=st.integers(0, 50))
def test_a_power_cut_leaves_a_prefix_with_all_that_was_synced(
    batches: list[tuple[int, int, bool]], seed: int
) -> None:
    written = write_log(batches)
    disk = written.disk.power_cut(seed)
    found = batches_in(disk)
    assert found == written.batches[: len(found)]
    assert len(found) >= written.synced_batches


@given(batches=BATCHES, seed=st.integers(0, 50))
def test_sealing_a_cut_log_is_durable_and_may_be_done_again(
    batches: list[tuple[int, int, bool]], seed: int
) -> None:
    disk = write_log(batches).disk.power_cut(seed)
    replay = replay_shard(disk, "wal", start=START)
    found = batches_in(disk)
    seal_tail(disk, replay)
    content = {name: disk.read(f"wal/{name}") for name in disk.list("wal") if "log" in name}
    again = disk.power_cut(0)
    assert batches_in(again) == found
    assert replay_shard(again, "wal", start=START).end == replay.end
    seal_tail(again, replay_shard(again, "wal", start=START))
    assert {n: again.read(f"wal/{n}") for n in again.list("wal") if "log" in n} == content


@given(batches=BATCHES, seed=st.integers(0, 50))
def test_what_is_written_behind_a_sealed_cut_is_found_again(
    batches: list[tuple[int, int, bool]], seed: int
) -> None:
    disk = write_log(batches).disk.power_cut(seed)
    replay = replay_shard(disk, "wal", start=START)
    found = batches_in(disk)
    seal_tail(disk, replay)
    log = WalLog(disk, "wal", file_bytes=4 * KIB, next_frame=replay.next_frame)
    frame = encode_control(Hole(99, 0, ""))
    log.write([frame], frames=1, size=len(frame))
    assert batches_in(disk) == [*found, 99]


def test_a_torn_frame_is_cut_off_before_the_log_goes_on() -> None:
    disk = write_log([(1, 0, False), (1, 0, False)]).disk
    torn = replay_shard(disk, "wal", start=START).files[0].runs[1]
    disk.flip_bit("wal/" + paths.wal_file_name(1), 8 * (torn[5] - 1))
    replay = replay_shard(disk, "wal", start=START)
    seal_tail(disk, replay)
    assert disk.size("wal/" + paths.wal_file_name(1)) == torn[4]
    log = WalLog(disk, "wal", file_bytes=4 * KIB, next_frame=replay.next_frame)
    frame = encode_control(Hole(99, 0, ""))
    log.write([frame], frames=1, size=len(frame))
    assert batches_in(disk) == [0, 99]


@given(batches=BATCHES, choose=st.data())
def test_a_flipped_bit_is_an_error_if_a_mark_proves_it_and_else_cuts_the_log(
    batches: list[tuple[int, int, bool]], choose: st.DataObject
) -> None:
    written = write_log(batches)
    disk = written.disk
    before = replay_shard(disk, "wal", start=START)
    file = choose.draw(st.sampled_from([f for f in before.files if f.runs]))
    run = choose.draw(st.sampled_from(file.runs))
    offset = choose.draw(st.integers(run[4], run[5] - 1))
    disk.flip_bit(
        f"wal/{paths.wal_file_name(file.number)}", offset * 8 + choose.draw(st.integers(0, 7))
    )
    if behind_is_a_mark(before.files, Position(file.number, run[4])):
        with pytest.raises(CorruptData, match=paths.wal_file_name(file.number)) as damage:
            replay_shard(disk, "wal", start=START)
        assert "is damaged at offset" in str(damage.value)
    else:
        found = batches_in(disk)
        assert found == written.batches[: len(found)]
        assert len(found) < len(written.batches) or run[0] == FrameType.SYNC_MARK


def behind_is_a_mark(files: list[ReplayedFile], damaged: Position) -> bool:
    """Tell whether a whole SyncMark behind the damage says that the damaged frame was synced."""
    for file in files:
        for run in file.runs:
            if Position(file.number, run[4]) <= damaged:
                continue
            body = decode_control(file.buffer, run[4])
            if isinstance(body, SyncMark) and Position(body.file, body.offset) > damaged:
                return True
    return False


def test_a_missing_first_file_is_an_error() -> None:
    written = write_log([(1, 900, False)] * 12)
    first, *_ = list_wal_files(written.disk, "wal")
    written.disk.unlink(f"wal/{paths.wal_file_name(first)}")
    with pytest.raises(CorruptData, match="is missing: restore a backup or run topics repair"):
        replay_shard(written.disk, "wal", start=START)


def test_a_missing_file_in_the_middle_is_an_error_where_marks_follow() -> None:
    written = write_log([(1, 900, True)] * 16)
    _, second, *_ = list_wal_files(written.disk, "wal")
    written.disk.unlink(f"wal/{paths.wal_file_name(second)}")
    with pytest.raises(CorruptData, match="is damaged"):
        replay_shard(written.disk, "wal", start=START)


def test_a_missing_last_file_that_current_names_is_an_error() -> None:
    written = write_log([(1, 900, True)] * 16)
    *_, last = list_wal_files(written.disk, "wal")
    written.disk.unlink(f"wal/{paths.wal_file_name(last)}")
    with pytest.raises(CorruptData, match=f"{paths.wal_file_name(last)} is missing"):
        replay_shard(written.disk, "wal", start=START)


def test_an_unsynced_frame_before_whole_ones_is_torn_only_if_the_power_was_cut() -> None:
    written = write_log([(1, 200, False)] * 4)
    second = replay_shard(written.disk, "wal", start=START).files[0].runs[0]
    written.disk.flip_bit(f"wal/{paths.wal_file_name(1)}", (second[4] + 60) * 8)
    replay_shard(written.disk, "wal", start=START)
    with pytest.raises(CorruptData, match="is damaged"):
        replay_shard(written.disk, "wal", start=START, cache_intact=True)
