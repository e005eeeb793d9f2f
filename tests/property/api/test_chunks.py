"""Chunked bodies: the same however they are cut, and nothing but chunked bodies."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from topics.api.chunks import ChunkedBody
from topics.errors import PayloadTooLarge, RequestError

PIECES = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
EXTENSIONS = st.sampled_from((b"", b";a=b", b' ; x="y"', b"\t"))
TRAILERS = st.sampled_from((b"", b"X-Sum: 1\r\n", b"A: b\r\nC: d\r\n"))


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return a chunked body and what it means."""
    pieces = draw(PIECES)
    framed = b"".join(
        b"%b%b\r\n%b\r\n" % (draw(st.sampled_from(("%x", "%X", "0%x"))).encode() % len(piece),
                             draw(EXTENSIONS), piece)
        for piece in pieces
    )  # fmt: skip
    return framed + b"0\r\n" + draw(TRAILERS) + b"\r\n", b"".join(pieces)


def feed(parts: list[bytes], *, max_bytes: int = 1 << 20) -> tuple[ChunkedBody, bytes]:
    """Feed as a connection does: what was not taken comes again with the next bytes."""
    body, left = ChunkedBody(max_bytes), b""
    for part in parts:
        left += part
        left = left[body.feed(left) :]
    return body, left


@given(bodies(), st.lists(st.integers(0, 400), max_size=8), st.binary(max_size=8))
def test_any_cut_gives_the_same_body(
    body: tuple[bytes, bytes], cuts: list[int], behind: bytes
) -> None:
    framed, meant = body[0] + behind, body[1]
    places = sorted({0, len(framed), *(cut for cut in cuts if cut < len(framed))})
    parts = [framed[a:b] for a, b in pairwise(places)]
    read, left = feed(parts)
    assert read.done
    assert bytes(read.body) == meant
    assert left == behind


@given(bodies(), st.data())
def test_a_body_that_is_cut_short_is_never_done(
    body: tuple[bytes, bytes], data: st.DataObject
) -> None:
    framed = body[0][: data.draw(st.integers(0, len(body[0]) - 1))]
    assert not feed([framed])[0].done


@given(st.binary(max_size=60), st.integers(1, 30))
def test_garbage_is_refused_or_waits_within_its_bound(garbage: bytes, max_bytes: int) -> None:
    try:
        read, _ = feed([bytes([byte]) for byte in garbage], max_bytes=max_bytes)
    except (RequestError, PayloadTooLarge):
        return
    assert len(read.body) <= max_bytes
