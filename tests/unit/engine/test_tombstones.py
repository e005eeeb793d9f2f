"""What is announced and what is silent: the tables of the semantics, case by case."""

import pytest
from tests.unit.engine.place import Place, gap_of, seqs_of


@pytest.mark.parametrize(
    ("from_seq", "gap", "seqs"),
    [
        (0, None, [4, 5]),  # a deleted front is silent, the cursor moves on
        (2, None, [4, 5]),
        (3, None, [4, 5]),
        (5, None, []),
    ],
)
def test_a_deleted_front_does_not_tombstone(
    place: Place, from_seq: int, gap: tuple[int, int, str] | None, seqs: list[int]
) -> None:
    place.fill("a", 5)
    place.log.delete("a", before_seq=4)
    state = place.log.state("a")
    assert (state.earliest_seq, state.evict_floor) == (4, 1)
    page = place.log.diff("a", from_seq=from_seq)
    assert (gap_of(page), seqs_of(page)) == (gap, seqs)
    assert page.next_from_seq == 5


@pytest.mark.parametrize(
    ("from_seq", "gap", "seqs"),
    [
        (0, (1, 3, "cap"), [4, 5]),
        (1, (2, 3, "cap"), [4, 5]),
        (2, (3, 3, "cap"), [4, 5]),
        (3, None, [4, 5]),
        (4, None, [5]),
    ],
)
def test_an_eviction_does(
    place: Place, from_seq: int, gap: tuple[int, int, str] | None, seqs: list[int]
) -> None:
    place.log.create("a", cap_records=2)
    place.fill("a", 5)
    page = place.log.diff("a", from_seq=from_seq)
    assert (gap_of(page), seqs_of(page)) == (gap, seqs)


def test_the_gap_reaches_to_the_first_live_record_over_deleted_ones(place: Place) -> None:
    place.log.create("a", cap_records=3)
    place.fill("a", 3)
    place.fill("a", 2, tag="x")  # 1 and 2 are evicted
    place.log.delete("a", before_seq=4)
    state = place.log.state("a")
    assert (state.evict_floor, state.earliest_seq) == (3, 4)
    assert gap_of(place.log.diff("a")) == (1, 3, "cap")
    assert gap_of(place.log.diff("a", from_seq=1)) == (2, 3, "cap")
    assert gap_of(place.log.diff("a", from_seq=2)) is None, "3 was deleted, not lost"


def test_deleted_slots_do_not_count_towards_a_cap_nor_move_its_floor(place: Place) -> None:
    place.log.create("a", cap_records=3)
    place.fill("a", 3, tag="x")
    place.log.delete("a", match="x")
    place.fill("a", 3)
    assert place.log.state("a").evict_floor == 1
    assert gap_of(place.log.diff("a")) is None
    place.fill("a", 1)
    assert gap_of(place.log.diff("a")) == (1, 4, "cap")


def test_expiry_is_announced_and_exact_to_the_millisecond(place: Place) -> None:
    place.log.create("a", ttl_ms=100)
    place.fill("a", 1)
    place.clock.advance_ms(1)
    place.fill("a", 1)
    place.clock.advance_ms(99)
    assert gap_of(place.log.diff("a")) is None, "100 ms old is not older than 100 ms"
    place.clock.advance_ms(1)
    page = place.log.diff("a")
    assert (gap_of(page), seqs_of(page)) == ((1, 1, "ttl"), [2])
    place.clock.advance_ms(1)
    page = place.log.diff("a")
    assert (gap_of(page), seqs_of(page), page.next_from_seq) == ((1, 2, "ttl"), [], 2)
    state = place.log.state("a")
    assert (state.count, state.bytes, state.earliest_seq) == (0, 0, 3)


def test_cap_and_ttl_together_are_mixed(place: Place) -> None:
    place.log.create("a", ttl_ms=100, cap_records=2)
    place.fill("a", 3)
    assert gap_of(place.log.diff("a")) == (1, 1, "cap")
    place.clock.advance_ms(101)
    assert gap_of(place.log.diff("a")) == (1, 3, "mixed")


def test_a_cap_of_bytes_evicts_until_it_fits_even_what_was_just_written(place: Place) -> None:
    place.log.create("a", cap_bytes=10)
    place.log.append("a", [{"data": "xxxx"}])  # 6 bytes
    place.log.append("a", [{"data": "y"}])
    assert place.log.state("a").bytes == 9
    place.log.append("a", [{"data": "zz"}])
    assert gap_of(place.log.diff("a")) == (1, 1, "cap")
    place.log.append("a", [{"data": "x" * 20}])
    state = place.log.state("a")
    assert (state.count, state.earliest_seq, state.head_seq) == (0, 5, 4)


def test_tightening_a_cap_applies_to_what_is_there(place: Place) -> None:
    place.fill("a", 5)
    assert place.log.create("a", cap_records=2).earliest_seq == 4
    assert gap_of(place.log.diff("a")) == (1, 3, "cap")
    place.log.create("a", cap_records=0)
    assert gap_of(place.log.diff("a")) == (1, 3, "cap"), "what was lost stays announced"


def test_a_recreated_topic_starts_again_and_says_so(place: Place) -> None:
    place.fill("a", 5)
    before = place.log.state("a").epoch
    assert place.log.drop("a")
    place.fill("a", 2)
    assert place.log.state("a").epoch != before
    page = place.log.diff("a", from_seq=5)
    assert (gap_of(page), seqs_of(page)) == ((1, 2, "recreated"), [1, 2])
    assert gap_of(place.log.diff("a", from_seq=2)) is None


@pytest.mark.parametrize("restart", ["stop", "kill"])
def test_floors_and_reasons_survive_a_restart(place: Place, restart: str) -> None:
    place.log.create("a", cap_records=2)
    place.fill("a", 5)
    place.log.delete("a", before_seq=5)
    getattr(place, restart)()
    page = place.log.diff("a")
    assert (gap_of(page), seqs_of(page)) == ((1, 4, "cap"), [5])
    assert gap_of(place.log.diff("a", from_seq=3)) is None


def test_skipped_records_advance_the_cursor(place: Place) -> None:
    place.fill("a", 3, node="me")
    page = place.log.diff("a", node="me")
    assert (seqs_of(page), page.next_from_seq, page.caught_up) == ([], 3, True)
    place.log.create("a", dedupe_node=False)
    assert seqs_of(place.log.diff("a", node="me")) == [1, 2, 3]


def test_a_delete_touches_only_what_exists_at_the_call(place: Place) -> None:
    place.fill("a", 2, tag="x")
    assert place.log.delete("a", before_seq=100).deleted == 2
    place.fill("a", 2, tag="x")
    assert seqs_of(place.log.diff("a")) == [3, 4]
    assert place.log.delete("a", match="x").deleted == 2
    place.fill("a", 1, tag="x")
    place.log.engine.checkpoint()
    place.kill()  # the delete is replayed over a segment that holds the later record
    assert seqs_of(place.log.diff("a")) == [5]


def test_a_clock_that_steps_back_never_lets_time_fall(place: Place) -> None:
    place.fill("a", 1)
    place.clock.set_ms(place.clock.now_ms() - 5_000)
    place.fill("a", 1)
    place.kill()
    place.fill("a", 1)
    times = [record.ts for record in place.log.diff("a").records]
    assert times == sorted(times)
