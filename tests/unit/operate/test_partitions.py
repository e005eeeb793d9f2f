"""Directories with partitioned topics: what is shown, what is damage, and what a repair keeps."""

from pathlib import Path

import pytest
from tests.unit.operate.conftest import Place

from topics.embedded import Log
from topics.errors import CorruptData
from topics.operate.inspect import inspect
from topics.operate.repair import repair
from topics.storage.disk.local_disk import LocalDisk
from topics.storage.snapshots.snapshot import decode_snapshot, encode_snapshot

KEYS = [f"k{i}" for i in range(12)]


def fill(log: Log) -> None:
    """Leave partitions in a snapshot and behind it, and one topic that was deleted."""
    log.create("orders", partitions=2, durability="fsync")
    log.append("orders", [{"data": key, "key": key} for key in KEYS], idempotency_key="once")
    log.create("gone", partitions=2)
    log.checkpoint()
    log.drop("gone")
    log.create("orders", partitions=3, cap_records=100)
    log.append("orders", [{"data": f"late {key}", "key": key} for key in KEYS])


def data_of(log: Log) -> set[object]:
    topics = log.engine.partitions_of("orders")
    return {record.data for topic in topics for record in log.diff(topic.name).records}


ALL = {*KEYS, *(f"late {key}" for key in KEYS)}


def forget_parents(place: Place) -> None:
    """Take the parents out of every snapshot, as no version of ours would."""
    for path in place.snapshots():
        snapshot = decode_snapshot(path.read_bytes(), name=path.name)
        snapshot.partitioned.clear()
        path.write_bytes(encode_snapshot(snapshot))


def test_partitions_on_the_log_and_in_a_snapshot_are_no_damage(place: Place) -> None:
    log = place.open(wal_shards=2)
    fill(log)
    log.engine.abandon()
    report = place.verify()
    assert report.healthy
    assert {topic.name for topic in report.topics} == {"orders-0", "orders-1", "orders-2"}
    place.open(wal_shards=2).close()
    assert place.verify().healthy


def test_inspect_shows_a_parent_with_its_numbers_of_partitions(place: Place) -> None:
    log = place.open()
    fill(log)
    log.engine.abandon()
    report = inspect(place.disk)
    assert [(p.name, p.counts, p.found) for p in report.partitioned] == [("orders", [2, 3], 3)]
    assert report.partitioned[0].config["cap_records"] == 100
    parent_id = report.partitioned[0].topic_id
    shown = [(topic.name, topic.parent_id, topic.partition) for topic in report.topics]
    assert shown == [(f"orders-{i}", parent_id, i) for i in range(3)]


def test_a_repair_keeps_parents_and_what_they_remember(place: Place, tmp_path: Path) -> None:
    new = Place(tmp_path / "new")
    log = place.open()
    fill(log)
    log.engine.abandon()
    new.data.mkdir(parents=True)
    report = repair(place.disk, into=LocalDisk(str(new.data)), into_name="new")
    assert report.verified
    assert report.damage == []
    with new.open() as log:
        assert log.topics() == ["orders", "orders-0", "orders-1", "orders-2"]
        assert log.state("orders").config.cap_records == 100
        assert data_of(log) == ALL
        records = [{"data": key, "key": key} for key in KEYS]
        assert log.append("orders", records, idempotency_key="once").deduped
        log.create("orders", partitions=4)


def test_partitions_whose_parent_is_lost_are_damage_that_a_repair_heals(
    place: Place, tmp_path: Path
) -> None:
    new = Place(tmp_path / "new")
    with place.open() as log:
        fill(log)
    forget_parents(place)
    report = place.verify()
    assert not report.healthy
    lost = [topic for topic in report.topics if topic.verdict == "damaged"]
    assert len(lost) == 1
    assert "orders-0, orders-1, orders-2" in lost[0].findings[0].message
    with pytest.raises(CorruptData, match="'orders-0' is a partition of topic 1"):
        place.open()
    new.data.mkdir(parents=True)
    repaired = repair(place.disk, into=LocalDisk(str(new.data)), into_name="new")
    assert repaired.verified
    assert any("made again from its partitions" in note for note in repaired.notes)
    with new.open() as log:
        assert log.state("orders").count == len(ALL)
        assert data_of(log) == ALL
