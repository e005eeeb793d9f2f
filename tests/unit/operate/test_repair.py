"""What repair saves, what it says is lost, and what the new directory gives its readers."""

import struct
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operate.conftest import TOPIC, Place, flip, read_all, records

from topics.errors import ConfigError, UnknownFormat
from topics.operate.repair import repair
from topics.operate.report import RepairReport
from topics.operate.verify import verify
from topics.storage.disk.local_disk import LocalDisk
from topics.storage.wal.frame import Group, encode_control


class Rescued(Place):
    """The new directory."""

    def __init__(self, place: Place, report: RepairReport) -> None:
        super().__init__(place.root)
        self.data = place.root / "rescued"
        self.clock = place.clock
        self.report = report
        self.topic = report.topics[0] if report.topics else None

    def ranges(self) -> list[tuple[int, int]]:
        assert self.topic is not None
        return [(lost.first_seq, lost.last_seq) for lost in self.topic.lost]

    def aside(self) -> list[tuple[int, int]]:
        assert self.topic is not None
        return [(seqs.first_seq, seqs.last_seq) for seqs in self.topic.set_aside]


def rescue(place: Place) -> Rescued:
    """Repair, and check what must be true of every repair."""
    before = place.bytes_of_all_files()
    told = repair(place.disk, cold=place.cold_disk)
    assert told.into is None
    assert place.bytes_of_all_files() == before, "a dry run writes nothing"
    into = LocalDisk(str(place.root / "rescued"))
    report = repair(place.disk, cold=place.cold_disk, into=into, into_name="rescued")
    after = {path: old for path, old in place.bytes_of_all_files().items() if path in before}
    assert after == before, "the original is only read"
    assert report.verified
    assert verify(into).healthy
    assert [(t.lost, t.set_aside, t.records_kept) for t in report.topics] == [
        (t.lost, t.set_aside, t.records_kept) for t in told.topics
    ]
    return Rescued(place, report)


def seqs(*ranges: tuple[int, int]) -> list[int]:
    return [seq for first, last in ranges for seq in range(first, last + 1)]


def test_a_healthy_directory_loses_nothing(stopped: Place) -> None:
    new = rescue(stopped)
    assert (new.report.records_kept, new.report.records_lost, new.report.damage) == (50, 0, [])
    with new.open() as log:
        assert read_all(log, "orders") == (seqs((1, 50)), [])
        assert log.append("orders", records(51, 51)).first_seq == 51
    with new.open() as log:
        assert read_all(log, "orders")[0] == seqs((1, 51))


def test_a_killed_directory_loses_nothing(killed: Place) -> None:
    new = rescue(killed)
    assert (new.report.records_kept, new.report.records_lost) == (50, 0)
    assert new.report.seqs_set_aside == 0, "the page cache is the one it was"


def test_a_damaged_frame_costs_one_record_and_readers_are_told(stopped: Place) -> None:
    _forget_log(stopped)
    size = stopped.segment(11).stat().st_size // 10
    flip(stopped.segment(11), 3 * size + 40)
    new = rescue(stopped)
    assert new.ranges() == [(14, 14)]
    assert new.topic is not None
    assert new.topic.lost[0].why == (
        f"{TOPIC}/seg-0000000000000011.data is damaged at offset {3 * size}"
    )
    with new.open() as log:
        found, lost = read_all(log, "orders")
    assert found == seqs((1, 13), (15, 50))
    assert [(gap.gap_from, gap.gap_to, gap.reason) for gap in lost] == [(14, 14, "crash")]


def test_a_damaged_frame_that_the_log_still_has_costs_nothing(stopped: Place) -> None:
    for first_seq in (1, 11, 21):
        flip(stopped.segment(first_seq), 40)
    new = rescue(stopped)
    assert len(new.report.damage) == 3
    assert new.report.records_lost == 0
    with new.open() as log:
        assert read_all(log, "orders") == (seqs((1, 50)), [])


