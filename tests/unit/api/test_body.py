"""Bodies: none larger than its route takes, unpacked never into more than was allowed."""

import gzip

import msgspec
import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.wire import HOST, HeldApp, answers, connect, post

from topics.api.app import FORM, REFUSED_BODY_BYTES
from topics.api.body import MAX_RATIO, SMALL_BYTES, decode_body
from topics.api.exchange import WHOLE_MAX_BYTES
from topics.api.head import Head
from topics.api.routes import PAGES, ROUTES, Route
from topics.config import ServerConfig
from topics.errors import PayloadTooLarge, RequestError, UnsupportedMediaType
from topics.limits import (
    LISTED_BYTES,
    MAX_CONTROL_BODY_BYTES,
    MAX_KEYLESS_BODY_BYTES,
    MAX_LIST_BODY_BYTES,
    MAX_SEGMENTS_BODY_BYTES,
)
from topics.model.queues import AckRequest

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


# The limit of a route.


@pytest.mark.parametrize("route", [*ROUTES, *PAGES], ids=lambda route: route.label)
def test_only_where_records_come_a_body_may_be_large(route: Route) -> None:
    config = ServerConfig()
    if route.label == "POST /v0/topics/:topic":
        assert route.body_max(config) == config.max_body_bytes
    elif route.label == "POST /v0/uploads/:upload/attach":
        assert route.body_max(config) == MAX_SEGMENTS_BODY_BYTES
    elif route.is_keyless:
        assert route.body_max(config) == MAX_KEYLESS_BODY_BYTES
    else:
        assert route.body_max(config) in (MAX_CONTROL_BODY_BYTES, MAX_LIST_BODY_BYTES)
    assert route.body_max(ServerConfig(max_body_bytes=100)) == 100


def test_a_watch_of_more_topics_may_name_them_all() -> None:
    watch = next(route for route in ROUTES if route.label == "POST /v0/watch")
    assert watch.body_max(ServerConfig(max_watch_topics=10_000)) == LISTED_BYTES * 10_000


def login(body: bytes, *extra: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in extra)
    head = b"POST /console/login HTTP/1.1\r\n%bContent-Type: %b\r\n" % (HOST, FORM.encode())
    return head + b"Content-Length: %d\r\n%b\r\n%b" % (len(body), lines, body)


def test_who_showed_no_key_sends_a_small_body_and_no_packed_one(make_app: MakeApp) -> None:
    app = make_app(keys="k", hold=False)
    form = b"key=" + b"%41" * 1_000_000
    for sent, status in [
        (login(form)[:1000], 413),
        (login(gzip.compress(form), b"Content-Encoding: gzip"), 415),
        (login(b"key=a", b"Origin: http://localhost"), 401),
    ]:
        connection, wire = connect(app)
        connection.data_received(sent)
        assert [answer.status for answer in answers(wire.sent)] == [status]


@pytest.mark.parametrize("path", ["/v0/topics/a/diff", "/v0/topics/a"])
def test_a_body_that_is_not_wanted_is_not_waited_for(make_app: MakeApp, path: str) -> None:
    app = make_app(keys="k")
    connection, wire = connect(app)
    connection.data_received(post(path, b"x" * (REFUSED_BODY_BYTES + 1))[:300])
    assert [answer.status for answer in answers(wire.sent)] == [401]
    connection.data_received(b"x" * 1000)
    assert (connection.is_reading_body, app.held) == (False, [])


@pytest.mark.parametrize("size", [MAX_CONTROL_BODY_BYTES, MAX_CONTROL_BODY_BYTES + 1])
def test_a_control_body_is_refused_by_its_head_and_by_its_chunks(
    make_app: MakeApp, size: int
) -> None:
    app = make_app()
    whole = post("/v0/topics/a/diff", b" " * size)
    head, _, body = whole.partition(b"\r\n\r\n")
    at = head.index(b"Content-Length")
    for sent in (
        whole,
        head[:at] + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, body),
    ):
        connection, wire = connect(app)
        connection.data_received(sent)
        fits = size <= MAX_CONTROL_BODY_BYTES
        assert [answer.status for answer in answers(wire.sent)] == ([] if fits else [413])
        assert len(app.held) == fits
        app.held.clear()


def test_what_unpacks_to_more_than_its_route_takes_is_refused(app: HeldApp) -> None:
    connection, _ = connect(app)
    packed = gzip.compress(b'{"from_seq":0%b}' % (b" " * MAX_CONTROL_BODY_BYTES))
    connection.data_received(post("/v0/topics/a/diff", packed, b"Content-Encoding: gzip"))
    head = app.held[0].head
    with pytest.raises(PayloadTooLarge):
        decode_body(head, packed, head.body_max)


def test_only_a_short_body_is_read_again_for_numbers_with_nothing_behind_the_point(
    app: HeldApp,
) -> None:
    decode = msgspec.json.Decoder(AckRequest).decode
    for size in (100, WHOLE_MAX_BYTES):
        connection, _ = connect(app)
        body = b'{"node":"a","seqs":[5.0]%b}' % (b" " * size)
        connection.data_received(post("/v0/topics/a/ack", body))
    short, long = app.held
    assert short.decode(decode).seqs == [5]
    with pytest.raises(RequestError, match="seqs"):
        long.decode(decode)
