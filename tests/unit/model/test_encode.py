"""What JSON cannot say is refused with its place; what it can say is left alone."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis.strategies import (
    dictionaries,
    floats,
    integers,
    lists,
    none,
    recursive,
    sampled_from,
    text,
)

from topics.errors import RequestError
from topics.handles.outbox import encode_record
from topics.handles.payload import encode_value
from topics.model.encode import encode_json, list_records


@dataclass
class Reading:
    """What a device says."""

    at: str
    value: float | None


class Sample(msgspec.Struct):
    """The same, with bytes that are JSON already."""

    value: float
    raw: msgspec.Raw = msgspec.Raw(b"null")


class Model:
    """What pydantic makes is asked for its JSON, which has `null` for NaN too."""

    def __init__(self, value: float) -> None:
        self.value = value

    def model_dump_json(self) -> str:
        return msgspec.json.encode(self.model_dump()).decode()

    def model_dump(self) -> dict[str, float]:
        return {"value": self.value}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("build", "place"),
    [
        (lambda x: {"records": [{"data": 1}, {"data": x}]}, "record 1: data is"),
        (lambda x: {"records": [{"data": {"a": [0, x]}}]}, r"record 0: data.a\[1\] is"),
        (lambda x: {"records": [{"data": None, "meta": {"m": x}}]}, "record 0: meta.m is"),
        (lambda x: {"records": [{"data": (Reading("a", x),)}]}, r"record 0: data\[0\].value is"),
        (lambda x: {"records": [{"data": Sample(x)}]}, "record 0: data.value is"),
        (lambda x: {"records": [{"data": {2**70: x}}]}, "record 0: data"),
        (lambda x: {"min": x}, "this: min is"),
        (lambda x: x, "this is"),
    ],
)
def test_a_number_that_json_has_not_is_refused_with_its_place(
    build: Any,  # noqa: ANN401 - any value
    place: str,
    number: float,
) -> None:
    with pytest.raises(RequestError, match=place) as caught:
        encode_json(build(number), what="this")
    assert f"is {number}, which JSON has no number for" in str(caught.value)


@pytest.mark.parametrize("encode", [encode_json, encode_value, encode_record])
@pytest.mark.parametrize("value", ["\ud800", {"a": ["b\udfff"]}, {"\ud83d": 1}])
def test_half_a_surrogate_pair_is_refused_with_what_to_do(encode: Any, value: object) -> None:  # noqa: ANN401
    with pytest.raises(RequestError, match=r"half a surrogate pair .* send whole characters"):
        encode(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": None, "b": "null", "c": 1.5},
        [Reading("x", None), Sample(1.0), msgspec.Raw(b"[null]")],
        [None, {1, 2}, b"bytes", datetime(2026, 1, 1, tzinfo=UTC), UUID(int=7), Decimal("NaN")],
        [None, 2**80, 1e308, -0.0],
        {"null": "\xcb\x7f\xf8"},
    ],
)
def test_whatever_json_can_say_is_encoded_as_ever(value: object) -> None:
    assert encode_json(value, what="this") == msgspec.json.encode(value)


values = recursive(
    none() | floats() | integers(-(2**70), 2**70) | text(),
    lambda inner: lists(inner, max_size=3) | dictionaries(text(max_size=3), inner, max_size=3),
)


def is_finite(value: Any) -> bool:  # noqa: ANN401 - any value
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return all(map(is_finite, value)) if isinstance(value, list) else True


@given(value=values)
def test_no_such_number_slips_through_and_nothing_else_is_refused(value: object) -> None:
    try:
        encoded = encode_json(value, what="this")
    except RequestError:
        assert not is_finite(value)
    else:
        assert is_finite(value)
        assert encoded == msgspec.json.encode(value)


@pytest.mark.parametrize("encode", [encode_value, encode_record])
def test_values_of_handles_and_producers_are_looked_at_too(encode: Any) -> None:  # noqa: ANN401
    for value in (math.nan, {"x": [math.inf]}, Reading("a", math.nan), Model(math.nan)):
        with pytest.raises(RequestError, match="JSON has no number for"):
            encode(value)
    assert encode_value(Model(1.5)) == msgspec.Raw(b'{"value":1.5}')
    with pytest.raises(RequestError, match=r"the record: meta\.x is nan"):
        encode_record(1, meta={"x": math.nan})


@pytest.mark.parametrize("records", [{"data": 1}, "data", b"data", Sample(1.0), 5, None])
def test_one_record_where_a_list_is_wanted_is_refused_in_these_words(records: Any) -> None:  # noqa: ANN401
    with pytest.raises(RequestError, match=r"records must be a list, as in \[{'data'"):
        list_records(records)


@given(kind=sampled_from([list, tuple, iter]))
def test_any_other_iterable_is_a_list_of_records(kind: Any) -> None:  # noqa: ANN401
    assert list_records(kind([{"data": 1}])) == [{"data": 1}]
