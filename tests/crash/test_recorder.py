"""The sweeps keep the disk before each call instead of cutting a run there: both are the same."""

import pytest
from tests.crash.scenarios import BY_NAME, tiny

from topics.errors import DiskFailed
from topics.testing.crash_recorder import Disks
from topics.testing.crash_run import CrashRun
from topics.testing.crash_sweep import record
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan, PowerCut

SEED = 5


def files_of(disk: HostileDisk, directory: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            found[path] = disk.read(path)
        except DiskFailed:  # a directory
            found |= files_of(disk, path)
    return found


@pytest.mark.crash
def test_a_kept_disk_is_the_disk_of_a_run_that_was_cut() -> None:
    config = tiny(1)
    operations = BY_NAME["snapshot and trim"].operations
    cut_points = record(config, operations)
    for call in range(0, len(cut_points) - 1, 9):
        hot = HostileDisk(FaultPlan().cut_power(at_call=call))
        with pytest.raises(PowerCut):
            CrashRun(config, disks=Disks(hot, HostileDisk())).run(operations)
        kept = cut_points[call].disks.hot
        assert files_of(kept.power_cut(SEED)) == files_of(hot.power_cut(SEED))
