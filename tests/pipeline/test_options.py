"""Options are checked before anything is asked of a server."""

import pickle

import pytest

from topics.errors import OptionError
from topics.pipeline.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    SinkOptions,
    SourceOptions,
    Token,
    parse_sink_options,
    parse_source_options,
)

URL = {"url": "http://127.0.0.1:4000", "topic": "orders"}


def no_file(path: str) -> bytes:
    raise AssertionError(path)


def source(**given: str) -> SourceOptions:
    return parse_source_options({**URL, **given}, read_file=no_file)


def sink(**given: str) -> SinkOptions:
    return parse_sink_options({**URL, **given}, read_file=no_file)


def test_the_defaults_are_those_of_the_reference() -> None:
    options = source()
    assert options.fail_on_data_loss
    assert options.verify
    assert options.via == "auto"
    assert options.records_per_partition is None
    assert not options.push_down


@pytest.mark.parametrize("name", ["failOnDataLoss", "FAILONDATALOSS", "failondataloss"])
def test_names_are_compared_without_regard_to_case(name: str) -> None:
    assert not source(**{name: "False"}).fail_on_data_loss


@pytest.mark.parametrize(
    ("name", "near"),
    [("failOnLoss", "failOnDataLoss"), ("topics", "topic"), ("startingOffset", "startingOffsets")],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(OptionError, match=f"did you mean `{near}`"):
        source(**{name: "x"})


@pytest.mark.parametrize("name", ["path", "sharedPath"])
def test_a_path_that_executors_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"`{name}` must be absolute"):
        source(**{name: "data"})


def test_what_spark_adds_by_itself_is_no_unknown_option() -> None:
    assert sink(checkpointLocation="/tmp/x", queryName="q").topic == "orders"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"via": "ftp"}, "auto, segments, http"),
        ({"verify": "yes"}, "true or false"),
        ({"minPartitions": "0"}, "above 0"),
        ({"recordsPerPartition": "many"}, "above 0"),
        ({"startingOffsets": "{"}, "JSON like"),
        ({"startingOffsets": '{"orders": -1}'}, "JSON like"),
        ({"startingOffsets": '{"orders": true}'}, "JSON like"),
        ({"endingOffsets": "middle"}, "JSON like"),
        ({"startingTimestamp": "yesterday"}, "ISO 8601"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "exclude each other"),
        ({"endingTimestamp": "1", "endingOffsets": "latest"}, "exclude each other"),
        ({"topic": "a*b"}, "one star, at its end"),
        ({"topic": "../etc"}, "not a topic name"),
        ({"topic": "a,,b"}, "not a topic name"),
        ({"url": "ftp://x"}, "http://host:4000"),
        ({"url": "http://user:secret@host"}, "may not carry a secret"),
        ({"path": "/data"}, "either `url`"),
        ({"token": "a", "tokenFile": "/b"}, "exclude each other"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        source(**given)
    assert said in str(refused.value)
    assert "secret@" not in str(refused.value)


def test_a_directory_needs_an_absolute_path_and_no_server() -> None:
    def at(**given: str) -> SourceOptions:
        return parse_source_options({"topic": "orders", **given}, read_file=no_file)

    assert at(path="/data/").path == at(path="file:///data").path == "/data"
    for given in ({"path": "data"}, {"path": "ftp://h"}, {"path": "/data", "via": "http"}, {}):
        with pytest.raises(OptionError):
            at(**given)


def test_topics_come_as_a_name_a_list_or_a_prefix() -> None:
    assert source(topic="a, b.*").topics == ("a", "b.*")
    with pytest.raises(OptionError, match="`topic` is missing"):
        parse_source_options({"url": "http://h"}, read_file=no_file)


def test_a_time_is_a_number_or_iso_8601_and_utc_unless_it_says_otherwise() -> None:
    assert source(startingTimestamp="1700000000123").starting_ts == 1_700_000_000_123
    assert source(startingTimestamp="1970-01-01T00:00:01").starting_ts == 1_000
    assert source(endingTimestamp="1970-01-01T01:00:01+01:00").ending_ts == 1_000


def test_a_token_shows_itself_nowhere() -> None:
    options = source(token="very-secret")
    assert options.token == "very-secret"
    assert "very-secret" not in repr(options)
    assert "very-secret" not in repr(sink(token="very-secret"))
    assert pickle.loads(pickle.dumps(options)) == options
    assert isinstance(pickle.loads(pickle.dumps(options)).token, Token)


def test_a_token_may_come_from_a_file() -> None:
    options = parse_source_options({**URL, "tokenFile": "/t"}, read_file=lambda _: b"key\n")
    assert options.token == "key"


@pytest.mark.parametrize(
    "given", [{"sinkId": "a/b"}, {"sinkId": "x" * 65}, {"sinkId": "$a"}, {"onBadRow": "skip"}]
)
def test_a_sink_refuses_what_would_break_its_promise(given: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        sink(**given)


def test_dead_letters_have_a_topic() -> None:
    assert sink(onBadRow="deadLetter").dead_letter_topic == "orders.dead-letter"
    assert sink(onBadRow="deadletter", deadLetterTopic="bad").dead_letter_topic == "bad"
    with pytest.raises(OptionError, match="deadLetterTopic"):
        parse_sink_options({"url": "http://h", "onBadRow": "deadLetter"}, read_file=no_file)


def test_every_option_is_in_the_reference(reference: str) -> None:
    missing = [name for name in (*SOURCE_OPTIONS, *SINK_OPTIONS) if f"`{name}`" not in reference]
    assert missing == []


def test_a_batch_is_never_larger_than_the_server_takes() -> None:
    assert sink(batchRecords="50000").batch_records == 10_000
    assert sink(batchRecords="5").batch_records == 5
