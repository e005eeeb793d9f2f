"""Reads between two times, case by case."""

import pytest
from tests.unit.engine.place import Place, gap_of, seqs_of

from topics.engine import diff
from topics.engine.request import build_write
from topics.errors import RequestError
from topics.model.diff import Page

START_MS = 1_700_000_000_000


def fill(place: Place, count: int, *, topic: str = "a", tag: str | None = None) -> None:
    """Append one record every ten milliseconds: seq n at `ts_of(n)`."""
    for number in range(count):
        place.log.append(topic, [{"data": number, **({"tag": tag} if tag else {})}])
        place.clock.advance_ms(10)


def ts_of(seq: int) -> int:
    return START_MS + 10 * (seq - 1)


def test_the_first_time_is_inside_and_the_last_is_not(place: Place) -> None:
    fill(place, 10)
    page = place.log.diff("a", from_ts=ts_of(3), until_ts=ts_of(6))
    assert seqs_of(page) == [3, 4, 5]
    assert (page.next_from_seq, page.until_reached) == (5, True)
    assert (page.caught_up, page.lag) == (False, 5), "both still count from the head"


def test_the_later_one_of_seq_and_time_counts(place: Place) -> None:
    fill(place, 6)
    assert seqs_of(place.log.diff("a", from_seq=1, from_ts=ts_of(5))) == [5, 6]
    assert seqs_of(place.log.diff("a", from_seq=5, from_ts=ts_of(2))) == [6]


def test_a_cursor_behind_the_end_stays_where_it_is(place: Place) -> None:
    fill(place, 6)
    page = place.log.diff("a", from_seq=5, until_ts=ts_of(3))
    assert (seqs_of(page), page.next_from_seq, page.until_reached) == ([], 5, True)


def test_a_page_that_is_full_before_the_end_does_not_reach_it(place: Place) -> None:
    fill(place, 6)
    page = place.log.diff("a", until_ts=ts_of(5), limit=3)
    assert (seqs_of(page), page.until_reached) == ([1, 2, 3], False)
    page = place.log.diff("a", from_seq=3, until_ts=ts_of(5), limit=1)
    assert (seqs_of(page), page.until_reached) == ([4], True), "nothing is left before it"


def test_a_reader_who_asks_for_no_end_is_told_of_none(place: Place) -> None:
    fill(place, 2)
    assert place.log.diff("a", from_ts=ts_of(1)).until_reached is None


def test_the_clock_reaches_the_end_when_no_record_does(place: Place) -> None:
    fill(place, 3)
    end = place.clock.now_ms() + 5
    assert place.log.diff("a", until_ts=end).until_reached is False
    place.clock.advance_ms(5)
    page = place.log.diff("a", until_ts=end)
    assert (page.caught_up, page.until_reached) == (True, True)


def test_a_write_on_its_way_keeps_the_end_from_being_reached(place: Place) -> None:
    place.log.create("a", durability="fsync")
    fill(place, 1)
    engine = place.log.engine
    topic = engine.topic("a")
    shard, ticket = engine.submit_append(topic, build_write([{"data": 2}], engine.config))
    place.clock.advance_ms(100)
    end = place.clock.now_ms()
    assert place.log.diff("a", until_ts=end).until_reached is False, "its time is before"
    shard.commit.commit(ticket)
    page = place.log.diff("a", until_ts=end)
    assert (seqs_of(page), page.until_reached) == ([1, 2], True)


def test_a_copy_on_its_way_keeps_the_end_from_being_reached(place: Place) -> None:
    engine = place.log.engine
    place.log.create("a")
    place.log.create("b")
    engine.put_router("r", {"source": "a", "dest": "b"})
    fill(place, 2)
    end = place.clock.now_ms()
    request = diff.DiffRequest(until_ts=end)
    assert engine.read(engine.topic("b"), request).until_reached is False
    page = place.log.diff("b", until_ts=end)
    assert (seqs_of(page), page.until_reached) == ([1, 2], True)


def test_a_time_to_come_hides_what_is_written_before_it(place: Place) -> None:
    fill(place, 2)
    later = ts_of(5)
    page = place.log.diff("a", from_ts=later)
    assert (seqs_of(page), page.next_from_seq) == ([], 2)
    fill(place, 4)
    assert seqs_of(place.log.diff("a", from_seq=2, from_ts=later)) == [5, 6]


