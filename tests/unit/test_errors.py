"""Errors cross process borders: a process pool pickles them on the way back."""

import inspect
import pickle
import re

import pytest

from topics import errors
from topics.errors import CorruptData, LimitReached, Throttled, TopicNotFound, TopicsError

CLASSES = [
    member
    for _, member in inspect.getmembers(errors, inspect.isclass)
    if issubclass(member, TopicsError)
]
CODES = {
    "internal",
    "invalid_request",
    "batch_too_large",
    "record_too_large",
    "topic_not_found",
    "topic_exists_incompatible",
    "topic_not_empty",
    "topic_full",
    "disk_full",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "not_acceptable",
    "request_timeout",
    "router_not_found",
    "router_cycle",
    "not_a_queue",
    "backup_exists",
    "group_not_found",
    "group_not_empty",
    "generation_mismatch",
    "payload_too_large",
    "unsupported_media_type",
    "throttled",
    "not_ready",
    "shutting_down",
}  # fmt: skip - one screen


def built(kind: type[TopicsError]) -> TopicsError:
    """Make one error of the class, with every argument its constructor takes."""
    if kind.__init__ is Exception.__init__:
        return kind("what happened")
    values: dict[str, object] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        some = {
            int: 7,
            float: 0.5,
            tuple[str, ...]: ("GET", "PUT"),
            TopicsError: TopicsError("why"),
        }
        values[name] = some.get(parameter.annotation, f"some {name}")
    positional = [
        values.pop(name)
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    return kind(*positional, **values)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling(kind: type[TopicsError]) -> None:
    error = built(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert repr(copy.args) == repr(error.args)  # an error in an error equals only itself
    assert repr(vars(copy)) == repr(vars(error))


def test_the_damaged_segment_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(CorruptData("bad checksum", segment="seg-1.data")))
    assert isinstance(copy, CorruptData)
    assert copy.segment == "seg-1.data"
    assert str(copy) == "bad checksum"


def test_messages_say_what_to_do() -> None:
    assert str(TopicNotFound("orders")) == "topic 'orders' does not exist"
    assert str(Throttled(30)) == "the write queue is full: try again in 30 ms"
    assert "max_topics is 5" in str(LimitReached("max_topics", 5))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_of_the_wire_contract(kind: type[TopicsError]) -> None:
    assert kind.code in CODES


def test_the_drawing_shows_every_error_once() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"(?:^|── )([A-Z][A-Za-z]+)", errors.__doc__, re.MULTILINE)
    names = [name for name in drawn if hasattr(errors, name)]
    assert sorted(names) == sorted(kind.__name__ for kind in CLASSES)
