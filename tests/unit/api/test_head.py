"""Heads: what httptools lets pass and we must not, and what a head decides."""

import pytest

from topics.api.head import MAX_HEAD_BYTES, MAX_HEADERS, MAX_URL_BYTES, build_head, read_head
from topics.errors import RequestError

HOST = b"Host: localhost\r\n"


def get(*lines: bytes, path: bytes = b"/", version: bytes = b"1.1") -> bytes:
    head = b"GET %b HTTP/%b\r\n" % (path, version)
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def test_a_plain_head_is_read() -> None:
    head = read_head(get(b"Host: localhost", b"X-A:  b ", path=b"/v0/topics/a%2Eb?x=1&y=a%20b+c"))
    assert (head.method, head.path, head.query) == ("GET", "/v0/topics/a%2Eb", "x=1&y=a%20b+c")
    assert head.parameters() == {"x": "1", "y": "a b c"}
    assert head.headers == {"host": "localhost", "x-a": "b"}
    assert head.keep_alive
    assert not head.chunked
    assert head.content_length == 0


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (get(), "Host"),
        (get(b"Host:"), "Host"),
        (get(b"Host: a", b"Host: b"), "host may come only once"),
        (get(b"Transfer-Encoding: chunked", version=b"1.0"), "Transfer-Encoding"),
        (get(b"Host: a", *(b"X-%d: 1" % n for n in range(MAX_HEADERS))), "headers"),
        (get(b"Host: a", path=b"/" + b"a" * MAX_URL_BYTES), "URL"),
        (get(b"Host: a", b"Content-Length: 1", b"Content-Length: 1"), "once|not an HTTP"),
        (get(b"Host: a", b"Authorization: Bearer a", b"Authorization: Bearer b"), "once"),
        (get(b"Host: a", b"Transfer-Encoding: chunked", b"Content-Length: 3"), "."),
        (get(b"Host: a", b"Transfer-Encoding: gzip, chunked"), "."),
        (get(b"Host: a", b"Transfer-Encoding: chunked, chunked"), "."),
        (get(b"Host: a", b"Content-Length: +5"), "."),
        (get(b"Host: a", b"Content-Length: 5, 5"), "."),
        (get(b"Host: a", b"Content-Length: 99999999999999999999"), "."),
        (get(b"Host: a", b" folded: x"), "."),
        (get(b"Host: a", b"Bad Name: x"), "."),
        (get(b"Host : a"), "."),
        (get(b"Host: a", path=b"http://localhost/"), "path"),
        (get(b"Host: a", version=b"0.9"), "."),
        (get(b"Host: a", version=b"2.0"), "."),
        (b"\r\n\r\n", "."),
        (b"\x16\x03\x01\r\n\r\n", "not an HTTP request"),
        (b"GET / HTTP/1.1\nHost: a\n\r\n\r\n", "."),
    ],
)
def test_a_bad_head_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        read_head(raw)


def test_http_1_0_ends_after_one_answer_and_needs_no_host() -> None:
    head = read_head(get(version=b"1.0"))
    assert head.http10
    assert not head.keep_alive


@pytest.mark.parametrize(
    ("line", "keep_alive"), [(b"Connection: close", False), (b"Connection: keep-alive", True)]
)
def test_the_connection_header_decides(line: bytes, *, keep_alive: bool) -> None:
    assert read_head(get(HOST[:-2], line)).keep_alive is keep_alive


def test_a_key_is_not_among_the_headers() -> None:
    head = read_head(get(HOST[:-2], b"Authorization: Bearer hunter2"))
    assert head.authorization == "Bearer hunter2"
    assert "hunter2" not in str(head.headers)


def test_a_query_that_is_no_utf_8_is_refused_when_asked_for() -> None:
    head = read_head(get(HOST[:-2], path=b"/?a=%ff"))
    with pytest.raises(RequestError, match="UTF-8"):
        head.parameters()


def test_repeated_headers_are_joined() -> None:
    head = build_head("GET", b"/", [(b"accept", b"a"), (b"Accept", b"b")])
    assert head.headers["accept"] == "a, b"


def test_the_limits_are_those_of_the_docs() -> None:
    assert (MAX_HEAD_BYTES, MAX_HEADERS, MAX_URL_BYTES) == (16_384, 64, 8_192)