@pytest.mark.parametrize("kind", ["data", "idx"])
def test_a_missing_segment_file(stopped: Place, kind: str) -> None:
    _forget_log(stopped)
    stopped.segment(21, kind).unlink()
    new = rescue(stopped)
    assert new.ranges() == ([] if kind == "idx" else [(21, 30)])
    if kind == "data":
        assert new.topic is not None
        assert new.topic.lost[0].why == f"{TOPIC}/seg-0000000000000021.data is missing"


def test_a_missing_pair_is_lost_without_anyone_to_blame(stopped: Place) -> None:
    _forget_log(stopped)
    stopped.segment(21).unlink()
    stopped.segment(21, "idx").unlink()
    new = rescue(stopped)
    assert new.ranges() == [(21, 30)]
    assert new.topic is not None
    assert new.topic.lost[0].why.startswith("no file holds them")


def test_a_cut_data_file(stopped: Place) -> None:
    _forget_log(stopped)
    path = stopped.segment(41)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 7])
    new = rescue(stopped)
    assert new.ranges() == [(46, 50)]
    with new.open() as log:
        assert log.append("orders", records(51, 51)).first_seq == 51, "no seq is used twice"


def test_any_damage_of_an_index_costs_nothing(stopped: Place) -> None:
    _forget_log(stopped)
    flip(stopped.segment(1, "idx"), 5)
    path = stopped.segment(11, "idx")
    path.write_bytes(path.read_bytes()[:-30])
    stopped.segment(21, "idx").write_bytes(b"")
    flip(stopped.segment(31, "idx"), 16, bit=8)  # calls a live record deleted
    new = rescue(stopped)
    with new.open() as log:
        assert read_all(log, "orders") == (seqs((1, 50)), [])


@pytest.mark.parametrize("kinds", [["data"], ["idx"], ["data", "idx"]])
def test_swapped_segments_cost_nothing(stopped: Place, kinds: list[str]) -> None:
    _forget_log(stopped)
    for kind in kinds:
        one, other = stopped.segment(11, kind), stopped.segment(31, kind)
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
    new = rescue(stopped)
    with new.open() as log:
        assert read_all(log, "orders") == (seqs((1, 50)), [])


# The log.


def test_frames_behind_damage_in_the_log_are_saved(killed: Place) -> None:
    number, offset = _place_of_seq(killed, 32)
    flip(killed.wal(number), offset + 40)
    new = rescue(killed)
    assert new.ranges() == [(32, 32)]
    assert new.topic is not None
    assert f"wal/{killed.wal(number).name} is damaged at offset {offset}" in new.topic.lost[0].why
    assert any("may have been among them" in note for note in new.report.notes)
    with new.open() as log:
        found, lost = read_all(log, "orders")
    assert found == seqs((1, 31), (33, 50))
    assert [(gap.gap_from, gap.gap_to, gap.reason) for gap in lost] == [(32, 32, "crash")]


def test_a_torn_batch_is_left_out_as_a_start_would(killed: Place) -> None:
    number, offset = _place_of_seq(killed, 50)
    flip(killed.wal(number), offset + 40)
    new = rescue(killed)
    assert new.report.records_kept == 45
    assert (new.ranges(), new.report.damage) == ([], [])


def test_a_missing_log_file_in_the_middle(place: Place) -> None:
    numbers = _many_log_files(place)
    first, last = _seqs_of_file(place, numbers[1])
    place.wal(numbers[1]).unlink()
    new = rescue(place)
    assert new.ranges() == [(first, last)]
    assert new.topic is not None
    assert new.topic.lost[0].why == f"wal/{place.wal(numbers[1]).name} is missing"


def test_seqs_that_a_missing_end_of_the_log_may_have_held_are_never_given_out(place: Place) -> None:
    numbers = _many_log_files(place)
    first, last = _seqs_of_file(place, numbers[-1])
    place.wal(numbers[-1]).unlink()
    new = rescue(place)
    ((aside_first, aside_last),) = new.aside()
    assert aside_first == first
    assert aside_last >= last
    with new.open() as log:
        assert log.append("orders", records(1, 1)).first_seq == aside_last + 1


