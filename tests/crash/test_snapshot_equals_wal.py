"""Snapshot + WAL = WAL alone, as long as the WAL is whole (oracle 10)."""

import pytest
from tests.crash.scenarios import BY_NAME, tiny

from topics.storage.disk import paths
from topics.storage.snapshots.snapshot import list_snapshots
from topics.storage.wal.log import list_wal_files
from topics.testing.crash_observe import observe_all
from topics.testing.crash_run import CutPoint
from topics.testing.crash_sweep import record, start

NAMES = ["checkpoint and seal", "delete by tag and by seq", "config change", "cap and time to live"]


def wal_is_whole(cut: CutPoint) -> bool:
    return list_wal_files(cut.disks.hot, paths.WAL_DIR)[:1] == [1]


@pytest.mark.crash
@pytest.mark.parametrize("name", NAMES)
def test_a_start_without_snapshots_finds_the_same(name: str) -> None:
    config = tiny(1)
    compared = 0
    for cut in record(config, BY_NAME[name].operations)[20::3]:
        numbers = list_snapshots(cut.disks.hot)
        if not numbers or not wal_is_whole(cut):
            continue
        without = cut.disks.kill()
        for number in numbers:
            without.hot.unlink(paths.snapshot_path(number))
        compared += 1
        wanted = observe_all(start(config, cut.disks.kill(), cut.now_ms).log)
        assert observe_all(start(config, without, cut.now_ms).log) == wanted
    assert compared >= 15, "the comparison has shrunk"
