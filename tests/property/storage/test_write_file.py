"""`write_file`: a cut at any call leaves the old content or the new one, whole."""

import pytest

from topics.storage.disk.data_dir import write_file
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan, PowerCut

OLD, NEW = b"old" * 700, b"new!" * 900
CALLS = 5
SEEDS = range(40)


@pytest.mark.parametrize("cut_at", range(CALLS + 1))
def test_a_file_has_its_old_content_or_its_new_one(cut_at: int) -> None:
    disk = HostileDisk()
    disk.make_dir("meta")
    write_file(disk, "meta/file", OLD)
    disk.arm(FaultPlan().cut_power(at_call=cut_at))
    try:
        write_file(disk, "meta/file", NEW)
        expected = [NEW]
    except PowerCut:
        expected = [OLD, NEW]
    for seed in SEEDS:
        assert disk.power_cut(seed).read("meta/file") in expected
