"""What is announced and what is silent: the tables of the semantics, case by case."""

from typing import Any

import msgspec
import pytest
from tests.unit.engine.place import Place, gap_of, seqs_of

from topics.engine.topics.former import FOLDED_NAMES, NAMES_MAX, FormerLives
from topics.kernel import xxh3_64
from topics.storage.disk import paths
from topics.storage.disk.data_dir import write_file
from topics.storage.snapshots.snapshot import HEADER, MAGIC, VERSION, load_newest_snapshot


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


def beyond(place: Place, from_seq: int, topic: str = "a") -> tuple[Any, list[int], int]:
    page = place.log.diff(topic, from_seq=from_seq)
    return gap_of(page), seqs_of(page), page.next_from_seq


@pytest.mark.parametrize("restart", ["", "stop", "kill", "cut"])
def test_a_cursor_beyond_the_head_of_the_only_life_is_no_reason_to_begin_anew(
    place: Place, restart: str
) -> None:
    place.log.create("a", durability="fsync")
    place.log.create("empty", durability="fsync")
    place.fill("a", 3)
    if restart:
        getattr(place, restart)()
    page = place.log.diff("a", from_seq=9)
    assert (gap_of(page), seqs_of(page)) == ((4, 9, "beyond_head"), [])
    assert (page.next_from_seq, page.caught_up, page.lag) == (3, True, 0)
    assert page.tombstone is not None
    assert page.tombstone.missed_estimate == 0
    assert beyond(place, 2**64 - 1) == ((4, 2**64 - 1, "beyond_head"), [], 3)
    assert beyond(place, 1, "empty") == ((1, 1, "beyond_head"), [], 0)
    place.fill("a", 1)
    assert beyond(place, page.next_from_seq) == (None, [4], 4), "nothing was passed over"


def test_a_window_of_time_does_not_begin_anew_either(place: Place) -> None:
    place.fill("a", 3)
    page = place.log.diff("a", from_seq=9, from_ts=1, until_ts=place.clock.now_ms() + 1)
    assert (gap_of(page), seqs_of(page)) == ((4, 9, "beyond_head"), [])


@pytest.mark.parametrize("restart", ["", "stop"])
def test_only_a_cursor_that_an_earlier_life_has_reached_is_told_of_another_one(
    place: Place, restart: str
) -> None:
    for count in (5, 3):
        place.fill("a", count)
        place.log.drop("a")
    place.fill("a", 1)
    place.fill("b", 1)
    if restart:
        getattr(place, restart)()
    assert beyond(place, 5) == ((1, 1, "recreated"), [1], 1)
    assert beyond(place, 6) == ((2, 6, "beyond_head"), [], 1)
    assert beyond(place, 5, "b") == ((2, 5, "beyond_head"), [], 1), "no other name had a life"


@pytest.mark.parametrize("restart", ["kill", "cut"])
def test_where_only_the_log_tells_of_an_end_any_cursor_may_be_of_the_life_before(
    place: Place, restart: str
) -> None:
    place.fill("a", 2)
    place.log.engine.snapshot()
    place.log.drop("a")
    place.fill("c", 1)
    place.log.drop("c")
    for topic in ("a", "b", "c"):
        place.log.create(topic, durability="fsync")
        place.fill(topic, 1)
    getattr(place, restart)()
    for topic, reason in (("a", "recreated"), ("b", "beyond_head"), ("c", "recreated")):
        gap, _, _ = beyond(place, 9, topic)
        assert gap[2] == reason
    place.stop()
    assert beyond(place, 9)[0] == (1, 1, "recreated"), "and a snapshot knows it too"


def test_a_partition_that_was_deleted_had_a_life_too(place: Place) -> None:
    name = "p-0"  # where this key goes
    for count in (4, 1):
        place.log.drop("p")
        place.log.create("p", partitions=2)
        for n in range(count):
            place.log.append("p", [{"data": n, "key": "user2"}])
    assert beyond(place, 4, name) == ((1, 1, "recreated"), [1], 1)
    assert beyond(place, 5, name) == ((2, 5, "beyond_head"), [], 1)


@pytest.mark.parametrize("durability", ["memory", "ephemeral"])
def test_what_a_crash_took_is_not_read_twice_nor_passed_over(place: Place, durability: str) -> None:
    """Such a cursor is right, and beyond the head: it goes on where the records go on."""
    place.log.create("a", durability=durability)
    place.fill("a", 3)
    place.cut()
    head_seq = place.log.state("a").head_seq
    assert beyond(place, head_seq + 1) == (
        (head_seq + 1, head_seq + 1, "beyond_head"),
        [],
        head_seq,
    )
    place.fill("a", 1)
    assert seqs_of(place.log.diff("a", from_seq=head_seq)) == [head_seq + 1]


def test_seqs_that_were_kept_back_for_a_crash_are_within_the_head(place: Place) -> None:
    place.fill("a", 3)
    place.cut()
    assert beyond(place, 3)[0] != (1, 3, "recreated")
    assert place.log.state("a").head_seq >= 3, "reserved, so never handed out again"
    gap, records, _ = beyond(place, 2)
    assert gap is None or gap[2] == "crash"
    assert 3 not in records


def test_a_snapshot_of_before_does_not_know_who_is_gone(place: Place) -> None:
    place.fill("a", 1)
    place.fill("b", 1)
    place.log.drop("b")
    place.log.close()
    snapshot_as_before(place)
    place.open()
    assert beyond(place, 9)[0] == (1, 1, "recreated"), "it may have had a life before"


def test_a_snapshot_of_before_with_every_topic_there_ever_was_knows_that_none_is_gone(
    place: Place,
) -> None:
    place.fill("a", 1)
    place.log.close()
    snapshot_as_before(place)
    place.open()
    assert beyond(place, 9)[0] == (2, 9, "beyond_head")


def snapshot_as_before(place: Place) -> None:
    """Write the newest snapshot as versions wrote it that kept nothing of topics that are gone."""
    loaded = load_newest_snapshot(place.disk)
    assert loaded is not None
    number, snapshot = loaded
    fields = msgspec.structs.asdict(snapshot)
    kept = [fields[name] for name in snapshot.__struct_fields__ if not name.startswith("former")]
    body = msgspec.msgpack.encode(kept)
    path = paths.snapshot_path(number)
    write_file(place.disk, path, HEADER.pack(MAGIC, VERSION, len(body), xxh3_64(body)) + body)


def test_of_ten_thousand_names_that_are_gone_the_oldest_count_together() -> None:
    lives = FormerLives()
    for n in range(NAMES_MAX + 1):
        lives.note(f"t{n}", n)
    last = FOLDED_NAMES - 1
    assert (len(lives.seqs), lives.rest) == (NAMES_MAX + 1 - FOLDED_NAMES, last)
    assert (lives.of("t4"), lives.of("never"), lives.of("t9999")) == (last, last, 9999)
    lives.note("t9999", 2)
    assert lives.of("t9999") == 9999, "the highest of all lives"


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
