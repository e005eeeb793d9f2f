"""Rounds: everyone in every round, nobody always first, medians against outliers."""

from benchmarks.server.load import Figures
from benchmarks.server.rounds import in_turns, summarize


def figures(rate: float) -> Figures:
    return Figures(rate=rate, p50_us=rate, p99_us=rate, errors=0, cpu=0.5, first_error="")


def test_every_round_measures_everyone_once() -> None:
    order = in_turns(["a", "b", "c"], rounds=4)
    assert [sorted(order[start : start + 3]) for start in (0, 3, 6, 9)] == [["a", "b", "c"]] * 4


def test_every_round_begins_with_another_one() -> None:
    assert in_turns(["a", "b"], rounds=3)[::2] == ["a", "b", "a"]


def test_one_bad_round_does_not_move_the_median() -> None:
    found = summarize([figures(100.0), figures(1.0), figures(102.0)], records=100)
    assert found.rate == 10_000.0
    assert found.p50_us == 100.0