def test_a_topic_whose_create_frame_is_lost_gets_a_name(place: Place) -> None:
    log = place.open()
    log.create("orders", durability="fsync")
    log.append("orders", records(1, 20))
    log.append("orders", records(21, 30))
    log.engine.abandon()
    content = place.wal().read_bytes()
    flip(place.wal(), content.find(b"orders"))
    new = rescue(place)
    assert new.topic is not None
    assert (new.topic.name, new.topic.name_is_known) == ("recovered-0000000000000001", False)
    with new.open() as log:
        assert read_all(log, new.topic.name) == (seqs((1, 30)), [])


# Metadata.


def test_one_damaged_snapshot_costs_nothing(stopped: Place) -> None:
    flip(stopped.snapshots()[-1], 40)
    new = rescue(stopped)
    assert (new.report.records_kept, new.report.records_lost) == (50, 0)
    assert new.report.snapshot == f"meta/{stopped.snapshots()[0].name}"


def test_without_snapshots_and_log_the_records_are_saved_under_a_new_name(stopped: Place) -> None:
    for path in [*stopped.snapshots(), *stopped.data.glob("wal/*")]:
        path.unlink()
    stopped.segment(1).unlink()
    stopped.segment(1, "idx").unlink()
    new = rescue(stopped)
    assert new.topic is not None
    assert new.topic.name == "recovered-0000000000000001"
    assert new.ranges() == [(1, 10)]
    with new.open() as log:
        found, lost = read_all(log, new.topic.name)
        assert found == seqs((11, 50))
        assert [(gap.gap_from, gap.gap_to, gap.reason) for gap in lost] == [(1, 10, "crash")]
        log.append("other", records(1, 1))
        assert log.state("other").epoch == 2, "no topic id is used twice"


def test_configs_floors_ids_keys_and_producers_stay(place: Place) -> None:
    with place.open() as log:
        log.create("gone")
        log.drop("gone")
        log.create("orders", durability="fsync", cap_records=15, idempotency_window_ms=3_600_000)
        for first in range(1, 41, 10):
            log.append(
                "orders",
                records(first, first + 9),
                idempotency_key=f"k{first}",
                producer_id="p",
                producer_seq=first,
            )
            log.checkpoint()
        state = log.state("orders")
    flip(place.snapshots()[-1], 40)
    new = rescue(place)
    with new.open() as log:
        found = log.state("orders")
        assert log.topics() == ["orders"]
        assert (found.epoch, found.config, found.head_seq) == (2, state.config, 40)
        assert (found.evict_floor, found.earliest_seq) == (state.evict_floor, state.earliest_seq)
        again = log.append("orders", records(41, 41), idempotency_key="k31")
        assert (again.deduped, again.first_seq) == (True, 31)
        again = log.append("orders", records(41, 41), producer_id="p", producer_seq=21)
        assert (again.deduped, again.first_seq) == (True, 21)
        lost = log.diff("orders", from_seq=0).tombstone
        assert lost is not None
        assert (lost.gap_from, lost.gap_to, lost.reason) == (1, 25, "cap")


# Deletes.


def test_deleted_stays_deleted_and_its_bytes_are_gone(stopped: Place) -> None:
    with stopped.open() as log:
        log.delete("orders", match=["tag", "Eq", "g:1"])
        log.checkpoint()
    _forget_log(stopped)
    flip(stopped.segment(31), 40)
    new = rescue(stopped)
    assert new.ranges() == [], "the lost record was deleted: nobody misses it"
    left = [seq for seq in seqs((1, 50)) if seq % 5 != 1]
    copied = sum(path.stat().st_size for path in (new.data / TOPIC).glob("*.data"))
    assert copied == sum(46 + len("g:0") + len(str(seq)) for seq in left)
    with new.open() as log:
        assert read_all(log, "orders") == (left, [])


