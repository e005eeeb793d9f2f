"""Deletes of many records: looked for while others write, and done in few calls."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.place import Place, seqs_of

from topics.engine import delete
from topics.engine.queues.table import LeaseTable
from topics.kernel import index_segment, match_tags, summarize_idx
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer
from topics.storage.segments.rewrite import Rewrite
from topics.storage.segments.segment import Segment

MANY = 40


@pytest.fixture
def place() -> Place:
    place = Place()
    place.stop(segment_max_events=50)
    return place


def live_frames(data: bytes) -> int:
    """Count the frames of a `.data` without a delete flag."""
    idx, _, whole = index_segment(data, 1)
    assert whole
    return summarize_idx(idx).live_records


def fill(place: Place, count: int, *, tag: str = "job") -> None:
    place.log.append("a", [{"data": n, "tag": f"{tag}.{n}"} for n in range(count)])


def while_looking(
    place: Place, monkeypatch: pytest.MonkeyPatch, meddle: Callable[[], object]
) -> None:
    """Have something else done in the middle of the first look for what a delete names."""

    def meddle_then_match(*args: Any, **fields: Any) -> list[int]:  # noqa: ANN401
        monkeypatch.setattr(delete, "match_tags", match_tags)  # once is enough
        assert not place.log.engine.shards[0].lock.locked(), "whoever writes would wait"
        meddle()
        return match_tags(*args, **fields)

    monkeypatch.setattr(delete, "match_tags", meddle_then_match)


def test_what_is_written_while_a_delete_looks_around_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place, 3)
    while_looking(place, monkeypatch, lambda: fill(place, 2))
    deleted = place.log.delete("a", match=["tag", "Glob", "job.*"])
    assert (deleted.deleted, deleted.head_seq, deleted.count) == (3, 5, 2)
    assert seqs_of(place.log.diff("a")) == [4, 5]
    place.kill()
    assert seqs_of(place.log.diff("a")) == [4, 5]


def test_a_segment_that_is_indexed_while_a_delete_looks_around_is_met_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place, 50)
    place.log.engine.checkpoint()
    fill(place, 3)
    while_looking(place, monkeypatch, place.log.engine.maintain)
    assert place.log.delete("a", match=["tag", "Glob", "job.*"]).deleted == 53
    assert place.log.state("a").count == 0


def test_a_delete_that_looks_around_while_segments_move_finds_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_all() -> None:
        place.log.engine.checkpoint()
        place.log.engine.relocate()

    fill(place, 30)
    place.log.engine.checkpoint()
    fill(place, 30)
    while_looking(place, monkeypatch, move_all)
    assert place.log.delete("a", match=["tag", "Glob", "job.*"]).deleted == 60


def test_many_flags_of_a_segment_take_one_write_now_and_one_at_the_checkpoint(
    place: Place,
) -> None:
    fill(place, 50)
    place.log.engine.checkpoint()
    place.log.engine.maintain()
    data, idx = paths.segment_data_path(1, 1), paths.segment_idx_path(1, 1)
    before = len(place.disk.calls)
    place.log.delete("a", match=["tag", "Glob", "job.*"], before_seq=MANY + 1)
    now = Counter(place.disk.calls[before:])
    assert (now["write_at", idx], now["write_at", data]) == (1, 0)
    assert live_frames(place.disk.read(data)) == 50
    place.log.engine.checkpoint()
    assert live_frames(place.disk.read(data)) == 50 - MANY
    then = Counter(place.disk.calls[before:])
    assert (then["write_at", idx], then["write_at", data]) == (1, 1)
    place.disk.unlink(idx)
    place.cut()
    assert seqs_of(place.log.diff("a")) == list(range(MANY + 1, 51))


@pytest.mark.parametrize("end", [Place.kill, Place.cut])
def test_flags_that_no_checkpoint_has_written_are_found_on_the_log(
    place: Place, end: Callable[[Place], object]
) -> None:
    fill(place, 50)
    place.log.engine.checkpoint()
    place.log.delete("a", match=["tag", "Glob", "job.1*"])
    left = seqs_of(place.log.diff("a"))
    end(place)
    assert seqs_of(place.log.diff("a")) == left
    place.stop()
    place.disk.unlink(paths.segment_idx_path(1, 1))
    place.kill()
    assert seqs_of(place.log.diff("a")) == left


def test_a_segment_takes_flags_with_it_to_the_cold_tier_that_no_checkpoint_has_written(
    place: Place,
) -> None:
    fill(place, 50)
    place.log.engine.checkpoint()
    place.log.delete("a", match=["tag", "Glob", "job.1*"])
    left = seqs_of(place.log.diff("a"))
    place.log.engine.relocate()
    assert place.log.state("a").cold_segments == 1
    assert place.cold_disk is not None
    assert live_frames(place.cold_disk.read(paths.segment_data_path(1, 1))) == len(left)
    place.stop()
    assert seqs_of(place.log.diff("a")) == left


def test_few_flags_far_apart_are_written_one_by_one(place: Place) -> None:
    place.log.append("a", [{"data": "x" * 9_000, "tag": f"t{n % 2}"} for n in range(8)])
    place.log.engine.checkpoint()
    place.log.engine.create_topic("b", {})  # so that the first segment's numbers are known
    place.log.delete("a", match="t1")
    before = len(place.disk.calls)
    place.log.engine.checkpoint()
    written = Counter(place.disk.calls[before:])
    assert written["write_at", paths.segment_data_path(1, 1)] == 4


def test_a_delete_of_many_asks_the_lease_table_for_the_few_it_has() -> None:
    table = LeaseTable()
    for seq in (3, 5, 9):
        table.take_fresh(seq)
    table.forget(range(4, 100_000))
    assert list(table.jobs) == [3]


def test_an_eviction_of_whole_segments_looks_into_the_last_of_them_only(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        fill(place, 50)
        place.log.engine.checkpoint()
    fill(place, 5)
    place.log.delete("a", match="job.49")
    looked: set[int] = set()
    idx_of = Segment.idx

    def note_then_look(self: Segment) -> Buffer:
        looked.add(self.first_seq)
        return idx_of(self)

    monkeypatch.setattr(Segment, "idx", note_then_look)
    place.log.create("a", cap_records=49 * 2 + 5)
    assert place.log.state("a").evict_floor == 100  # the deleted one behind it was not lost
    assert looked == {51, 101}


def test_what_is_deleted_during_a_rewrite_is_carried_over_without_the_lock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place, 50)
    place.log.engine.checkpoint()
    place.log.engine.maintain()
    place.log.delete("a", match=["tag", "Glob", "job.*"], before_seq=MANY + 1)
    lock = place.log.engine.shards[0].lock
    carried: list[tuple[int, bool]] = []
    prepare, carry_over = Rewrite.prepare, Rewrite.carry_over

    def prepare_then_delete(rewrite: Rewrite) -> None:
        prepare(rewrite)
        place.log.delete("a", before_seq=None, match="job.45")

    def note_then_carry(rewrite: Rewrite, indexes: list[int]) -> None:
        carried.append((len(indexes), lock.locked()))
        carry_over(rewrite, indexes)

    monkeypatch.setattr(Rewrite, "prepare", prepare_then_delete)
    monkeypatch.setattr(Rewrite, "carry_over", note_then_carry)
    place.log.engine.maintain()
    assert carried == [(1, False), (0, True)]
    place.cut()
    assert seqs_of(place.log.diff("a")) == [41, 42, 43, 44, 45, 47, 48, 49, 50]
