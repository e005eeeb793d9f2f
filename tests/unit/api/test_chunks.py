"""Chunked bodies that somebody means harm with."""

import pytest

from topics.api.chunks import (
    MAX_LINES_AT_ONCE,
    MAX_SIZE_LINE_BYTES,
    MAX_TRAILER_BYTES,
    ChunkedBody,
)
from topics.errors import PayloadTooLarge, RequestError


def feed_all(body: ChunkedBody, data: bytes) -> int:
    """Feed until it takes no more; return how much it took."""
    at = 0
    while used := body.feed(data[at:]):
        at += used
    return at


@pytest.mark.parametrize(
    "hostile",
    [
        b"g\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"\r\n",
        b" 1\r\n",
        b"1_0\r\n",
        b"11111111111111111\r\n",
        b"2\r\nabc\r\n",
        b"2\r\nab\n\n",
        b"1;a\nb\r\n",
        b'1;a="\n"\r\n',
        b"1\n\r\n",
        b"1;a\rb\r\n",
        b"1;a\x00\r\n",
        b"0\r\nX: a\nY: b\r\n\r\n",
        b"1;" + b"x" * MAX_SIZE_LINE_BYTES + b"\r\n",
        b"1;" + b"x" * (MAX_SIZE_LINE_BYTES + 1),
        b"0\r\n" + b"X: " + b"y" * MAX_TRAILER_BYTES + b"\r\n",
        b"0\r\n" + b"X: y\r\n" * (MAX_TRAILER_BYTES // 4 + 1),
    ],
)
def test_hostile_framing_is_refused(hostile: bytes) -> None:
    with pytest.raises(RequestError):
        feed_all(ChunkedBody(1 << 20), hostile)


def test_a_body_is_refused_by_the_size_it_announces() -> None:
    body = ChunkedBody(10)
    assert body.feed(b"8\r\n12345678\r\n") == 13
    with pytest.raises(PayloadTooLarge):
        body.feed(b"3\r\n")


@pytest.mark.parametrize("end", [b"\n", b"\r\r", b"ab"])
def test_bytes_behind_a_chunk_must_be_its_line_end(end: bytes) -> None:
    with pytest.raises(RequestError, match="does not end"):
        ChunkedBody(100).feed(b"1\r\na" + end)


def test_of_many_tiny_chunks_only_so_many_are_taken_at_once() -> None:
    body = ChunkedBody(1 << 20)
    sent = b"1;x=y\r\na\r\n" * 1000 + b"0\r\nX: y\r\n\r\n"
    assert body.feed(sent) == len(b"1;x=y\r\na\r\n") * MAX_LINES_AT_ONCE - len(b"a\r\n")
    assert not body.done
    body = ChunkedBody(1 << 20)
    assert feed_all(body, sent + b"more") == len(sent)
    assert (body.done, bytes(body.body)) == (True, b"a" * 1000)
