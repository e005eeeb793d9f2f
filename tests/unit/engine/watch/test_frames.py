"""Frames as bytes, and the ids they carry."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.watch.event_id import decode_event_id, encode_event_id
from topics.engine.watch.frames import (
    Sse,
    Trouble,
    WebSocketMessages,
    caught_up_body,
    heartbeat,
    record_body,
    topic_deleted_body,
)
from topics.errors import RequestError, TopicNotFound
from topics.model.diff import Page

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True)


def page_of(records_json: bytes) -> Page:
    return Page(
        topic="t",
        records_json=records_json,
        count=1,
        next_from_seq=7,
        head_seq=9,
        earliest_seq=1,
        tombstone=None,
        records_scanned=1,
        cold_segments_read=0,
    )


@given(st.dictionaries(NAMES, st.integers(0, 2**63)))
def test_an_id_comes_back_as_it_was(cursors: dict[str, int]) -> None:
    encoded = encode_event_id(cursors)
    assert b"=" not in encoded
    assert decode_event_id(encoded.decode()) == cursors


@pytest.mark.parametrize("text", ["!", "e30x", "bm90IGpzb24", "WzFd", "eyJ4IjotMX0", "é", "e30\n"])
def test_an_id_that_was_never_given_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        decode_event_id(text)


@given(st.lists(st.sampled_from(["\r", "\n", " ", "\t"]), max_size=8), st.text())
def test_a_record_stays_on_one_line_and_means_the_same(spaces: list[str], text: str) -> None:
    value = msgspec.json.encode(text).decode()
    raw = "".join(spaces).join(["{", '"data"', ":", value, "}"]).encode()
    body = record_body(page_of(raw), from_seq=3)
    assert b"\n" not in body
    assert b"\r" not in body
    assert msgspec.json.decode(body) == {
        "topic": "t", "records": [{"data": text}], "from_seq": 3, "to_seq": 7, "head_seq": 9
    }  # fmt: skip


def test_frames_of_an_event_stream() -> None:
    sse = Sse()
    assert sse.wrap(b"caught-up", caught_up_body("t", head_seq=3), b"ID") == (
        b'event: caught-up\nid: ID\ndata: {"topic":"t","head_seq":3}\n\n'
    )
    assert heartbeat(1234) == b": hb 1234\n\n"
    error = sse.error(Trouble(code="c", message="a\nb", retry_after_ms=5, topics=["t"]))
    assert error == (
        b'event: error\ndata: {"code":"c","error":"a\\nb","retry_after_ms":5,"topics":["t"]}\n\n'
    )


def test_messages_of_a_websocket_echo_the_request_id() -> None:
    body = topic_deleted_body("t", head_seq=3, reason="deleted")
    plain = msgspec.json.decode(WebSocketMessages().wrap(b"topic-deleted", body, b"ID"))
    assert plain == {"op": "topic_deleted", "topic": "t", "head_seq": 3, "reason": "deleted"}
    asked = WebSocketMessages(b'"r"')
    assert msgspec.json.decode(asked.wrap(b"topic-deleted", body, b"ID"))["request_id"] == "r"
    error = msgspec.json.decode(asked.error(Trouble.of(TopicNotFound("t"))))
    assert (error["op"], error["request_id"], error["code"]) == ("error", "r", "topic_not_found")
    assert error["message"]