def test_an_eviction_before_the_first_time_is_announced_unless_a_record_proves_it_older(
    place: Place,
) -> None:
    place.log.create("a", cap_records=4)
    fill(place, 12)
    place.log.engine.checkpoint()
    place.log.engine.maintain()
    assert place.log.engine.topic("a").runs[0].first_seq == 9
    assert gap_of(place.log.diff("a", from_ts=ts_of(5))) == (1, 8, "cap")
    assert gap_of(place.log.diff("a", from_ts=ts_of(10))) is None


def test_a_loss_is_announced_no_further_than_the_window(place: Place) -> None:
    place.log.create("a", cap_records=4)
    fill(place, 12)
    page = place.log.diff("a", from_ts=ts_of(3), until_ts=ts_of(6))
    assert (gap_of(page), page.next_from_seq, page.until_reached) == ((3, 5, "cap"), 5, True)
    page = place.log.diff("a", from_ts=ts_of(6), until_ts=ts_of(11))
    assert (gap_of(page), seqs_of(page)) == ((6, 8, "cap"), [9, 10])


def test_a_filter_does_not_keep_a_window_from_its_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "SCAN_RECORDS_MAX", 4)
    monkeypatch.setattr(diff, "WINDOW_RECORDS", 2)
    fill(place, 12, tag="x")
    cursor = 0
    pages: list[Page] = []
    while not pages or not pages[-1].until_reached:
        pages.append(place.log.diff("a", from_seq=cursor, until_ts=ts_of(9), match="y"))
        assert pages[-1].records_scanned <= 4
        assert pages[-1].next_from_seq > cursor
        cursor = pages[-1].next_from_seq
    assert [page.next_from_seq for page in pages] == [4, 8]


@pytest.mark.parametrize("count", [20, 400])
def test_what_is_before_a_time_is_not_looked_at(place: Place, count: int) -> None:
    fill(place, count)
    place.log.engine.checkpoint()
    page = place.log.diff("a", from_ts=ts_of(count - 1), until_ts=ts_of(count))
    assert (seqs_of(page), page.records_scanned) == ([count - 1], 1)


@pytest.mark.parametrize(
    "window", [{"from_ts": -1}, {"until_ts": -1}, {"from_ts": 2, "until_ts": 1}, {"from_ts": 2**64}]
)
def test_a_window_that_cannot_be_is_refused(place: Place, window: dict[str, int]) -> None:
    fill(place, 1)
    with pytest.raises(RequestError, match="_ts"):
        place.log.diff("a", **window)  # type: ignore[arg-type] # only numbers


def test_a_read_looks_at_no_more_bytes_than_its_share_however_few_pass_the_filter(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "SCAN_BYTES_MAX", 4 * 1024)
    monkeypatch.setattr(diff, "WINDOW_RECORDS", 2)
    place.log.append("a", [{"data": "x" * 1_000, "tag": "x"} for _ in range(12)])
    scanned, cursor = [], 0
    while cursor < 12:
        page = place.log.diff("a", from_seq=cursor, match="y")
        assert (page.count, page.next_from_seq) == (0, cursor + page.records_scanned)
        scanned.append(page.records_scanned)
        cursor = page.next_from_seq
    assert scanned == [4, 4, 4]
    assert len(place.log.diff("a", match="x").records) == 12


def test_a_reader_with_many_nodes_looks_at_fewer_records_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "WINDOW_RECORDS", 2)
    monkeypatch.setattr(diff, "SCAN_RECORDS_MAX", 12)
    place.fill("t", 12, node="n1")
    topic = place.log.engine.topic("t")
    looked = []
    for nodes in (1, 2 * diff.NODES_A_LOOK, 100 * diff.NODES_A_LOOK):
        own = tuple(f"n{number + 1}".encode() for number in range(nodes))
        page = diff.read_diff(topic, diff.DiffRequest(nodes=own))
        assert (page.count, page.next_from_seq) == (0, page.records_scanned)
        looked.append(page.records_scanned)
    assert looked == [12, 4, 2]
