"""A flipped bit in bytes at rest: the exact data, or an error; never other data, never silence.

One bit of 160 in an `.idx` has no second witness: the `deleted` flag, which must be changeable in
place without a checksum (docs/internals/formats/segment.md). `topics verify` compares it with the
flag in `.data`.
"""

from collections import Counter

import pytest
from tests.crash.scenarios import tiny

from topics.errors import CorruptData, UnknownFormat
from topics.kernel.layout import FLAG_DELETED, IDX_ENTRY_BYTES
from topics.storage.disk import paths
from topics.storage.segments.store import IDX_FLAGS_OFFSET
from topics.storage.wal.log import Position
from topics.storage.wal.replay import replay_shard
from topics.testing.crash_observe import Observed, observe_all
from topics.testing.crash_recorder import Disks
from topics.testing.crash_run import CrashRun
from topics.testing.manual_clock import ManualClock
from topics.testing.workload import Append, Configure, Delete, Operation, Work

CONFIG = tiny(1)
TOPIC_DIR = paths.topic_dir(1)
OPERATIONS: list[Operation] = [
    Configure("sure", {"durability": "fsync"}),
    Append("sure", 1, 2, tag="c"),
    Append("sure", 3, 5, tag="a:1"),
    Work("snapshot"),
    Work("maintain"),
    Append("sure", 10, 3, tag="b", pad=30),
    Delete("sure", tag="b"),
    Work("snapshot"),
    Append("sure", 20, 2),
    Append("sure", 25, 2),
]


def written(*, clean: bool) -> tuple[Disks, dict[str, Observed]]:
    run = CrashRun(CONFIG)
    run.run(OPERATIONS)
    if clean:
        run.restart("clean")
        run.log.close()
        run = CrashRun(CONFIG, disks=run.disks.copy())
        found = observe_all(run.log)
        run.log.close()
        return run.disks.copy(), found
    return run.disks.copy(), observe_all(run.log)


def start_and_read(disks: Disks) -> dict[str, Observed] | None:
    """Return what can be read, None where an error says that something is wrong."""
    try:
        return observe_all(CrashRun(CONFIG, disks=disks, clock=ManualClock()).log)
    except (CorruptData, UnknownFormat):
        return None


def flip(disks: Disks, path: str, bit: int) -> Disks:
    flipped = disks.copy()
    flipped.hot.flip_bit(path, bit)
    return flipped


def flipped_outcomes(
    disks: Disks, wanted: dict[str, Observed], path: str, bits: range
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for bit in bits:
        found = start_and_read(flip(disks, path, bit))
        assert found in (None, wanted), f"bit {bit} of {path} was believed"
        outcomes["refused" if found is None else "whole"] += 1
    return outcomes


@pytest.mark.crash
@pytest.mark.parametrize("first_seq", [1, 5])
def test_a_sealed_data_file_is_whole_or_refused(first_seq: int) -> None:
    disks, wanted = written(clean=False)
    path = paths.segment_data_path(1, first_seq)
    bits = range(0, disks.hot.size(path) * 8, 7)
    assert flipped_outcomes(disks, wanted, path, bits)["refused"] > len(bits) // 2


@pytest.mark.crash
@pytest.mark.parametrize("first_seq", [1, 5])
def test_an_index_is_whole_or_refused(first_seq: int) -> None:
    disks, wanted = written(clean=False)
    path = paths.segment_idx_path(1, first_seq)
    bits = range(disks.hot.size(path) * 8)
    deleted_bit = IDX_FLAGS_OFFSET * 8 + FLAG_DELETED.bit_length() - 1
    refused = 0
    for bit in bits:
        if bit % (IDX_ENTRY_BYTES * 8) != deleted_bit:
            refused += flipped_outcomes(disks, wanted, path, range(bit, bit + 1))["refused"]
    assert refused > len(bits) // 2


@pytest.mark.crash
def test_a_damaged_snapshot_is_made_good_by_the_one_before_it() -> None:
    disks, wanted = written(clean=False)
    newest = max(n for n in disks.hot.list(paths.META_DIR) if n.startswith("snapshot"))
    path = f"{paths.META_DIR}/{newest}"
    bits = range(0, disks.hot.size(path) * 8, 5)
    assert flipped_outcomes(disks, wanted, path, bits)["whole"] > len(bits) - 12


@pytest.mark.crash
def test_a_tag_run_is_built_again() -> None:
    disks, wanted = written(clean=False)
    run = next(n for n in disks.hot.list(TOPIC_DIR) if n.startswith("tags-"))
    path = f"{TOPIC_DIR}/{run}"
    bits = range(0, disks.hot.size(path) * 8, 3)
    assert flipped_outcomes(disks, wanted, path, bits) == {"whole": len(bits)}


@pytest.mark.crash
def test_synced_frames_in_the_middle_of_the_wal_are_whole_or_refused() -> None:
    disks, wanted = written(clean=False)
    path = f"{paths.WAL_DIR}/{paths.wal_file_name(1)}"
    proven = replay_shard(disks.copy().hot, paths.WAL_DIR, start=Position(1, 0)).synced.offset
    assert proven > 1_000
    outcomes = flipped_outcomes(disks, wanted, path, range(0, proven * 8, 13))
    assert outcomes["refused"] > 100


@pytest.mark.crash
def test_a_flip_in_the_unproven_tail_of_the_wal_is_a_torn_tail() -> None:
    disks, wanted = written(clean=False)
    path = f"{paths.WAL_DIR}/{paths.wal_file_name(1)}"
    replay = replay_shard(disks.copy().hot, paths.WAL_DIR, start=Position(1, 0))
    for bit in range(replay.synced.offset * 8, replay.end.offset * 8, 5):
        found = start_and_read(flip(disks, path, bit))
        if found is not None:
            assert found["sure"].records.items() <= wanted["sure"].records.items()


@pytest.mark.crash
def test_after_a_clean_stop_the_whole_wal_is_proven() -> None:
    disks, wanted = written(clean=True)
    for number in [n for n in disks.hot.list(paths.WAL_DIR) if n.startswith("wal-")]:
        path = f"{paths.WAL_DIR}/{number}"
        used = len(disks.hot.read(path).rstrip(b"\0"))
        flipped_outcomes(disks, wanted, path, range(0, used * 8, 11))
