"""Cut the power, or kill the process, at every disk call of a bulk load; then start again.

Promise under test: a loaded topic is there whole or not at all, and nothing else of it is left.
"""

from collections.abc import Callable

import pytest
from tests.crash.scenarios import tiny

from topics.embedded import Log
from topics.errors import DiskFailed, DiskFull, TopicsError
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk
from topics.testing.built_segments import build_segment, stage
from topics.testing.crash_observe import Violation
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.crash_sweep import KILL, told
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan
from topics.testing.manual_clock import ManualClock

SEEDS = [0, 1, 5, 9, KILL]
SIZES = (4, 4, 2)
RECORDS = sum(SIZES)


def open_log(hot: Disk, cold: Disk, *, wal_shards: int) -> Log:
    clock = ManualClock()
    return Log(tiny(wal_shards), disk=hot, cold_disk=cold, clock=clock, background=False)


def load(log: Log, disk: Disk, *, ts: int = 1_690_000_000_000) -> None:
    upload = log.engine.begin_upload("loaded", {"durability": "fsync"})
    built, seq = [], 1
    for size in SIZES:
        records = [{"data": seq + i, "tag": "t"} for i in range(size)]
        built.append(build_segment(records, topic_id=upload.topic_id, first_seq=seq, ts=ts))
        seq += size
    log.engine.attach(upload.upload, stage(disk, upload.upload, built))


def work(log: Log, disk: Disk) -> None:
    """Load a topic between other topics, and go on with it."""
    log.create("before", durability="fsync")
    log.append("before", [{"data": 1}])
    load(log, disk)
    log.create("after", durability="fsync")
    log.append("loaded", [{"data": RECORDS + 1}])
    log.checkpoint()
    log.engine.relocate()
    log.checkpoint()


def check(log: Log, disk: Disk) -> bool:
    """Look for half a topic and for strays; tell whether the topic is there."""
    names = log.topics()
    there = "loaded" in names
    if there:
        found = [record.data for record in log.diff("loaded", limit=1000).records]
        if found not in (list(range(1, RECORDS + 1)), list(range(1, RECORDS + 2))):
            raise Violation(f"half a topic: {found}")
    if disk.list(paths.UPLOADS_DIR):
        raise Violation(f"a start left {disk.list(paths.UPLOADS_DIR)}")
    owners = {int(name, 16) for name in disk.list(paths.TOPICS_DIR)}
    strays = owners - {log.state(name).epoch for name in names}
    if strays:
        raise Violation(f"a start left the files of topics {strays}")
    return there


def record(disks: Disks, run: Callable[[Disk, Disk], object]) -> list[Disks]:
    """Run on disks that are kept as they were before every call, and as they are at the end."""
    cuts: list[Disks] = []
    hooks = Hooks(lambda: cuts.append(disks.copy()), lambda: None)
    run(RecordingDisk(disks.hot, hooks), RecordingDisk(disks.cold, hooks))
    cuts.append(disks.copy())
    return cuts


@pytest.mark.crash
@pytest.mark.parametrize("wal_shards", [1, 2])
def test_a_load_may_be_cut_at_every_call(wal_shards: int) -> None:
    cuts = record(
        Disks(HostileDisk(), HostileDisk()),
        lambda hot, cold: work(open_log(hot, cold, wal_shards=wal_shards), hot),
    )
    assert len(cuts) >= 90, "the sweep has shrunk"
    for seed in SEEDS:
        was_there = False
        for number, cut in enumerate(cuts):
            with told(f"call {number} of {len(cuts)}, seed {seed}"):
                crashed = cut.kill() if seed == KILL else cut.power_cut(seed)
                log = open_log(*crashed, wal_shards=wal_shards)
                there = check(log, crashed.hot)
                if was_there and not there:
                    raise Violation("the topic was there and is gone")
                was_there = there
                if not there:
                    load(log, crashed.hot)
                if log.state("loaded").head_seq == RECORDS:
                    log.append("loaded", [{"data": RECORDS + 1}])
                again = crashed.power_cut(0)
                assert check(open_log(*again, wal_shards=wal_shards), again.hot)
        assert was_there


@pytest.mark.crash
@pytest.mark.parametrize("seed", [0, 5, KILL])
def test_the_start_after_a_cut_load_may_be_cut_at_every_call(seed: int) -> None:
    cuts = record(
        Disks(HostileDisk(), HostileDisk()),
        lambda hot, cold: load(open_log(hot, cold, wal_shards=1), hot),
    )
    starts = 0
    for number, cut in enumerate(cuts):
        crashed = cut.kill() if seed == KILL else cut.power_cut(seed)
        # What a load that was not answered left to the page cache, a power cut may still take.
        is_cached = seed == KILL and number < len(cuts) - 1
        whole = crashed.copy()
        there = check(open_log(*whole, wal_shards=1), whole.hot)
        inners = record(crashed, lambda hot, cold: open_log(hot, cold, wal_shards=1))
        for call, inner in enumerate(inners):
            may_lose = is_cached and call < len(inners) - 1  # a start that has ended may not
            killed, without_power = inner.copy().kill(), inner.copy().power_cut(number)
            for again, may_lose_it in ((killed, False), (without_power, may_lose)):
                with told(f"load cut at call {number}, its start at call {call}"):
                    found = check(open_log(*again, wal_shards=1), again.hot)
                    if found is not there and not (there and may_lose_it):
                        raise Violation("a start that was cut changed what there is")
                    starts += 1
    assert starts > 500, "the sweep has shrunk"


@pytest.mark.crash
@pytest.mark.parametrize("error", [DiskFailed, DiskFull])
def test_a_load_may_fail_at_every_call(error: type[DiskFailed]) -> None:
    failures = 0
    for at_call in range(400):
        disks = Disks(HostileDisk(), HostileDisk())
        log = open_log(*disks, wal_shards=1)
        disks.hot.arm(FaultPlan().fail(at_call=at_call, error=error))
        try:
            load(log, disks.hot)
        except TopicsError:
            failures += 1
        else:
            if at_call > 60:
                break
        assert ("loaded" in log.topics()) is (log.engine.find_topic("loaded") is not None)
        for crashed in (disks.copy().kill(), disks.copy().power_cut(at_call)):
            with told(f"call {at_call} failed"):
                check(open_log(*crashed, wal_shards=1), crashed.hot)
    else:
        raise AssertionError("the load never got through")
    assert failures > 30
