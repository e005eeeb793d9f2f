"""Cut the power, or kill the process, at every disk call of a group's life; then start again.

Promise under test: oracle 7. What a commit acknowledged is not lost and does not go back; a
generation does not go back, and has one owner a partition.
"""

from collections.abc import Callable

import pytest
from tests.crash.group_run import SESSION_MS, GroupRun, check_cut
from tests.crash.queue_run import KILL
from tests.crash.scenarios import tiny

from topics.testing.crash_sweep import told

SEEDS = [0, 17, KILL]
Script = Callable[[GroupRun], None]


def begin(run: GroupRun) -> None:
    run.append("a", 6)
    run.append("b", 6)


def commits(run: GroupRun) -> None:
    """Commit between checkpoints, snapshots and new files of the log."""
    begin(run)
    run.join("m", "a", "b")
    for seq in range(1, 5):
        run.commit("m", "a", seq)
        run.commit("m", "b", seq)
    run.commit("m", "a", 2)
    run.work("checkpoint")
    run.commit("m", "a", 5)
    run.work("snapshot")
    run.append("a", 6)
    run.commit("m", "a", 9)
    run.work("snapshot", "snapshot")
    run.commit("m", "b", 6)


def rebalances(run: GroupRun) -> None:
    """Let members come, give up, leave and fall silent."""
    begin(run)
    run.join("m", "a", "b")
    run.commit("m", "b", 2)
    run.join("n", "a", "b")
    run.beat("m", gives_up=True)
    run.beat("n")
    run.work("snapshot")
    run.commit("m", "a", 3)
    run.join("o", "a")
    run.leave("m")
    run.beat("n")
    run.work("snapshot", "checkpoint")
    run.clock.advance_ms(SESSION_MS - 1)
    run.beat("n")
    run.clock.advance_ms(1)
    run.members.discard("o")  # it was silent for too long
    run.work("sweep")
    run.commit("n", "a", 6)
    run.work("snapshot", "snapshot")
    run.beat("n")


@pytest.mark.crash
@pytest.mark.parametrize("wal_shards", [1, 2])
@pytest.mark.parametrize(
    ("script", "cuts_min"),
    [(commits, 60), (rebalances, 50)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_crash_at_any_call_keeps_progress_and_owners(
    script: Script, cuts_min: int, wal_shards: int
) -> None:
    config = tiny(wal_shards)
    run = GroupRun(config, records=True)
    script(run)
    run.note_cut()
    assert len(run.cuts) >= cuts_min, "the sweep has shrunk"
    for number, cut in enumerate(run.cuts):
        for seed in SEEDS:
            with told(f"cut point {number} of {len(run.cuts)}, seed {seed}"):
                check_cut(config, cut, seed)
