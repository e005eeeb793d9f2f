"""Cut the power, or kill the process, at every disk call of a compaction of the cold tier.

Promise under test: every record that was there is there, no deleted one comes back, and whatever
was cut can be done again.
"""

import pytest
from tests.crash.scenarios import tiny

from topics.embedded import Log
from topics.storage.disk.disk import Disk
from topics.testing.crash_observe import Violation
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.crash_sweep import KILL, told
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

SEEDS = [0, 1, 4, 7, 9, KILL]
RECORDS = 18
DELETED = (0, 3)  # the first record of a segment moves the others, the last one keeps its frame


def open_log(hot: Disk, cold: Disk) -> Log:
    return Log(tiny(1), disk=hot, cold_disk=cold, clock=ManualClock(), background=False)


def compact(log: Log) -> None:
    """Rewrite one segment a call: two threads would take turns as they like."""
    topic = log.engine.topic("t")
    while log.engine.compact(topic, min_dead_ratio=0.1, max_segments=1).remaining:
        pass


def work(log: Log) -> None:
    log.create("t", durability="fsync")
    for n in range(RECORDS):
        log.append("t", [{"data": n, "tag": f"r:{n % 4}:{n}"}])
    log.checkpoint()
    log.engine.relocate()
    for residue in DELETED:
        log.delete("t", match=["tag", "Glob", f"r:{residue}:*"])


def check(log: Log) -> None:
    found = [record.data for record in log.diff("t", limit=1000).records]
    if found != [n for n in range(RECORDS) if n % 4 not in DELETED]:
        raise Violation(f"found {found}")


@pytest.mark.crash
def test_a_compaction_may_be_cut_at_every_call() -> None:
    disks = Disks(HostileDisk(), HostileDisk())
    cuts: list[Disks] = []
    recording = False

    def keep() -> None:
        if recording:
            cuts.append(disks.copy())

    hooks = Hooks(keep, lambda: None)
    log = open_log(RecordingDisk(disks.hot, hooks), RecordingDisk(disks.cold, hooks))
    work(log)
    recording = True
    compact(log)
    log.checkpoint()
    log.engine.relocate()
    log.checkpoint()
    keep()
    assert len(cuts) >= 90, "the sweep has shrunk"
    for seed in SEEDS:
        for number, cut in enumerate(cuts):
            with told(f"call {number} of {len(cuts)}, seed {seed}"):
                crashed = cut.kill() if seed == KILL else cut.power_cut(seed)
                again = open_log(*crashed)
                check(again)
                again.engine.relocate()
                compact(again)
                check(again)
                check(open_log(*crashed.power_cut(0)))
