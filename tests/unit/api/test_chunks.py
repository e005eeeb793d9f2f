"""Chunked bodies that somebody means harm with."""

import pytest

from topics.api.chunks import MAX_SIZE_LINE_BYTES, MAX_TRAILER_BYTES, ChunkedBody
from topics.errors import PayloadTooLarge, RequestError


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
        b"1;" + b"x" * MAX_SIZE_LINE_BYTES + b"\r\n",
        b"1;" + b"x" * (MAX_SIZE_LINE_BYTES + 1),
        b"0\r\n" + b"X: " + b"y" * MAX_TRAILER_BYTES + b"\r\n",
        b"0\r\n" + b"X: y\r\n" * (MAX_TRAILER_BYTES // 4 + 1),
    ],
)
def test_hostile_framing_is_refused(hostile: bytes) -> None:
    with pytest.raises(RequestError):
        ChunkedBody(1 << 20).feed(hostile)


def test_a_body_is_refused_by_the_size_it_announces() -> None:
    body = ChunkedBody(10)
    assert body.feed(b"8\r\n12345678\r\n") == 13
    with pytest.raises(PayloadTooLarge):
        body.feed(b"3\r\n")


@pytest.mark.parametrize("end", [b"\n", b"\r\r", b"ab"])
def test_bytes_behind_a_chunk_must_be_its_line_end(end: bytes) -> None:
    with pytest.raises(RequestError, match="does not end"):
        ChunkedBody(100).feed(b"1\r\na" + end)
