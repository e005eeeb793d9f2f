"""The dealing rule: all that there is, nobody more than wanted, in proportion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.queues.deal import plan_deal


@pytest.mark.parametrize(
    ("available", "wants", "shares"),
    [
        (10, [3, 4], [3, 4]),
        (6, [6, 3], [4, 2]),
        (3, [1, 1, 1, 1], [1, 1, 1, 0]),
        (5, [10, 10, 1], [3, 2, 0]),
        (0, [5, 5], [0, 0]),
        (4, [], []),
    ],
)
def test_jobs_are_dealt_in_proportion(available: int, wants: list[int], shares: list[int]) -> None:
    assert plan_deal(available, wants) == shares


@given(st.integers(0, 3_000), st.lists(st.integers(1, 1_000), min_size=1, max_size=20))
def test_every_deal_is_whole_and_fair(available: int, wants: list[int]) -> None:
    shares = plan_deal(available, wants)
    total = sum(wants)
    assert sum(shares) == min(available, total)
    for share, want in zip(shares, wants, strict=True):
        assert 0 <= share <= want
        if available < total:
            assert abs(share - available * want / total) < 1
