"""Cut the power, or kill the process, at every disk call of a partitioned topic's life.

Promise under test: a start finds all partitions or none, all of one config; an acknowledged write
is there once, also when it is repeated after the partitions grew.
"""

from collections.abc import Callable

import pytest
from tests.crash.partition_run import KILL, PartitionRun, check_cut, crashed
from tests.crash.scenarios import tiny

from topics.testing.crash_sweep import told

SEEDS = [0, 17, KILL]
Script = Callable[[PartitionRun], None]


def growth(run: PartitionRun) -> None:
    """Make, write, grow, write, with snapshots between."""
    run.put(3)
    run.append("a")
    run.put(4)
    run.append("b")
    run.work("snapshot")
    run.put(6)
    run.append("c")
    run.work("snapshot", "snapshot")
    run.append("d")


def lives(run: PartitionRun) -> None:
    """Make, change, delete and make again."""
    run.put(3)
    run.append("a")
    run.put(3, cap_bytes=10_000)
    run.work("snapshot")
    run.put(5, cap_bytes=20_000)
    run.append("b")
    run.drop()
    run.put(2)
    run.append("c")
    run.work("snapshot", "snapshot")
    run.drop()
    run.work("snapshot")


@pytest.mark.crash
@pytest.mark.parametrize("wal_shards", [1, 3])
@pytest.mark.parametrize("script", [growth, lives])
def test_a_crash_at_any_call_leaves_all_partitions_or_none(script: Script, wal_shards: int) -> None:
    config = tiny(wal_shards)
    run = PartitionRun(config, records=True)
    script(run)
    run.note_cut()
    assert len(run.cuts) >= 60, "the sweep has shrunk"
    for number, cut in enumerate(run.cuts):
        for seed in SEEDS:
            with told(f"cut point {number} of {len(run.cuts)}, seed {seed}"):
                check_cut(config, cut, seed)


@pytest.mark.crash
@pytest.mark.parametrize("script", [growth, lives])
def test_a_start_that_is_cut_anywhere_finishes_the_next_time(script: Script) -> None:
    config = tiny(3)
    run = PartitionRun(config, records=True)
    script(run)
    starts = 0
    for number, cut in enumerate(run.cuts[10::12]):
        start = PartitionRun(config, disks=crashed(cut, 17), now_ms=cut.now_ms, records=True)
        for inner_number, inner in enumerate(start.cuts):
            starts += 1
            with told(f"cut point {number}, then call {inner_number} of the start"):
                check_cut(config, inner._replace(told=cut.told), KILL if starts % 2 else 17)
    assert starts >= 40, "the sweep has shrunk"
