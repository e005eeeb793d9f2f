"""Cut the power, or kill the process, at every disk call of a queue's life; then start again.

Promise under test: oracle 6. At least once, never two live leases, what is acked stays away, and
nothing is lost or doubled between a queue and its dead letters, which are on another shard.
"""

from collections.abc import Callable

import pytest
from tests.crash.queue_run import KILL, LEASE_MS, QueueRun, check_cut, crashed
from tests.crash.scenarios import tiny

from topics.testing.crash_sweep import told

SEEDS = [0, 17, KILL]
Script = Callable[[QueueRun, str], None]


def acks(run: QueueRun, durability: str) -> None:
    """Acks of jobs in memory, in an active segment and in a sealed one, and what comes after."""
    run.create(durability)
    run.append(6, pad=200)
    run.claim("w1", 5)
    run.ack("w1", 2, 4)
    run.work("checkpoint")
    run.ack("w1", 1)
    run.append(5, pad=200)
    run.work("snapshot", "maintain")
    run.ack("w1", 5)
    run.claim("w2", 3)
    run.ack("w2", 7)
    run.work("checkpoint", "snapshot", "maintain")
    run.ack("w1", 3)
    run.ack("w2", 6)
    run.work("maintain", "relocate", "snapshot")


def durable_leases(run: QueueRun, durability: str) -> None:
    """Every word that moves a lease, before and after snapshots."""
    run.create(durability, leases_durable=True)
    run.append(6)
    run.claim("w1", 3)
    run.nack("w1", 1)
    run.nack("w1", 2, delay_ms=500)
    run.work("snapshot")
    run.extend("w1", 3, lease_ms=5_000)
    run.claim("w2", 2)
    run.ack("w2", 1)
    run.clock.advance_ms(600)
    run.claim("w2", 1)
    run.work("snapshot")
    run.ack("w1", 3)
    run.nack("w2", 2)
    run.claim("w1", 1)
    run.work("snapshot", "snapshot")
    run.append(1)


def dead_letters(run: QueueRun, durability: str) -> None:
    """Jobs that fail until they are moved, one by one and together."""
    run.create(durability, max_deliveries=1, dead_letter="dead")
    run.append(5, pad=100)
    run.nack("w1", *run.claim("w1", 1))
    run.claim("w1", 1)  # the first one dies, and this is the second
    run.work("checkpoint")
    run.ack("w1", 2)
    run.claim("w1", 2)
    run.work("snapshot")
    run.clock.advance_ms(LEASE_MS)
    run.told.answered.leases.clear()
    run.claim("w2", 1)
    run.work("snapshot", "maintain")
    run.append(2, pad=100)
    run.nack("w2", *run.claim("w2", 1))
    run.claim("w2", 1)
    run.work("snapshot", "sweep")


def refused_dead_letters(run: QueueRun, durability: str) -> None:
    """Fill the dead-letter topic: jobs stay aside, then follow in their order."""
    run.log.create("dead", durability=durability, cap_records=1, discard="reject")
    run.create(durability, max_deliveries=1, dead_letter="dead")
    run.append(4)
    run.nack("w1", *run.claim("w1", 3))
    run.claim("w1", 1)
    run.work("sync", "snapshot", "sweep")
    run.log.create("dead", cap_records=0)
    run.work("sweep")
    run.ack("w1", 4)
    run.work("snapshot")


def spread_dead_letters(run: QueueRun, durability: str) -> None:
    """Let jobs die into partitions, of which there are more before the last of them."""
    run.log.create("dead", durability=durability, partitions=2, cap_records=2, discard="reject")
    run.create(durability, max_deliveries=1, dead_letter="dead")
    run.append(7)
    run.nack("w1", *run.claim("w1", 6))
    run.claim("w1", 2)
    run.work("sync", "snapshot", "sweep")
    run.log.create("dead", partitions=3)
    run.work("sweep")
    run.log.create("dead", cap_records=0)
    run.work("sweep", "snapshot")
    run.nack("w1", 7)
    run.claim("w1", 1)
    run.work("snapshot")


@pytest.mark.crash
@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("wal_shards", [1, 2])
@pytest.mark.parametrize(
    ("script", "cuts_min"),
    [
        (acks, 60),
        (durable_leases, 50),
        (dead_letters, 90),
        (refused_dead_letters, 50),
        (spread_dead_letters, 90),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_crash_at_any_call_keeps_every_job(
    script: Script, cuts_min: int, wal_shards: int, durability: str
) -> None:
    config = tiny(wal_shards)
    run = QueueRun(config, records=True)
    script(run, durability)
    run.note_cut()
    assert len(run.cuts) >= cuts_min, "the sweep has shrunk"
    for number, cut in enumerate(run.cuts):
        for seed in SEEDS:
            with told(f"cut point {number} of {len(run.cuts)}, seed {seed}"):
                check_cut(config, cut, seed)


@pytest.mark.crash
@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("script", [acks, durable_leases, dead_letters])
def test_a_start_that_is_cut_anywhere_keeps_every_job_too(script: Script, durability: str) -> None:
    config = tiny(2)
    run = QueueRun(config, records=True)
    script(run, durability)
    starts = 0
    for number, cut in enumerate(run.cuts[30::20]):
        start = QueueRun(config, disks=crashed(cut, KILL), now_ms=cut.now_ms, records=True)
        for inner_number, inner in enumerate(start.cuts):
            starts += 1
            with told(f"cut point {number}, then call {inner_number} of the start"):
                check_cut(config, inner._replace(told=cut.told), KILL)
                check_cut(config, inner._replace(told=cut.told), 17)
    assert starts >= 20, "the sweep has shrunk"
