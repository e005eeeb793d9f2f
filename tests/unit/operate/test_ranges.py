"""Ranges against plain sets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from topics.operate.ranges import Range, count, intersect, join, subtract

ranges = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))),
    max_size=8,
)


def as_set(of: list[Range]) -> set[int]:
    return {seq for first, last in of for seq in range(first, last + 1)}


@given(ranges)
def test_joined_ranges_are_the_same_seqs_sorted_and_apart(given_ranges: list[Range]) -> None:
    joined = join(given_ranges)
    assert as_set(joined) == as_set(given_ranges)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(joined))
    assert count(joined) == len(as_set(given_ranges))


@given(ranges, ranges)
def test_difference_and_intersection_are_those_of_sets(
    one: list[Range], other: list[Range]
) -> None:
    left, right = join(one), join(other)
    assert as_set(subtract(left, right)) == as_set(one) - as_set(other)
    assert as_set(intersect(left, right)) == as_set(one) & as_set(other)
