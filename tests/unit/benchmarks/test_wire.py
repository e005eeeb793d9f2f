"""The requests of `make bench`: lengths that are true, the same payload for everyone."""

import json

import pytest
from benchmarks.server import wire
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.routers import sum_metric


def split(request: bytes) -> tuple[str, bytes]:
    head, body = request.split(b"\r\n\r\n", 1)
    return head.decode(), body


@pytest.mark.parametrize(
    "request_bytes",
    [
        wire.http_append("t", count=3),
        wire.http_diff("t", from_seq=5, limit=10),
        wire.http_claim("t", count=2),
        wire.http_ack("t", count=2),
    ],
)
def test_the_content_length_is_that_of_the_body(request_bytes: bytes) -> None:
    head, body = split(request_bytes)
    assert f"Content-Length: {len(body)}" in head


def test_every_contender_keeps_the_same_payload() -> None:
    payload = wire.payload(0)
    assert len(payload) == 200
    appended = json.loads(split(wire.http_append("t", count=1))[1])
    assert appended["records"][0]["data"] == json.loads(payload)
    assert payload in wire.resp_append([b"*"])
    assert payload in wire.nats_publish(count=1)


def test_an_ack_with_a_seq_in_its_field_is_sound_json() -> None:
    _, body = split(wire.http_ack("t", count=2))
    filled = body.replace(wire.FIELD.encode(), b"%20d" % 7)
    assert json.loads(filled)["seqs"] == [7, 7]


def test_a_command_is_an_array_of_counted_strings() -> None:
    assert wire.resp(b"XLEN", b"bench") == b"*2\r\n$4\r\nXLEN\r\n$5\r\nbench\r\n"


def test_a_batch_is_as_many_commands() -> None:
    assert wire.resp_append([b"*"] * 100).count(b"XADD") == 100
    assert wire.nats_publish(count=100).count(b"PUB ") == 100


def test_a_metric_is_summed_over_its_labels() -> None:
    text = '# HELP wal bytes\nwal{shard="0"} 10\nwal{shard="1"} 5.5\nwal_other 99\n'
    assert sum_metric(text, "wal") == 15.5
    assert sum_metric("wal 3\n", "wal") == 3


def test_a_metric_that_is_not_there_is_said() -> None:
    with pytest.raises(CannotMeasure, match="has no wal"):
        sum_metric("wal_other 99\n", "wal")
