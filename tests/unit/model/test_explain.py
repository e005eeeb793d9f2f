"""What is refused is told with the nearest name, or with the values there are."""

import pickle
from typing import Any

import msgspec
import pytest

from topics.errors import RequestError, UnknownField
from topics.model.delete import DeleteBody
from topics.model.explain import decode_kind, explain
from topics.model.groups import JoinRequest, SeekRequest
from topics.model.topic_config import TopicConfig
from topics.model.watch import WatchBody
from topics.nearest import nearest_name, unknown_field


def explained(body: Any, kind: type) -> RequestError:  # noqa: ANN401 - any JSON
    decode: object = msgspec.json.Decoder(kind).decode
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(body), type=kind)
    return explain(caught.value, decode_kind(decode))


@pytest.mark.parametrize(
    ("body", "kind", "message", "nearest"),
    [
        (
            {"match": "x", "befor_seq": 2},
            DeleteBody,
            "unknown field 'befor_seq': did you mean 'before_seq'?",
            "before_seq",
        ),
        (
            {"topics": {"a.b": {"from": 1}}},
            WatchBody,
            "topics[...]: unknown field 'from': did you mean 'from_ts'?",
            "from_ts",
        ),
        (
            {"to": {"sq": 1}},
            SeekRequest,
            "to: unknown field 'sq': did you mean 'seq'?",
            "seq",
        ),
        ({"xyzzy": 1}, DeleteBody, "unknown field 'xyzzy': known are before_seq, match", None),
        ({"a`b": 1}, DeleteBody, "unknown field 'a`b': known are before_seq, match", None),
    ],
)
def test_an_unknown_field_is_told_with_the_nearest_one(
    body: Any,  # noqa: ANN401 - any JSON
    kind: type,
    message: str,
    nearest: str | None,
) -> None:
    error = explained(body, kind)
    assert isinstance(error, UnknownField)
    assert str(error) == message
    assert error.nearest == nearest
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.detail) == (message, error.detail)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (
            {"durability": "fsink"},
            TopicConfig,
            "durability must be one of ephemeral, memory, disk, fsync, not 'fsink': "
            "did you mean 'fsync'?",
        ),
        (
            {"topics": {"a": {}}, "consistency": "x" * 100},
            WatchBody,
            "consistency must be one of eventual, strong, not '" + "x" * 63 + "…",
        ),
        (
            {"member": "m", "topics": ["t"], "assignor": "sticki"},
            JoinRequest,
            "assignor must be one of range, round_robin, sticky, not 'sticki': "
            "did you mean 'sticky'?",
        ),
        (
            {"to": "earlist"},
            SeekRequest,
            "to must be one of earliest, latest, not 'earlist': did you mean 'earliest'?",
        ),
        ({"before_seq": "1"}, DeleteBody, "Expected `int | null`, got `str` - at `$.before_seq`"),
    ],
)
def test_a_value_that_is_none_of_those_there_are_is_told_with_them(
    body: Any,  # noqa: ANN401 - any JSON
    kind: type,
    message: str,
) -> None:
    assert str(explained(body, kind)) == message


def test_the_nearest_name_is_looked_for_in_bounded_time() -> None:
    """The look is quadratic in the name: an endless one is like none of ours."""
    assert nearest_name("before_seqs" + "x" * 1_000_000, ["before_seq"]) is None
    error = unknown_field("x" * 1_000_000, ["before_seq"])
    assert len(str(error)) < 200
    assert len(error.field) < 100


def test_half_a_surrogate_pair_in_a_name_can_be_told() -> None:
    error = unknown_field("\ud800", ["a"])
    assert msgspec.json.encode(error.detail) == b'{"field":"?"}'
    assert "'\\ud800'" in str(error)
