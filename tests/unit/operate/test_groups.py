"""Directories with consumer groups: shown, no damage, and kept by a repair."""

from pathlib import Path

from tests.unit.operate.conftest import Place

from topics.embedded import Log
from topics.operate.inspect import inspect, list_frames
from topics.operate.repair import repair
from topics.storage.disk.local_disk import LocalDisk


def fill(log: Log) -> None:
    """Leave a group in the snapshot and on the log, and one that was deleted."""
    log.append("a", [{"data": i} for i in range(5)])
    generation = log.join("g", member="m", topics=["a"]).generation
    log.commit("g", {"a": {0: 2}}, member="m", generation=generation)
    log.commit("gone", {"a": {0: 1}})
    log.checkpoint()
    log.commit("g", {"a": {0: 4}}, member="m", generation=generation)
    log.drop_group("gone")
    log.join("g", member="n", topics=["a"])


def filled(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    log = place.open()
    fill(log)
    log.engine.abandon()
    return place


def test_group_frames_are_no_damage(tmp_path: Path) -> None:
    report = filled(tmp_path).verify()
    assert report.healthy
    assert not any("Group" in note for note in report.notes)


def test_groups_are_inspected(tmp_path: Path) -> None:
    place = filled(tmp_path)
    (group,) = inspect(place.disk).groups
    assert (group.group, group.generation, group.members) == ("g", 2, ["m", "n"])
    ((topic, partition, _, seq),) = group.committed
    assert (topic, partition, seq) == ("a", 0, 4)
    frames = [
        frame
        for path in sorted(place.data.glob("wal/wal-*.log"))
        for frame in list_frames(place.disk, f"wal/{path.name}", limit=1000).frames
    ]
    events = [frame.body["event"] for frame in frames if frame.type == "Group"]
    assert events[-3:] == ["commit", "delete", "state"]


def test_a_repair_keeps_groups_and_their_progress(tmp_path: Path) -> None:
    place, new = filled(tmp_path), Place(tmp_path / "new")
    new.data.mkdir(parents=True)
    assert repair(place.disk, into=LocalDisk(str(new.data)), into_name="new").verified
    with new.open() as log:
        assert log.groups() == ["g"]
        state = log.group_state("g")
        assert [member.member for member in state.members] == ["m", "n"]
        assert [partition.committed for partition in state.partitions] == [4]
        assert log.join("gone", member="m", topics=["a"]).generation > 0


def test_a_repair_lets_nobody_be_further_than_what_was_saved(tmp_path: Path) -> None:
    place, new = Place(tmp_path), Place(tmp_path / "new")
    with place.open() as log:
        log.create("a", durability="ephemeral")
        log.append("a", [{"data": i} for i in range(5)])
        log.commit("g", {"a": {0: 5}})
    new.data.mkdir(parents=True)
    repair(place.disk, into=LocalDisk(str(new.data)), into_name="new")
    with new.open() as log:
        (partition,) = log.group_state("g").partitions
        assert partition.committed is not None
        assert partition.committed <= partition.head_seq
