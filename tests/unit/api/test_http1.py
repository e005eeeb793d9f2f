"""HTTP/1.1 over a socket in memory: order, framing, ends, bounds."""

import gzip
from collections.abc import Callable
from typing import cast

import msgspec
import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.wire import HEALTH, HOST, HeldApp, Wire, answers, connect, post

from topics.api.aside import PACK_BYTES
from topics.api.chunks import MAX_LINES_AT_ONCE
from topics.api.exchange import Exchange, reply_all
from topics.api.head import MAX_HEAD_BYTES
from topics.api.http1 import (
    MAX_HELD_BYTES,
    MAX_PIPELINED,
    MAX_TAKEN_A_TURN,
    Http1Connection,
)
from topics.api.http1_stream import Http1Stream
from topics.engine.watch.convoy import Seat
from topics.errors import RequestTimeout

BODY = b'{"records":[{"data":1}]}'


def give(exchange: Exchange, text: bytes) -> None:
    exchange.reply(200, text)


def test_answers_leave_in_the_order_of_the_requests(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH * 3)
    assert len(app.held) == 3
    give(app.held[2], b"third")
    give(app.held[1], b"second")
    assert wire.sent == b""
    give(app.held[0], b"first")
    assert [answer.body for answer in answers(wire.sent)] == [b"first", b"second", b"third"]
    assert connection.is_idle
    assert not wire.closed


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_it_does_not_matter_how_the_bytes_are_cut(app: HeldApp, size: int) -> None:
    stream = post("/v0/topics/a", BODY) + HEALTH + post("/v0/topics/b", b"{}")
    connection, _ = connect(app)
    for at in range(0, len(stream), size):
        connection.data_received(stream[at : at + size])
    assert [(e.head.method, e.name, bytes(e.body)) for e in app.held] == [
        ("POST", "a", BODY),
        ("GET", "", b""),
        ("POST", "b", b"{}"),
    ]


def test_a_connection_is_kept_and_used_again(app: HeldApp) -> None:
    connection, wire = connect(app)
    for number in range(3):
        connection.data_received(HEALTH)
        give(app.held[number], b"ok")
    assert [answer.status for answer in answers(wire.sent)] == [200] * 3
    assert not wire.closed


@pytest.mark.parametrize(
    "request_head",
    [
        HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        b"GET /v0/health HTTP/1.0\r\n\r\n",
        post("/v0/topics/a", BODY, b"Connection: close"),
    ],
    ids=["close", "http10", "post"],
)
def test_the_last_request_of_a_connection_ends_it(app: HeldApp, request_head: bytes) -> None:
    connection, wire = connect(app)
    connection.data_received(request_head + HEALTH)
    assert len(app.held) == 1, "nothing is taken behind the last request"
    give(app.held[0], b"bye")
    assert answers(wire.sent)[0].headers["connection"] == "close"
    assert wire.closed


def test_a_client_that_waits_is_told_to_go_on(app: HeldApp) -> None:
    connection, wire = connect(app)
    head, _, body = post("/v0/topics/a", BODY, b"Expect: 100-continue").partition(b"\r\n\r\n")
    connection.data_received(head + b"\r\n\r\n")
    assert wire.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.data_received(body)
    assert app.held[0].body == BODY


