"""Reads between two times, against a look at every record there ever was.

Topics are written, deleted, evicted, checkpointed, reclaimed, moved to the cold tier and cut from
power at random. Then windows are read page by page.
Keeps: exactly the live records of a window are delivered; a loss inside of it is announced, and
none that a live record proves to be outside.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.place import Place

from topics.model.diff import Page

START_MS = 1_700_000_000_000
SPAN_MS = 30
PAGES_MAX = 400

APPEND = st.tuples(st.just("append"), st.integers(1, 6))
STEPS = st.lists(
    st.one_of(
        APPEND,
        APPEND,
        st.tuples(st.just("delete_tag"), st.integers(0, 3)),
        st.tuples(st.just("delete_below"), st.integers(1, 30)),
        st.tuples(st.just("evict"), st.integers(1, 9)),
        st.tuples(st.sampled_from(("checkpoint", "maintain", "relocate", "cut")), st.just(0)),
    ),
    min_size=12,
    max_size=30,
)
OFFSETS = st.integers(-2, SPAN_MS + 2)


class Past:
    """A topic, and the `$ts` of every seq that was ever handed out."""

    def __init__(self, *, durability: str) -> None:
        self.place = Place()
        self.place.log.create("a", durability=durability)
        self.ts: dict[int, int] = {}

    def step(self, kind: str, number: int) -> None:
        getattr(self, f"_{kind}")(number)

    def _append(self, count: int) -> None:
        self.place.clock.advance_ms(count % 3)
        records = [{"data": n, "tag": f"t{n % 4}"} for n in range(count)]
        done = self.place.log.append("a", records)
        topic = self.place.log.engine.topic("a")
        self.ts |= dict.fromkeys(range(done.first_seq, done.last_seq + 1), topic.last_ts)

    def _delete_tag(self, number: int) -> None:
        self.place.log.delete("a", match=f"t{number}")

    def _delete_below(self, seq: int) -> None:
        self.place.log.delete("a", before_seq=seq)

    def _evict(self, records: int) -> None:
        self.place.log.create("a", cap_records=records)
        self.place.log.engine.sweep()
        self.place.log.create("a", cap_records=0)

    def _checkpoint(self, _: int) -> None:
        self.place.log.engine.checkpoint()

    def _maintain(self, _: int) -> None:
        self.place.log.checkpoint()

    def _relocate(self, _: int) -> None:
        self.place.log.engine.relocate()

    def _cut(self, _: int) -> None:
        self.place.cut()

    def really_lost(self, announced: set[int]) -> set[int]:
        """Return those that nobody deleted: a gap reaches to the first live record over them."""
        topic = self.place.log.engine.topic("a")
        holes = [hole for hole in topic.holes if hole.announced]
        return {
            seq
            for seq in announced
            if seq < topic.floors.evict_floor
            or any(hole.first_seq <= seq <= hole.last_seq for hole in holes)
        }

    def read(self, **window: Any) -> tuple[dict[int, int], set[int], Page]:  # noqa: ANN401
        """Return the `$ts` of what is delivered, the seqs announced as lost, and the last page."""
        records: dict[int, int] = {}
        lost: set[int] = set()
        cursor = window.pop("from_seq", 0)
        for _ in range(PAGES_MAX):
            page = self.place.log.diff("a", from_seq=cursor, limit=3, **window)
            assert page.next_from_seq >= cursor
            cursor = page.next_from_seq
            fresh = {record.seq: record.ts for record in page.records}
            gap = page.tombstone
            gone = set(range(gap.gap_from, gap.gap_to + 1)) if gap else set()
            assert not fresh.keys() & records.keys()
            assert not gone & (lost | fresh.keys())
            records |= fresh
            lost |= gone
            if page.caught_up or page.until_reached:
                return records, lost, page
        raise AssertionError("the pages do not end")


@settings(max_examples=150, deadline=None)
@given(
    durability=st.sampled_from(("disk", "fsync")),
    steps=STEPS,
    times=st.tuples(OFFSETS, OFFSETS),
    from_seq=st.integers(0, 12),
)
def test_a_window_shows_what_a_look_at_everything_finds(
    durability: str, steps: list[tuple[str, int]], times: tuple[int, int], from_seq: int
) -> None:
    past = Past(durability=durability)
    past.step("append", 4)
    for kind, number in steps:
        past.step(kind, number)
    state = past.place.log.state("a")
    from_seq = min(from_seq, state.head_seq)
    from_ts, until_ts = (START_MS + offset for offset in sorted(times))
    live, all_lost, _ = past.read(from_seq=from_seq)
    records, lost, last = past.read(from_seq=from_seq, from_ts=from_ts, until_ts=until_ts)
    assert records == {seq: ts for seq, ts in live.items() if from_ts <= ts < until_ts}
    assert lost <= all_lost
    for seq in past.really_lost(all_lost) - lost:
        assert not from_ts <= past.ts.get(seq, from_ts - 1) < until_ts, "a loss was hidden"
    for seq in lost:
        assert not any(ts < from_ts for other, ts in live.items() if other > seq)
        assert not any(ts >= until_ts for other, ts in live.items() if other < seq)
    reached = past.place.clock.now_ms() >= until_ts or any(ts >= until_ts for ts in live.values())
    assert last.until_reached is reached


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, times=st.tuples(OFFSETS, OFFSETS, OFFSETS))
def test_windows_join_without_overlap(
    steps: list[tuple[str, int]], times: tuple[int, int, int]
) -> None:
    past = Past(durability="disk")
    past.step("append", 4)
    for kind, number in steps:
        past.step(kind, number)
    first, middle, last = (START_MS + offset for offset in sorted(times))
    early, _, _ = past.read(from_ts=first, until_ts=middle)
    late, _, _ = past.read(from_ts=middle, until_ts=last)
    whole, _, _ = past.read(from_ts=first, until_ts=last)
    assert not early.keys() & late.keys()
    assert early | late == whole
