"""Compressed bodies: unpacked, and never into more than was allowed."""

import gzip

import pytest

from topics.api.body import MAX_RATIO, SMALL_BYTES, decode_body
from topics.api.head import Head
from topics.errors import PayloadTooLarge, RequestError, UnsupportedMediaType

MIB = 1024 * 1024


def head(encoding: str) -> Head:
    return Head("POST", "/", {"content-encoding": encoding})


@pytest.mark.parametrize("encoding", ["gzip", "GZIP"])
def test_gzip_is_undone(encoding: str) -> None:
    assert decode_body(head(encoding), gzip.compress(b'{"a":1}', mtime=0), MIB) == b'{"a":1}'


@pytest.mark.parametrize("encoding", ["identity", ""])
def test_no_encoding_is_left_alone(encoding: str) -> None:
    assert decode_body(head(encoding), b"as it is", MIB) == b"as it is"


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "gzip, br"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        decode_body(head(encoding), b"", MIB)


def test_a_bomb_is_refused_by_its_ratio() -> None:
    bomb = gzip.compress(bytes(8 * MIB))
    assert len(bomb) * MAX_RATIO < 8 * MIB
    with pytest.raises(PayloadTooLarge):
        decode_body(head("gzip"), bomb, 64 * MIB)


def test_a_small_body_may_have_any_ratio() -> None:
    assert decode_body(head("gzip"), gzip.compress(bytes(SMALL_BYTES)), MIB) == bytes(SMALL_BYTES)


def test_the_limit_of_bodies_counts_after_unpacking() -> None:
    packed = gzip.compress(bytes(2000))
    assert decode_body(head("gzip"), packed, 2000) == bytes(2000)
    with pytest.raises(PayloadTooLarge):
        decode_body(head("gzip"), packed, 1999)


@pytest.mark.parametrize(
    "body",
    [b"", b"plain", gzip.compress(b"abc", mtime=0)[:-1], gzip.compress(b"abc", mtime=0) + b"x",
     gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0)],
)  # fmt: skip
def test_what_is_not_one_whole_gzip_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        decode_body(head("gzip"), body, MIB)
