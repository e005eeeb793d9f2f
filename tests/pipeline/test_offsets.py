"""Places: where queries start and end, and how far a batch may go."""

import json

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, integers, lists, sampled_from, tuples

from topics.errors import OptionError
from topics.pipeline.offsets import (
    Part,
    PartState,
    Place,
    admit,
    check_named,
    format_offsets,
    parse_offsets,
    place_of,
)
from topics.pipeline.options import SourceOptions

names = sampled_from(["a", "b", "c-0", "c-1"])


def state(name: str, *, head: int, earliest: int = 1, epoch: int = 1) -> PartState:
    return PartState(part=Part(name, name), epoch=epoch, head_seq=head, earliest_seq=earliest)


@given(
    dictionaries(
        names, tuples(integers(0, 2**40), integers(0, 2**62)).map(lambda place: Place(*place))
    )
)
def test_offsets_survive_a_checkpoint(offsets: dict[str, Place]) -> None:
    assert parse_offsets(json.loads(json.dumps(format_offsets(offsets)))) == offsets


def test_earliest_is_before_the_first_record_and_latest_behind_the_last() -> None:
    part = state("a", head=10, earliest=4)
    assert place_of("earliest", part, default="latest") == 3
    assert place_of(None, part, default="latest") == 10
    assert place_of({"a": 7}, part, default="latest") == 7
    assert place_of({"a": "earliest"}, part, default="latest") == 3
    assert place_of({"b": 7}, part, default="latest") == 10


def test_a_partition_goes_by_its_own_name_before_that_of_its_topic() -> None:
    part = PartState(part=Part("c-1", "c", 1), epoch=1, head_seq=10, earliest_seq=1)
    assert place_of({"c": 2, "c-1": 5}, part, default="latest") == 5
    assert place_of({"c": 2}, part, default="latest") == 2


def test_an_offset_of_a_topic_that_is_not_read_is_refused() -> None:
    options = SourceOptions(topics=("a",), starting={"b": 1})
    with pytest.raises(OptionError, match="startingOffsets"):
        check_named(options, [Part("a", "a")])


@given(lags=lists(integers(0, 1_000), min_size=1, max_size=4), limit=integers(1, 2_000))
def test_a_batch_takes_as_much_as_it_may_and_no_more(lags: list[int], limit: int) -> None:
    states = [state(f"t{i}", head=100 + lag) for i, lag in enumerate(lags)]
    start = {f"t{i}": Place(1, 100) for i in range(len(lags))}
    ends = admit(start, states, max_records=limit)
    taken = [ends[f"t{i}"] - 100 for i in range(len(lags))]
    assert all(0 <= took <= lag for took, lag in zip(taken, lags, strict=True))
    assert sum(taken) == min(limit, sum(lags))
    assert admit(start, states, max_records=None) == {s.part.name: s.head_seq for s in states}


def test_a_topic_that_is_new_or_made_anew_is_read_from_its_first_record() -> None:
    states = [state("a", head=5, epoch=2), state("b", head=7)]
    ends = admit({"a": Place(1, 100)}, states, max_records=None)
    assert ends == {"a": 5, "b": 7}
    assert admit({"a": Place(1, 100)}, states, max_records=2) == {"a": 1, "b": 1}
