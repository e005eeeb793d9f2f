"""The order of writes and syncs, shown by cutting the power at every call of one operation.

The broad sweep is in tests/crash; these few are fast and name the order they watch.
"""

from collections.abc import Callable

import pytest
from tests.unit.engine.place import Place, seqs_of

from topics.storage.disk import paths
from topics.testing.hostile_faults import FaultPlan, PowerCut

SEEDS = (0, 1, 2, 3)


def check_every_cut(run: Callable[[Place], None], operation: Callable[[Place], object]) -> None:
    """Cut at each call of the operation: what was acknowledged before is there, and once."""
    cut_at = 0
    while True:
        place = Place()
        place.log.create("a", durability="fsync")
        run(place)
        expected = place.log.diff("a", limit=1_000).records_json
        place.disk.arm(FaultPlan().cut_power(at_call=cut_at))
        try:
            operation(place)
        except PowerCut:
            pass
        else:
            return
        disk = place.disk
        for seed in SEEDS:
            place.disk = disk.power_cut(seed)
            place.cold_disk = None
            place.open()
            assert place.log.diff("a", limit=1_000).records_json == expected, (cut_at, seed)
            assert place.log.append("a", [{"data": "next"}]).first_seq == 10
            place.log.engine.abandon()
        cut_at += 1


def fill(place: Place) -> None:
    place.fill("a", 5)
    place.log.engine.snapshot()
    place.fill("a", 4)


def test_a_checkpoint_syncs_segments_before_it_marks_them() -> None:
    check_every_cut(fill, lambda place: place.log.engine.checkpoint())


def test_a_snapshot_trims_only_what_is_safe_elsewhere() -> None:
    check_every_cut(fill, lambda place: place.log.engine.snapshot())


def test_a_clean_stop_may_be_cut() -> None:
    check_every_cut(fill, lambda place: place.log.close())


@pytest.mark.parametrize("damaged", [False, True])
def test_one_damaged_snapshot_costs_nothing(place: Place, damaged: bool) -> None:  # noqa: FBT001
    for _ in range(4):
        place.fill("a", 5, meta={"padding": "x" * 900})  # so that the WAL has several files
        place.log.engine.snapshot()
    place.fill("a", 1)
    newest = max(n for n in place.disk.list(paths.META_DIR) if paths.parse_snapshot_name(n))
    if damaged:
        place.disk.flip_bit(f"{paths.META_DIR}/{newest}", 8 * 40)
    place.kill()
    assert seqs_of(place.log.diff("a")) == list(range(1, 22))
    assert place.log.append("a", [{"data": "next"}]).first_seq == 22


def test_a_log_of_an_older_shard_count_never_comes_back() -> None:
    """Cut the start that changes the count; the files it left must not harm a change back."""
    cut_at, finished = 0, False
    while not finished:
        place = Place()
        place.log.create("a", durability="fsync")
        place.fill("a", 9, meta={"padding": "x" * 900})
        place.disk = place.disk.kill(plan=FaultPlan().cut_power(at_call=cut_at))
        try:
            place.open(wal_shards=2)
            finished = True
        except PowerCut:
            pass
        place.cut(seed=cut_at % 3, wal_shards=2)
        place.fill("a", 1)
        place.kill(wal_shards=1)
        place.fill("a", 9, meta={"padding": "x" * 900})
        place.kill(wal_shards=1)
        assert place.log.state("a").count == 19
        cut_at += 1
