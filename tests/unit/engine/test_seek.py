"""From a time to a seq: exact where a `$ts` is known, careful where it is lost."""

import pytest
from tests.unit.engine.place import Place

from topics.engine import seek
from topics.engine.topics.floors import Hole
from topics.engine.topics.topic import Run
from topics.kernel import bisect_ts
from topics.storage.disk import paths

START_MS = 1_700_000_000_000


def fill(place: Place, topic: str, count: int) -> None:
    """Append one record every ten milliseconds: seq n at `ts_of(n)`."""
    for number in range(count):
        place.log.append(topic, [{"data": number, "tag": f"t{number}"}])
        place.clock.advance_ms(10)


def ts_of(seq: int) -> int:
    return START_MS + 10 * (seq - 1)


def seq_at(place: Place, ts: int) -> int:
    return place.log.engine.seq_at(place.log.engine.topic("a"), ts)


@pytest.mark.parametrize("checkpointed", [0, 5, 9, 10])
def test_the_first_seq_at_or_after_a_time_is_found_in_segments_and_in_the_tail(
    place: Place, checkpointed: int
) -> None:
    fill(place, "a", checkpointed)
    place.log.engine.checkpoint()
    fill(place, "a", 10 - checkpointed)
    assert seq_at(place, 0) == 1
    for seq in range(1, 11):
        assert seq_at(place, ts_of(seq) - 1) == seq
        assert seq_at(place, ts_of(seq)) == seq
        assert seq_at(place, ts_of(seq) + 1) == seq + 1


def test_records_of_one_moment_begin_at_the_first_of_them(place: Place) -> None:
    for _ in range(3):
        place.log.append("a", [{"data": n} for n in range(3)])
    place.log.engine.checkpoint()
    assert seq_at(place, START_MS) == 1
    assert seq_at(place, START_MS + 1) == 10


def test_an_empty_topic_begins_at_one(place: Place) -> None:
    place.log.create("a")
    assert seq_at(place, START_MS) == 1


def test_deleted_records_keep_their_time(place: Place) -> None:
    fill(place, "a", 6)
    place.log.delete("a", match="t2")
    place.log.engine.checkpoint()
    assert seq_at(place, ts_of(3)) == 3


def test_a_reclaimed_stretch_is_passed_over(place: Place) -> None:
    fill(place, "a", 12)
    place.log.engine.checkpoint()
    place.log.delete("a", before_seq=9)
    place.log.engine.maintain()
    assert [run.first_seq for run in place.log.engine.topic("a").runs] == [9]
    assert seq_at(place, ts_of(3)) == 9
    place.log.delete("a", before_seq=13)
    place.log.engine.maintain()
    assert seq_at(place, ts_of(3)) == 13


def test_what_was_evicted_counts_as_at_or_after_unless_its_time_is_known(place: Place) -> None:
    place.log.create("a", cap_records=4)
    fill(place, "a", 12)
    assert seq_at(place, ts_of(3)) == 3, "its entry is still there"
    place.log.engine.checkpoint()
    place.log.engine.maintain()
    assert place.log.engine.topic("a").runs[0].first_seq == 9
    assert seq_at(place, ts_of(3)) == 1
    assert seq_at(place, ts_of(9)) == 1
    assert seq_at(place, ts_of(9) + 1) == 10, "9 is above the floor and before"


def test_a_hole_counts_as_at_or_after_unless_a_record_behind_it_is_before(place: Place) -> None:
    fill(place, "a", 3)
    topic = place.log.engine.topic("a")
    topic.apply_hole(Hole(4, 6, "crash"))
    topic.head_seq, topic.next_seq = 6, 7
    assert seq_at(place, ts_of(9)) == 4
    fill(place, "a", 2)
    assert seq_at(place, ts_of(3)) == 3
    assert seq_at(place, ts_of(3) + 1) == 4, "7 is after, 4 to 6 may be"
    assert seq_at(place, ts_of(4) + 1) == 8


def test_no_cold_file_is_read(place: Place) -> None:
    fill(place, "a", 20)
    place.log.engine.checkpoint()
    assert place.log.engine.relocate() > 0
    assert place.cold_disk is not None
    directory = paths.topic_dir(place.log.engine.topic("a").id)
    names = place.cold_disk.list(directory)
    assert names
    for name in names:
        place.cold_disk.unlink(f"{directory}/{name}")
    for seq in range(1, 21):
        assert seq_at(place, ts_of(seq)) == seq


@pytest.mark.parametrize("count", [8, 400])
def test_one_index_is_searched_however_many_segments_there_are(
    place: Place, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place, "a", count)
    place.log.engine.checkpoint()
    assert len(place.log.engine.topic("a").runs) >= count // 4
    searched: list[int] = []

    def counting(idx: bytes, start: int, stop: int, ts: int) -> int:
        searched.append(stop - start)
        return bisect_ts(idx, start, stop, ts)

    looked: list[int] = []
    first_ts = seek._first_ts

    def looking(runs: list[Run], at: int, stop: int) -> int:
        looked.append(at)
        return first_ts(runs, at, stop)

    monkeypatch.setattr(seek, "bisect_ts", counting)
    monkeypatch.setattr(seek, "_first_ts", looking)
    assert seq_at(place, ts_of(count // 2)) == count // 2
    assert len(searched) == 1
    assert searched[0] <= 4
    assert len(looked) <= 8, "the logarithm of a hundred runs"
