"""A filter that is taken keeps exactly the rows that Spark would keep."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import integers, sampled_from

from topics.kernel import MATCH_EQ, MATCH_PREFIX
from topics.pipeline.offsets import Part
from topics.pipeline.push_down import Bounds, push

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Filter:
    """Shaped like a filter of Spark, of which only the class name differs."""

    attribute: tuple[str, ...]
    value: Any = None


def make(kind: str, column: str, value: Any = None) -> Filter:  # noqa: ANN401 - any literal
    made: Filter = type(kind, (Filter,), {})((column,), value)
    return made


COMPARE = {
    "EqualTo": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
}


@given(kind=sampled_from(sorted(COMPARE)), value=integers(-3, 20), seq=integers(1, 20))
def test_a_bound_on_seq_holds_for_exactly_the_seqs_it_names(
    kind: str, value: int, seq: int
) -> None:
    bounds = push(Bounds(), make(kind, "seq", value))
    assert bounds is not None
    assert (bounds.first_seq <= seq <= bounds.last_seq) == COMPARE[kind](seq, value)
    assert not bounds.with_gaps


@given(kind=sampled_from(sorted(COMPARE)), micros=integers(0, 20_000), ts=integers(0, 20))
def test_a_bound_on_time_holds_for_exactly_the_milliseconds_it_names(
    kind: str, micros: int, ts: int
) -> None:
    bounds = push(Bounds(), make(kind, "ts", EPOCH + timedelta(microseconds=micros)))
    assert bounds is not None
    assert (bounds.first_ts <= ts <= bounds.last_ts) == COMPARE[kind](ts * 1000, micros)


@given(first=integers(0, 20), second=integers(0, 20), seq=integers(1, 20))
def test_filters_add_up(first: int, second: int, seq: int) -> None:
    bounds = push(Bounds(), make("GreaterThan", "seq", first))
    assert bounds is not None
    bounds = push(bounds, make("LessThan", "seq", second))
    assert bounds is not None
    assert (bounds.first_seq <= seq <= bounds.last_seq) == (first < seq < second)


def test_topics_and_partitions_are_chosen_by_name_and_number() -> None:
    bounds = push(Bounds(), make("In", "topic", ("a", "b")))
    assert bounds is not None
    bounds = push(bounds, make("EqualTo", "partition", 1))
    assert bounds is not None
    assert bounds.with_gaps
    assert bounds.has_part(Part("a-1", "a", 1))
    assert not bounds.has_part(Part("a-0", "a", 0))
    assert not bounds.has_part(Part("c", "c"))
    none_left = push(bounds, make("EqualTo", "topic", "c"))
    assert none_left is not None
    assert not none_left.has_part(Part("c-1", "c", 1))
    assert not none_left.has_part(Part("a-1", "a", 1))


def test_a_tag_is_compared_whole_or_by_its_beginning() -> None:
    whole, beginning = make("EqualTo", "tag", "é"), make("StringStartsWith", "tag", "a:")
    assert (push(Bounds(), whole) or Bounds()).match == (MATCH_EQ, "é".encode())
    assert (push(Bounds(), beginning) or Bounds()).match == (MATCH_PREFIX, b"a:")
    taken = push(Bounds(), whole)
    assert taken is not None
    assert push(taken, beginning) is None


@pytest.mark.parametrize(
    "given_filter",
    [
        make("EqualTo", "data", "x"),
        make("Not", "seq", 1),
        make("In", "seq", (1, 2)),
        make("EqualTo", "seq", "1"),
        make("EqualTo", "seq", True),  # noqa: FBT003 - the value of a filter
        make("EqualTo", "ts", datetime(2026, 1, 1)),  # noqa: DTZ001 - without a zone nobody knows when
        make("EqualNullSafe", "tag", "a"),
        make("IsNotNull", "tag"),
        make("IsNull", "seq"),
        make("EqualTo", "partition", None),
        make("StringStartsWith", "topic", "a"),
    ],
)
def test_what_is_not_understood_is_left_to_spark(given_filter: Filter) -> None:
    assert push(Bounds(), given_filter) is None
