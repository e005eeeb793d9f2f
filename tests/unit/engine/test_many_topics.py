"""Many topics: a stop and a start that cost little for each, and locks that nobody waits for."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.engine.place import Place, seqs_of
from tests.unit.engine.test_cuts import SEEDS, check_every_cut, fill

from topics.engine import checkpoint, engine, maintenance, snapshot
from topics.engine.topics.topic import Topic
from topics.errors import CorruptData, DiskFailed, ShardReadOnly
from topics.kernel import IDX_ENTRY_BYTES
from topics.storage.disk import paths
from topics.storage.snapshots.snapshot import load_newest_snapshot
from topics.storage.wal.group_commit import GroupCommit
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan

NAMES = [f"t{i}" for i in range(5)]
FLAGS_OFFSET = 16


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two topics are many."""
    monkeypatch.setattr(checkpoint, "SLICE_TOPICS", 2)
    monkeypatch.setattr(snapshot, "SLICE_TOPICS", 2)
    monkeypatch.setattr(engine, "ABSORBED_AT_STOP_MAX", 2)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the paths of segment files that are opened or mapped."""
    found: list[str] = []
    for name in ("open", "map", "read"):
        real = getattr(HostileDisk, name)

        def noted(disk: HostileDisk, path: str, real: Any = real) -> Any:  # noqa: ANN401 - what the disk returns
            if path.startswith(paths.TOPICS_DIR):
                found.append(path)
            return real(disk, path)

        monkeypatch.setattr(HostileDisk, name, noted)
    return found


def fill_all(place: Place, count: int = 3) -> None:
    for name in NAMES:
        place.fill(name, count, tag="x")


def everywhere(*seqs: int) -> dict[str, list[int]]:
    return {name: list(seqs) for name in NAMES}


def read_all(place: Place) -> dict[str, list[int]]:
    return {name: seqs_of(place.log.diff(name)) for name in NAMES}


@pytest.mark.usefixtures("few_at_a_time")
def test_a_stop_with_many_topics_leaves_their_records_on_the_log(place: Place) -> None:
    fill_all(place)
    made = place.disk.calls_made
    place.log.close()
    assert place.disk.calls_made - made < 30
    assert place.disk.list(paths.TOPICS_DIR) == []
    place.disk = place.disk.power_cut(0)
    place.open()
    assert read_all(place) == everywhere(1, 2, 3)
    assert place.log.append("t0", [{"data": 1}]).first_seq == 4
    place.stop()
    place.log.checkpoint()
    place.cut()
    assert read_all(place) == {**everywhere(1, 2, 3), "t0": [1, 2, 3, 4]}


@pytest.mark.usefixtures("few_at_a_time")
def test_deletes_before_such_a_stop_are_deletes_after_it(place: Place) -> None:
    fill_all(place)
    place.log.checkpoint()
    fill_all(place)
    place.log.delete("t1", before_seq=3)
    place.log.delete("t2", match="x")
    place.log.append("t2", [{"data": 1}])
    before = read_all(place), [place.log.state(name).bytes for name in NAMES]
    for restart in ("stop", "stop", "cut", "kill", "stop"):
        getattr(place, restart)()
        after = read_all(place), [place.log.state(name).bytes for name in NAMES]
        assert after == before


@pytest.mark.usefixtures("few_at_a_time")
def test_such_a_stop_may_be_cut() -> None:
    def run(place: Place) -> None:
        fill_all(place)
        fill(place)

    check_every_cut(run, lambda place: place.log.close())


def test_a_start_after_a_stop_opens_no_segment(place: Place, opened: list[str]) -> None:
    fill_all(place, 6)  # one sealed segment and one that goes on
    place.log.close()
    opened.clear()
    place.open()
    assert opened == []
    assert read_all(place) == everywhere(1, 2, 3, 4, 5, 6)
    assert opened != []
    place.kill()
    opened.clear()
    place.kill()
    assert opened != []  # nobody knows what was changed since the stop
    assert read_all(place) == everywhere(1, 2, 3, 4, 5, 6)


def test_what_was_not_opened_at_a_start_takes_writes_and_deletes(place: Place) -> None:
    for name in NAMES:
        place.log.create(name, durability="fsync")
    fill_all(place, 6)
    for restart in ("stop", "stop", "cut"):
        getattr(place, restart)()
        for name in NAMES:
            place.log.append(name, [{"data": 1, "tag": "y"}])
            place.log.delete(name, before_seq=place.log.state(name).earliest_seq + 1)
        place.log.sync()
        place.log.checkpoint()
        place.log.engine.maintain()
    assert read_all(place) == everywhere(4, 5, 6, 7, 8, 9)
    assert place.log.delete("t0", match="y").deleted == 3
    assert place.log.state("t0").count == 3


@pytest.mark.parametrize("what", ["flag", "offset"])
@pytest.mark.parametrize("seq", [2, 6])  # of a sealed segment, and of the one that goes on
def test_an_index_that_changed_while_nobody_ran_is_told_when_it_is_read(
    place: Place, what: str, seq: int
) -> None:
    place.fill("t", 6)
    place.log.close()
    first_seq = 1 if seq < 5 else 5
    at = (seq - first_seq) * IDX_ENTRY_BYTES + (FLAGS_OFFSET if what == "flag" else 0)
    path = paths.segment_idx_path(1, first_seq)
    place.disk.flip_bit(path, at * 8 + 3)
    place.open()
    with pytest.raises(CorruptData, match=path):
        place.log.diff("t", from_seq=seq - 1)


def test_a_segment_that_was_cut_while_nobody_ran_is_told_at_the_start(place: Place) -> None:
    place.fill("t", 6)
    place.log.close()
    place.disk.open(paths.segment_data_path(1, 1)).truncate(10)
    with pytest.raises(CorruptData, match="topics repair"):
        place.open()


@pytest.mark.parametrize("first_seq", [1, 5])
def test_a_segment_that_is_gone_is_told_at_the_start(place: Place, first_seq: int) -> None:
    place.fill("t", 6)
    place.log.close()
    place.disk.unlink(paths.segment_data_path(1, first_seq))
    with pytest.raises(CorruptData, match="topics repair"):
        place.open()


def test_an_index_that_is_gone_is_built_again_after_a_stop(place: Place) -> None:
    place.fill("t", 6)
    place.log.close()
    place.disk.unlink(paths.segment_idx_path(1, 1))
    place.open()
    assert seqs_of(place.log.diff("t")) == [1, 2, 3, 4, 5, 6]


def test_a_stop_is_not_believed_once_somebody_has_started(place: Place) -> None:
    place.fill("t", 6)
    place.log.close()
    assert place.disk.exists(paths.STOPPED)
    for seed in SEEDS:
        place.disk = place.disk.copy()
        place.open()
        place.disk = place.disk.power_cut(seed)
        assert not place.disk.exists(paths.STOPPED)


def test_delete_flags_that_a_power_cut_took_are_no_damage_after_a_stop(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ABSORBED_AT_STOP_MAX", 0)
    place.fill("t", 6, tag="x")
    place.log.checkpoint()
    place.log.delete("t", match="x")
    place.log.close()
    place.cut()
    assert seqs_of(place.log.diff("t")) == []
    assert place.log.append("t", [{"data": 1}]).first_seq == 7


# Slices.


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how many topics each slice of a checkpoint takes."""
    found: list[int] = []
    real = checkpoint._absorb

    def noted(shard: Any, topics: Any, **rest: Any) -> None:  # noqa: ANN401 - handed on
        found.append(len(topics))
        real(shard, topics, **rest)

    monkeypatch.setattr(checkpoint, "_absorb", noted)
    return found