def test_a_delete_that_waits_on_the_log_is_applied(killed: Place) -> None:
    log = killed.open()
    log.delete("orders", match=["tag", "Glob", "g:1*"])
    log.delete("orders", before_seq=5)
    log.engine.abandon()
    new = rescue(killed)
    left = [seq for seq in seqs((5, 50)) if seq % 5 != 1]
    with new.open() as log:
        assert read_all(log, "orders") == (left, [])


def test_records_of_a_dropped_topic_do_not_come_back(stopped: Place) -> None:
    content = {path: path.read_bytes() for path in (stopped.data / TOPIC).iterdir()}
    with stopped.open() as log:
        log.drop("orders")
    (stopped.data / TOPIC).mkdir(exist_ok=True)
    for path, old in content.items():
        path.write_bytes(old)  # as a crash would have left them
    new = rescue(stopped)
    assert new.report.topics == []


# Tiers.


def test_cold_segments_become_hot_and_the_hot_index_knows_their_deletes(place: Place) -> None:
    with place.open(cold_dir=str(place.cold), hot_retain_segments=1) as log:
        log.append("orders", records(1, 50))
        log.checkpoint()
        log.engine.relocate()
        log.delete("orders", match=["tag", "Eq", "g:1"])
    _forget_log(place, cold_dir=str(place.cold), hot_retain_segments=1)
    flip(place.cold / TOPIC / "seg-0000000000000011.data", 40 + 51)
    new = rescue(place)
    assert new.ranges() == [(12, 12)]
    assert not any(path.suffix == ".tmp" for path in new.data.rglob("*"))
    with new.open() as log:
        found, _ = read_all(log, "orders")
    assert found == [seq for seq in seqs((1, 50)) if seq % 5 != 1 and seq != 12]


def test_a_cold_tier_that_was_not_named_is_asked_for(place: Place) -> None:
    with place.open(cold_dir=str(place.cold), hot_retain_segments=1) as log:
        log.append("orders", records(1, 50))
        log.checkpoint()
        log.engine.relocate()
    with pytest.raises(ConfigError, match="an empty one, if it is lost"):
        repair(place.disk)


def test_frames_of_a_newer_version_are_refused(killed: Place) -> None:
    number, offset = _place_of_seq(killed, 50)
    content = bytearray(killed.wal(number).read_bytes())
    frame = encode_control(Group("g", "joined", {}))
    end = offset + int.from_bytes(content[offset : offset + 4], "little") + 4
    content[end : end + len(frame)] = frame
    killed.wal(number).write_bytes(content)
    with pytest.raises(UnknownFormat, match="Group"):
        repair(killed.disk)


# How the places are made.


def _forget_log(place: Place, **settings: Any) -> None:  # noqa: ANN401 - of ServerConfig
    """Let the log be as after a long time: trimmed of everything that segments hold."""
    with place.open(**settings) as log:
        for _ in range(3):
            log.checkpoint()
    for path in place.data.glob("wal/wal-*.log"):
        assert _place_or_none(path, 1) is None


def _place_or_none(path: Path, seq: int) -> int | None:
    found = path.read_bytes().find(struct.pack("<QQ", 1, seq))
    return found - 6 if found >= 0 else None


def _place_of_seq(place: Place, seq: int) -> tuple[int, int]:
    for path in sorted(place.data.glob("wal/wal-*.log")):
        found = _place_or_none(path, seq)
        if found is not None:
            return int(path.name[4:24]), found
    raise AssertionError(f"seq {seq} is not on the log")


def _many_log_files(place: Place) -> list[int]:
    log = place.open(wal_file_bytes=4096)
    log.create("orders", durability="fsync")
    for first in range(1, 201, 5):
        log.append("orders", records(first, first + 4))
    log.engine.abandon()
    numbers = sorted(int(path.name[4:24]) for path in place.data.glob("wal/wal-*.log"))
    assert len(numbers) > 3
    return numbers


def _seqs_of_file(place: Place, number: int) -> tuple[int, int]:
    held = [s for s in range(1, 201) if _place_or_none(place.wal(number), s) is not None]
    return held[0], held[-1]
