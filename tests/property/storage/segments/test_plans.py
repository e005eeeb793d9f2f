"""What a rewrite keeps and which tag runs are merged."""

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from topics.storage.segments.rewrite import plan_live_frames
from topics.storage.segments.segment import fitting_stop
from topics.storage.segments.tag_runs import MANY_RUNS, MERGE_RUNS, plan_merge

ENTRY = struct.Struct("<IIQB3x")
DELETED = 8


def build_idx(entries: list[tuple[int, bool]]) -> bytes:
    """Lay entries out one behind the other: (frame size, is deleted)."""
    idx, offset = b"", 0
    for size, deleted in entries:
        idx += ENTRY.pack(offset, size, 0, DELETED if deleted else 0)
        offset += size
    return idx


ENTRIES = st.lists(
    st.tuples(st.integers(46, 99), st.booleans())
    | st.tuples(st.just(0), st.sampled_from((True,))),  # dropped by an earlier rewrite
    min_size=1,
    max_size=20,
)


@given(entries=ENTRIES)
def test_a_rewrite_keeps_every_live_frame_and_the_last_one(entries: list[tuple[int, bool]]) -> None:
    kept = plan_live_frames(build_idx(entries))
    expected: list[int] = []
    offset = 0
    for i, (size, deleted) in enumerate(entries):
        if not deleted or i == len(entries) - 1:
            expected += range(offset, offset + size)
        offset += size
    assert [at for start, stop in kept for at in range(start, stop)] == expected
    for (_, end), (start, _) in pairwise(kept):
        assert end < start, "neighbours are joined"


@given(entries=ENTRIES, choose=st.data())
def test_what_fits_is_the_longest_prefix_but_one_entry_at_least(
    entries: list[tuple[int, bool]], choose: st.DataObject
) -> None:
    idx = build_idx(entries)
    start = choose.draw(st.integers(0, len(entries) - 1))
    stop = choose.draw(st.integers(start + 1, len(entries)))
    end_offset = choose.draw(st.integers(0, 2_000))
    ends = [sum(size for size, _ in entries[: i + 1]) for i in range(len(entries))]
    fitting = [i + 1 for i in range(start, stop) if ends[i] <= end_offset]
    assert fitting_stop(idx, start, stop, end_offset) == max([start + 1, *fitting])


@given(levels=st.lists(st.integers(0, 5), max_size=80))
def test_a_merge_takes_eight_neighbours_of_one_level_or_the_cheapest_of_too_many(
    levels: list[int],
) -> None:
    equal = [
        start
        for start in range(len(levels) - MERGE_RUNS + 1)
        if len(set(levels[start : start + MERGE_RUNS])) == 1
    ]
    planned = plan_merge(levels)
    if planned is None:
        assert not equal
        assert len(levels) <= MANY_RUNS
        return
    start, stop = planned
    assert stop - start == MERGE_RUNS
    assert 0 <= start < stop <= len(levels)
    if equal:
        assert start in equal
    else:
        assert len(levels) > MANY_RUNS
        cost = sum(levels[start:stop])
        assert all(
            cost <= sum(levels[at : at + MERGE_RUNS]) for at in range(len(levels) - MERGE_RUNS + 1)
        )


@given(added=st.integers(0, 400))
def test_merging_as_planned_keeps_few_runs(added: int) -> None:
    counts: list[int] = []
    for _ in range(added):
        counts.append(4)
        while (planned := plan_merge([count.bit_length() // 3 for count in counts])) is not None:
            start, stop = planned
            counts[start:stop] = [sum(counts[start:stop])]
    assert sum(counts) == 4 * added
    assert len(counts) <= MANY_RUNS