@pytest.mark.usefixtures("few_at_a_time")
def test_a_checkpoint_takes_some_topics_at_a_time(place: Place, takes: list[int]) -> None:
    fill_all(place)
    place.log.checkpoint()
    assert takes == [2, 2, 1]
    place.cut()
    assert read_all(place) == everywhere(1, 2, 3)


@pytest.mark.usefixtures("few_at_a_time")
def test_a_stop_waits_for_one_slice_and_loses_nothing(
    place: Place, takes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_all(place)
    mark = checkpoint._mark_absorbed

    def mark_and_hurry(shard: Any, works: Any) -> None:  # noqa: ANN401 - handed on
        mark(shard, works)
        place.log.engine._is_stopping = True

    monkeypatch.setattr(checkpoint, "_mark_absorbed", mark_and_hurry)
    place.log.engine.checkpoint()
    assert takes == [2]
    place.log.engine._is_stopping = False
    monkeypatch.setattr(checkpoint, "_mark_absorbed", mark)
    place.log.engine._save_snapshot(clean=False)
    place.log.engine._save_snapshot(clean=False)  # the log is trimmed to the first of them
    place.cut()
    assert read_all(place) == everywhere(1, 2, 3)


@pytest.mark.parametrize("restart", ["kill", "cut"])
def test_a_snapshot_of_which_topics_change_meanwhile_is_made_good_by_the_log(
    place: Place, restart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SLICE_TOPICS", 1)
    for name in NAMES:
        place.log.create(name, durability="fsync")
    fill_all(place)
    expected = everywhere(1, 2, 3)
    changes = iter(NAMES)

    def change() -> None:
        """Change what was captured already, and what will be: the first and the last alike."""
        name = next(changes, None)
        if name is not None:
            place.log.append(name, [{"data": 1}])
            place.log.delete(name, before_seq=2)
            expected[name] = [2, 3, 4]
            place.log.create(f"new-{name}", durability="fsync")
            place.fill(f"new-{name}", 1)
            place.log.drop(f"old-{name}")

    for name in NAMES:
        place.fill(f"old-{name}", 1)
    monkeypatch.setattr(place.log.engine, "_check_wanted", change)
    place.log.engine.snapshot()
    getattr(place, restart)()
    assert read_all(place) == expected
    for name in NAMES:
        assert seqs_of(place.log.diff(f"new-{name}")) == [1]
    assert len(place.log.engine.topics()) == 2 * len(NAMES)


@pytest.mark.usefixtures("few_at_a_time")
def test_the_lock_is_free_between_the_slices_of_a_snapshot(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_all(place)
    (shard,) = place.log.engine.shards
    between: list[bool] = []
    flush = GroupCommit.flush

    def noted(commit: GroupCommit) -> Any:  # noqa: ANN401 - handed on
        between.append(shard.lock.locked())
        return flush(commit)

    def look() -> None:
        assert not shard.lock.locked()
        assert not place.log.engine.registry.lock._is_owned()  # type: ignore[attr-defined]
        between.append(False)

    monkeypatch.setattr(GroupCommit, "flush", noted)
    monkeypatch.setattr(place.log.engine, "_check_wanted", look)
    place.log.engine.snapshot()
    assert between.count(False) == 3


def test_only_a_stop_saves_what_spares_reading(place: Place) -> None:
    fill_all(place)
    place.log.engine.snapshot()
    loaded = load_newest_snapshot(place.disk)
    assert loaded is not None
    assert {topic.rest for topic in loaded[1].topics} == {None}
    place.log.close()
    loaded = load_newest_snapshot(place.disk)
    assert loaded is not None
    assert all(topic.rest and topic.rest.segments for topic in loaded[1].topics)


# Looking after them.


def test_a_sweep_and_maintenance_pass_by_topics_that_nothing_can_have_happened_to(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_all(place, 4)
    place.log.create("ttl", ttl_ms=5_000)
    place.fill("ttl", 4)
    place.log.checkpoint()
    place.clock.advance_ms(2_000)
    place.log.engine.sweep()  # gives the reserved seqs back
    place.log.engine.maintain()  # indexes the tags
    swept: list[str] = []
    kept: list[str] = []
    for module, name, found in (("registry", "expire", swept), ("reclaim", "", kept)):
        owner = place.log.engine.registry if module == "registry" else maintenance
        real = getattr(owner, name or module)

        def noted(*args: Any, real: Any = real, found: list[str] = found, **rest: Any) -> Any:  # noqa: ANN401 - handed on
            found.extend(arg.name for arg in args if isinstance(arg, Topic))
            return real(*args, **rest)

        monkeypatch.setattr(owner, name or module, noted)
    place.log.engine.sweep()
    place.log.engine.maintain()
    assert (swept, kept) == ([], [])
    place.log.delete("t2", before_seq=5)
    place.log.append("t3", [{"data": 1}], idempotency_key="k")
    place.clock.advance_ms(4_000)
    swept.clear()
    place.log.engine.sweep()
    place.log.engine.maintain()
    assert (swept, kept) == (["t3", "ttl"], ["t2", "ttl"])


@pytest.mark.parametrize("threads", [0, 3, 99])  # so many may be begun
def test_topics_are_synced_beside_each_other_and_all_before_the_mark(
    place: Place, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    begun: list[object] = []
    submit = ThreadPoolExecutor.submit

    def submit_some(pool: Any, *args: Any) -> Any:  # noqa: ANN401 - handed on
        if len(begun) == threads:
            raise RuntimeError("can't start new thread")
        begun.append(args)
        return submit(pool, *args)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_some)
    fill_all(place)
    place.log.engine.may_write_beside = True
    place.log.engine.checkpoint()
    assert len(begun) == min(threads, len(NAMES))
    place.cut()
    assert read_all(place) == everywhere(1, 2, 3)


def test_a_sync_beside_that_fails_makes_the_shard_read_only(place: Place) -> None:
    fill_all(place)
    place.log.engine.may_write_beside = True
    place.disk.arm(FaultPlan().fail(operation="sync_data", path=paths.segment_data_path(3, 1)))
    with pytest.raises(DiskFailed):
        place.log.engine.checkpoint()
    with pytest.raises(ShardReadOnly):
        place.log.append("t0", [{"data": 1}])
    assert read_all(place) == everywhere(1, 2, 3)