def test_a_refused_request_is_not_told_to_go_on(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    connection, wire = connect(app)
    head, _, _ = post("/v0/topics/a", BODY, b"Expect: 100-continue").partition(b"\r\n\r\n")
    connection.data_received(head + b"\r\n\r\n")
    assert [answer.status for answer in answers(wire.sent)] == [401]
    assert wire.half_closed, "whether the body comes is unknown"


def test_a_chunked_body_is_put_together(app: HeldApp) -> None:
    connection, _ = connect(app)
    head = b"POST /v0/topics/a HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    for part in (head, b"3\r\nabc\r", b"\n2;x=y\r\nde\r\n0\r\n", b"\r\n" + HEALTH):
        connection.data_received(part)
    assert [bytes(e.body) for e in app.held] == [b"abcde", b""]


def test_a_half_close_is_answered(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH * 2)
    assert connection.eof_received(), "keep the other half open"
    give(app.held[0], b"1")
    give(app.held[1], b"2")
    assert [answer.body for answer in answers(wire.sent)] == [b"1", b"2"]
    assert wire.closed


def test_a_half_close_between_requests_ends_the_connection(app: HeldApp) -> None:
    connection, _ = connect(app)
    assert not connection.eof_received()


def test_whoever_leaves_gives_the_slot_back(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    connection, _ = connect(app)
    connection.data_received(HEALTH.replace(b"health", b"topics").replace(
        b"\r\n\r\n", b"\r\nAuthorization: Bearer k\r\n\r\n"))  # fmt: skip
    caller = app.keyring.identify("k")
    assert caller.requests == 1
    connection.connection_lost(None)
    assert caller.requests == 0
    assert not app.connections
    give(app.held[0], b"late")
    assert caller.requests == 0, "a late answer is not counted twice"


# Requests that wait.


POLL = post("/v0/topics/a/diff", b"{}")


def test_what_stands_behind_a_waiting_request_waits_with_it(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH + POLL + HEALTH * 2)
    assert len(app.held) == 2, "a health is quick, a diff may wait"
    give(app.held[1], b"news")
    app.turn()
    assert len(app.held) == 4
    for exchange in (app.held[3], app.held[0], app.held[2]):
        give(exchange, b"ok")
    assert [answer.body for answer in answers(wire.sent)] == [b"ok", b"news", b"ok", b"ok"]


def test_what_is_held_behind_a_waiting_request_is_bounded(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(POLL + HEALTH)
    assert wire.is_reading(), "or nobody would hear that the peer has left"
    connection.data_received(HEALTH * (MAX_HELD_BYTES // len(HEALTH)))
    assert not wire.is_reading()
    give(app.held[0], b"news")
    for _ in range(MAX_PIPELINED // MAX_TAKEN_A_TURN + 1):
        app.turn()
    assert len(app.held) == 1 + MAX_PIPELINED


@pytest.mark.parametrize("behind", [b"", HEALTH], ids=["alone", "with another"])
def test_a_half_close_behind_a_slow_request_loses_nothing(app: HeldApp, behind: bytes) -> None:
    app.hold_slowly = True
    connection, wire = connect(app)
    connection.data_received(post("/v0/topics/a", BODY) + behind)
    assert len(app.held) == 1
    assert connection.eof_received()
    give(app.held[0], b"made")
    app.turn()
    if behind:
        give(app.held[1], b"ok")
        app.turn()
    bodies = [answer.body for answer in answers(wire.sent)]
    assert bodies == ([b"made", b"ok"] if behind else [b"made"])
    assert wire.closed


def test_who_only_waits_and_half_closes_is_gone(app: HeldApp) -> None:
    connection, _ = connect(app)
    connection.data_received(POLL)
    assert not connection.eof_received()


# Bad requests.


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /v0/health HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * MAX_HEAD_BYTES, 400),
        (b"G" * (MAX_HEAD_BYTES + 1), 400),
        (b"GET /v0/health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n", 400),
    ],
    ids=["nonsense", "no host", "long header", "endless line", "long head"],
)
def test_what_cannot_be_read_is_answered_and_the_connection_ended(
    app: HeldApp, sent: bytes, status: int
) -> None:
    connection, wire = connect(app)
    connection.data_received(sent)
    assert [answer.status for answer in answers(wire.sent)] == [status]
    assert wire.half_closed


def test_earlier_requests_are_still_answered_before_the_refusal(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH + b"nonsense\r\n\r\n")
    assert wire.sent == b""
    give(app.held[0], b"first")
    assert [answer.status for answer in answers(wire.sent)] == [200, 400]
    assert wire.half_closed


@pytest.mark.parametrize("extra", [(), (b"Expect: 100-continue",)], ids=["plain", "expect"])
def test_a_body_that_is_too_long_is_refused_by_its_head(
    make_app: MakeApp, extra: tuple[bytes, ...]
) -> None:
    app = make_app(max_body_bytes=100)
    connection, wire = connect(app)
    head, _, _ = post("/v0/topics/a", b"x" * 101, *extra).partition(b"\r\n\r\n")
    connection.data_received(head + b"\r\n\r\nxx")
    assert [answer.status for answer in answers(wire.sent)] == [413]
    assert app.held == []


def test_a_whole_body_that_is_too_long_is_refused_as_well(make_app: MakeApp) -> None:
    app = make_app(max_body_bytes=100)
    connection, wire = connect(app)
    connection.data_received(post("/v0/topics/a", b"x" * 101))
    assert [answer.status for answer in answers(wire.sent)] == [413]
    assert app.held == []


def test_the_answer_to_head_has_no_body(make_app: MakeApp) -> None:
    connection, wire = connect(make_app(hold=False))
    connection.data_received(HEALTH.replace(b"GET", b"HEAD") + HEALTH)
    first, second = answers(wire.sent)
    assert (first.status, first.body) == (405, b"")
    assert second.status == 200


def test_a_gzip_body_is_unpacked_and_a_long_answer_packed_when_asked(make_app: MakeApp) -> None:
    app = make_app(hold=False)
    connection, wire = connect(app)
    connection.data_received(
        b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"Accept-Encoding: br, gzip;q=0.5\r\n\r\n"
    )
    app.finish_aside()
    (answer,) = answers(wire.take())
    assert answer.headers["content-encoding"] == "gzip"
    assert msgspec.json.decode(gzip.decompress(answer.body))["openapi"] == "3.1.0"
    connection.data_received(
        b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"Accept-Encoding: gzip;q=0\r\n\r\n"
    )
    (answer,) = answers(wire.take())
    assert "content-encoding" not in answer.headers


PACKED = HEALTH.replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip\r\n\r\n")


def test_a_large_answer_is_packed_aside_and_what_is_behind_it_waits(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(PACKED * 2)
    large = [b"%d" % number * PACK_BYTES * 2 for number in range(3)]
    give(app.held[1], large[1])
    connection.data_received(HEALTH)
    assert len(app.held) == 2, "it is not begun while a large answer is packed"
    assert app.answers.used == len(large[1])
    give(app.held[0], large[0])
    assert (wire.sent, connection.is_idle) == (b"", False)
    app.finish_aside()
    give(app.held[2], b"ok")
    first, second, third = answers(wire.take())
    assert [gzip.decompress(answer.body) for answer in (first, second)] == large[:2]
    assert (third.body, app.answers.used) == (b"ok", 0)


def test_who_leaves_while_an_answer_is_packed_is_counted_once(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    connection, _ = connect(app)
    asked = PACKED.replace(b"health", b"topics").replace(
        b"\r\n\r\n", b"\r\nAuthorization: Bearer k\r\n\r\n"
    )
    connection.data_received(asked)
    give(app.held[0], b"x" * PACK_BYTES * 2)
    connection.connection_lost(None)
    app.finish_aside()
    assert (app.keyring.identify("k").requests, app.answers.used) == (0, 0)


def test_what_comes_behind_a_refusal_is_dropped_up_to_a_bound(make_app: MakeApp) -> None:
    connection, wire = connect(make_app(max_body_bytes=100))
    connection.data_received(post("/v0/topics/a", b"x" * 101)[:-50])
    for _ in range(16):
        connection.data_received(b"x" * 65_536)
    assert not wire.closed, "the peer can still read why"
    connection.data_received(b"x" * 65_536)
    assert wire.aborted


def test_who_goes_on_sending_after_a_refusal_has_little_time(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(b"nonsense\r\n\r\n")
    assert connection.is_idle
    assert connection.is_reading_head, "the sweep counts it as a head that does not come"
    connection.give_up(RequestTimeout("too slow"))
    assert wire.aborted


# Bounds.


def test_a_pipeline_is_bounded_and_goes_on_when_answered(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH * (MAX_PIPELINED + 50))
    assert len(app.held) == MAX_TAKEN_A_TURN, "the others have their turn too"
    for _ in range(MAX_PIPELINED // MAX_TAKEN_A_TURN):
        app.turn()
    assert len(app.held) == MAX_PIPELINED
    assert not wire.is_reading()
    for exchange in list(app.held):
        give(exchange, b"ok")
        app.turn()
    assert wire.is_reading()
    for exchange in app.held[MAX_PIPELINED:]:
        give(exchange, b"ok")
    assert len(answers(wire.sent)) == MAX_PIPELINED + 50


def test_a_share_of_a_pipeline_is_over_when_its_time_is(
    app: HeldApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatch = app.dispatch

    def dispatch_slowly(exchange: Exchange) -> None:
        app.manual_clock.advance_ms(10)
        dispatch(exchange)

    monkeypatch.setattr(app, "dispatch", dispatch_slowly)
    connection, _ = connect(app)
    connection.data_received(HEALTH * 3)
    for taken in range(1, 4):
        assert len(app.held) == taken
        app.step()


def test_tiny_chunks_are_taken_a_share_a_turn(app: HeldApp) -> None:
    connection, wire = connect(app)
    head = b"POST /v0/topics/a HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    chunk, share = b"1\r\na\r\n", MAX_LINES_AT_ONCE * (MAX_TAKEN_A_TURN - 1)
    count = MAX_HELD_BYTES // len(chunk) + 2 * share
    chunks = chunk * count + b"0\r\n\r\n"
    connection.data_received(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert not wire.is_reading(), "more than is held waits for its turn"
    turns = 1
    while not app.held:
        app.step()
        turns += 1
    assert turns > count // (MAX_LINES_AT_ONCE * MAX_TAKEN_A_TURN)
    assert app.held[0].body == b"a" * count
    assert wire.is_reading()


def test_a_half_close_behind_a_long_pipeline_loses_nothing(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH * 40)
    assert connection.eof_received()
    for _ in range(4):
        app.turn()
    for exchange in list(app.held):
        give(exchange, b"ok")
    app.turn()
    assert len(answers(wire.sent)) == 40
    assert wire.closed


def test_who_does_not_read_is_not_asked_for_more(app: HeldApp) -> None:
    connection, wire = connect(app, high_water=1000)
    connection.data_received(HEALTH * 10)
    give(app.held[0], b"x" * 2000)
    assert not wire.is_reading()
    connection.data_received(HEALTH * 10)
    assert len(app.held) == 10, "what came is kept, nothing is begun"
    wire.drain()
    assert wire.is_reading()
    assert len(app.held) == 20


def test_a_stream_is_chunked_and_bounded_by_whoever_writes(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH * 2)
    stream = app.held[1].open_stream(content_type=b"text/event-stream")
    stream.write(b"early")
    assert stream.buffered_bytes >= 5
    assert wire.sent == b""
    give(app.held[0], b"ok")
    stream.write(b"later")
    assert wire.sent.endswith(b"\r\n\r\n5\r\nearly\r\n5\r\nlater\r\n")
    assert b"Transfer-Encoding: chunked" in wire.sent
    ended: list[bool] = []
    stream.on_close = lambda: ended.append(True)
    stream.close()
    assert wire.sent.endswith(b"0\r\n\r\n")
    assert wire.closed
    stream.write(b"nothing")
    stream.close()
    assert ended == [True]


def test_a_stream_hears_that_its_reader_left(app: HeldApp) -> None:
    connection, _ = connect(app)
    connection.data_received(HEALTH)
    ended: list[bool] = []
    stream = app.held[0].open_stream(content_type=b"text/event-stream")
    stream.on_close = lambda: ended.append(True)
    connection.connection_lost(None)
    assert ended == [True]


def test_nothing_is_taken_behind_a_stream(app: HeldApp) -> None:
    connection, wire = connect(app)
    for _ in range(2):  # the second time its head is remembered
        connection.data_received(WRITE)
        give(app.held.pop(), b"{}")
    connection.data_received(HEALTH)
    app.held.pop().open_stream(content_type=b"text/event-stream").write(b"data")
    wire.take()
    connection.data_received(WRITE)
    assert (app.held, wire.sent) == ([], b"")


class Passenger:
    """Somebody in a convoy."""

    def __init__(self) -> None:
        self.left = 0

    def leave(self) -> None:
        self.left += 1


LEAVING: dict[str, Callable[[Http1Stream], object]] = {
    "write": lambda stream: stream.write(b"beat"),
    "offer": lambda stream: stream.offer(b"frame", 1000),
    "close": lambda stream: stream.close(),
    "abort": lambda stream: stream.abort(),
    "lost": lambda stream: stream.lost(),
}


@pytest.mark.parametrize("how", LEAVING)
def test_a_stream_leaves_its_convoy_before_it_is_written_to_or_ends(app: HeldApp, how: str) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH)
    stream = app.held[0].open_stream(content_type=b"text/event-stream")
    assert isinstance(stream, Http1Stream)
    wire.take()
    passenger = Passenger()
    stream.seat = cast("Seat", passenger)
    LEAVING[how](stream)
    assert passenger.left == 1


def test_a_stream_can_be_passed_by_while_nothing_waits_in_it(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(HEALTH * 2)
    stream = app.held[1].open_stream(content_type=b"text/event-stream")
    assert stream.find_way() is None  # it is not its turn yet
    give(app.held[0], b"ok")
    assert stream.find_way() is None
    wire.drain()
    way = stream.find_way()
    assert way is not None
    assert way.descriptor == wire.fileno()
    assert way.pack(b"frame") == b"5\r\nframe\r\n"
    wire.take()
    way.push(b"rest")
    assert wire.sent == b"rest"
    assert stream.find_way() is None
    wire.drain()
    assert stream.find_way() is way
    connection.connection_lost(None)
    assert stream.find_way() is None


def test_an_old_client_gets_a_stream_without_chunks(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(b"GET /v0/health HTTP/1.0\r\n\r\n")
    stream = app.held[0].open_stream(content_type=b"text/event-stream")
    stream.write(b"data")
    wire.drain()
    assert stream.find_way() is None
    assert b"Transfer-Encoding" not in wire.sent
    assert wire.sent.endswith(b"\r\n\r\ndata")


# Timeouts.


def idle(connection: Http1Connection, wire: Wire) -> tuple[bool, bool, bool]:
    assert not wire.closed
    return connection.is_idle, connection.is_reading_head, connection.is_reading_body


def test_the_sweep_sees_what_a_connection_is_doing(app: HeldApp) -> None:
    connection, wire = connect(app)
    assert idle(connection, wire) == (True, False, False)
    connection.data_received(b"GET /v0")
    assert idle(connection, wire) == (True, True, False)
    connection.data_received(HEALTH[len(b"GET /v0") :])
    assert idle(connection, wire) == (False, False, False)
    give(app.held[0], b"ok")
    connection.data_received(post("/v0/topics/a", BODY)[:-1])
    assert idle(connection, wire) == (True, False, True)


def test_a_second_slow_head_has_a_clock_of_its_own(app: HeldApp) -> None:
    connection, _ = connect(app)
    connection.data_received(HEALTH)
    give(app.held[0], b"ok")
    app.manual_clock.advance_ms(60_000)
    connection.data_received(b"GET")
    assert connection.since_s == 60.0
    app.manual_clock.advance_ms(1_000)
    connection.data_received(b" /")
    assert connection.since_s == 60.0, "a byte now and then does not start it anew"


def test_a_timeout_is_told_when_a_request_had_begun(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(b"GET")
    connection.give_up(RequestTimeout("too slow"))
    assert [answer.status for answer in answers(wire.sent)] == [408]
    assert wire.half_closed


def test_an_idle_connection_ends_without_a_word(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.give_up(None)
    assert wire.sent == b""
    assert wire.aborted


WRITE = post("/v0/topics/a", BODY)
CLOSING = post("/v0/topics/a", BODY, b"Connection: close")


def sent_to(app: HeldApp, request: bytes, *, gathered: bool) -> tuple[bytes, bool]:
    """Return what a connection is sent for its second request, and whether it was closed."""
    connection, wire = connect(app)
    connection.data_received(WRITE)
    give(app.held.pop(), b"{}")
    wire.take()
    connection.data_received(request)
    exchange = app.held.pop()
    if gathered:
        reply_all(app, [exchange], [b'{"a":1}'])
    else:
        give(exchange, b'{"a":1}')
    return wire.sent, wire.closed


@pytest.mark.parametrize("request_", [WRITE, CLOSING], ids=["kept", "closing"])
def test_a_small_answer_has_the_same_bytes_by_either_way(app: HeldApp, request_: bytes) -> None:
    gathered = sent_to(app, request_, gathered=True)
    assert gathered == sent_to(app, request_, gathered=False)
    assert gathered[1] is (request_ is CLOSING)


def test_small_answers_keep_their_place_in_a_pipeline(app: HeldApp) -> None:
    connection, wire = connect(app)
    connection.data_received(WRITE * 3)
    first, second, third = app.held
    reply_all(app, [second, third], [b"2", b"3"])
    assert wire.sent == b""
    reply_all(app, [first], [b"1"])
    assert [answer.body for answer in answers(wire.sent)] == [b"1", b"2", b"3"]
    assert connection.is_idle


def test_a_small_answer_tells_the_date_of_now(app: HeldApp) -> None:
    connection, wire = connect(app)
    for number in range(2):
        connection.data_received(WRITE)
        reply_all(app, [app.held[number]], [b"{}"])
        app.manual_clock.advance_ms(5_000)
        app.renew_date()
    before, after = [answer.headers["date"] for answer in answers(wire.sent)]
    assert before != after


def test_writers_that_left_are_not_counted_twice_when_a_turn_is_answered(app: HeldApp) -> None:
    wires = [connect(app) for _ in range(3)]
    for connection, _ in wires:
        connection.data_received(WRITE)
    caller, route = app.held[0].caller, app.held[0].route
    assert caller.requests == 3
    wires[1][0].connection_lost(None)
    reply_all(app, app.held, [b"{}"] * 3)
    assert caller.requests == 0
    assert app.metrics.latency_of(route, 200).count == 2
    assert app.metrics.latency_of(route, 499).count == 1
    assert [bool(wire.sent) for _, wire in wires] == [True, False, True]


def test_a_slow_turn_is_logged(app: HeldApp) -> None:
    connection, _ = connect(app)
    connection.data_received(WRITE)
    app.manual_clock.advance_ms(app.config.slow_request_ms + 1)
    reply_all(app, app.held, [b"{}"])
    assert any("slow_request" in line for line in app.lines)
