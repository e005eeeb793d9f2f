"""HTTP/2 over a socket in memory, with h2 as the client: streams, windows, bounds, ends."""

from collections import defaultdict

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.wire import HeldApp, Wire, connect

from topics.api import http2 as module
from topics.api import http2_frames as frames
from topics.api.exchange import Exchange
from topics.api.http2 import MAX_STREAMS, Http2Connection
from topics.errors import RequestTimeout
from topics.limits import MAX_CONTROL_BODY_BYTES

GET = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "/v0/health"),
]
POST = [
    (":method", "POST"), (":scheme", "http"), (":authority", "localhost"),
    (":path", "/v0/topics/a"), ("content-type", "application/json"),
]  # fmt: skip


class Peer:
    """A client that reads only when told, and widens its windows only when asked."""

    def __init__(
        self, app: HeldApp, *, window: int | None = None, high_water: int = 1 << 30
    ) -> None:
        self.first, self.wire = connect(app, high_water=high_water)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        if window is not None:
            self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.headers: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = defaultdict(bytes)
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goodbye: int | None = None
        self.send()

    @property
    def connection(self) -> Http2Connection:
        assert isinstance(self.wire.protocol, Http2Connection)
        return self.wire.protocol

    def send(self) -> None:
        """Carry bytes both ways until there are none."""
        while data := self.h2.data_to_send():
            assert self.wire.protocol is not None
            self.wire.protocol.data_received(data)
            self.read()

    def read(self) -> None:
        for event in self.h2.receive_data(self.wire.take()):
            match event:
                case h2.events.ResponseReceived():
                    self.headers[event.stream_id] = {str(n): str(v) for n, v in event.headers}
                case h2.events.DataReceived():
                    self.bodies[event.stream_id] += event.data
                case h2.events.StreamEnded():
                    self.ended.add(event.stream_id)
                case h2.events.StreamReset():
                    self.resets[event.stream_id] = event.error_code
                case h2.events.ConnectionTerminated():
                    self.goodbye = event.error_code
                case _:
                    pass

    def ask(self, headers: list[tuple[str, str]], body: bytes | None = None) -> int:
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, headers, end_stream=body is None)
        if body is not None:
            self.h2.send_data(number, body, end_stream=True)
        self.send()
        return number

    def status(self, number: int) -> int:
        self.read()
        return int(self.headers[number][":status"])


def test_the_preface_may_come_in_pieces(app: HeldApp) -> None:
    _, wire = connect(app)
    client = h2.connection.H2Connection()
    client.initiate_connection()
    data = client.data_to_send()
    for at in range(len(data)):
        assert wire.protocol is not None
        wire.protocol.data_received(data[at : at + 1])
    assert isinstance(wire.protocol, Http2Connection)
    assert app.connections == {wire.protocol}


def test_a_request_is_answered(make_app: MakeApp) -> None:
    peer = Peer(make_app(hold=False))
    number = peer.ask(GET)
    assert peer.status(number) == 200
    assert peer.bodies[number].startswith(b'{"status":"ok"')
    assert peer.headers[number]["content-length"] == str(len(peer.bodies[number]))
    assert "date" in peer.headers[number]
    assert number in peer.ended
    assert peer.connection.is_idle


def test_answers_come_in_any_order(app: HeldApp) -> None:
    peer = Peer(app)
    first, second = peer.ask(GET), peer.ask(POST, b"{}")
    assert bytes(app.held[1].body) == b"{}"
    app.held[1].reply(200, b"second")
    assert peer.status(second) == 200
    assert first not in peer.headers
    app.held[0].reply(200, b"first")
    assert peer.status(first) == 200
    assert (peer.bodies[first], peer.bodies[second]) == (b"first", b"second")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([*GET[:3], (":path", "/nowhere")], 404),
        ([("x-a", "b") if n == ":nothing" else (n, v) for n, v in GET[:2]]
         + [(":authority", "evil.example"), (":path", "/v0/health")], 400),
        ([*GET, *((f"x-{n}", "1") for n in range(64))], 400),
        ([*GET[:3], (":path", "/" + "a" * 9000)], 400),
        ([*GET[:3], (":path", "/v0/topics/%ff")], 400),
        ([*GET[:2], (":authority", ""), GET[3]], 400),
    ],
    ids=["route", "host", "headers", "url", "utf-8", "authority"],
)  # fmt: skip
def test_a_bad_request_fails_alone(
    make_app: MakeApp, headers: list[tuple[str, str]], status: int
) -> None:
    peer = Peer(make_app(hold=False))
    assert peer.status(peer.ask(headers)) == status
    assert peer.status(peer.ask(GET)) == 200


@pytest.mark.parametrize(
    "headers",
    [
        [(":method", "CONNECT"), (":authority", "localhost")],
        [(":method", "CONNECT"), (":protocol", "websocket"), *GET[1:]],
    ],
    ids=["tunnel", "websocket"],
)
def test_connect_is_not_spoken(make_app: MakeApp, headers: list[tuple[str, str]]) -> None:
    peer = Peer(make_app(hold=False))
    number = peer.ask(headers)
    assert peer.status(number) == 400
    assert peer.status(peer.ask(GET)) == 200


def test_a_head_that_is_too_long_ends_the_connection(make_app: MakeApp) -> None:
    peer = Peer(make_app(hold=False))
    peer.ask([*GET, *((f"x-{n}", "y" * 1000) for n in range(200))])
    assert peer.wire.closed
    assert peer.goodbye not in (None, h2.errors.ErrorCodes.NO_ERROR)


def test_bytes_that_are_no_http2_end_the_connection(app: HeldApp) -> None:
    peer = Peer(app)
    peer.connection.data_received(b"\xff" * (frames.HEAD_BYTES - 1))
    assert not peer.wire.closed, "it may be the beginning of a frame"
    peer.connection.data_received(b"\xff")
    assert peer.wire.closed


# Bodies.


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_long_is_refused(make_app: MakeApp, *, announced: bool) -> None:
    app = make_app(max_body_bytes=1000)
    peer = Peer(app)
    headers = [*POST, ("content-length", "1001")] if announced else POST
    assert peer.status(peer.ask(headers, b"x" * 1001)) == 413
    assert app.held == []
    assert peer.status(peer.ask([*GET[:3], (":path", "/nowhere")])) == 404


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_may_be_as_long_as_its_route_takes(make_app: MakeApp, *, announced: bool) -> None:
    app = make_app()
    peer = Peer(app)
    diff = [*POST[:3], (":path", "/v0/topics/a/diff"), *POST[4:]]
    number = peer.h2.get_next_available_stream_id()
    length = [("content-length", str(MAX_CONTROL_BODY_BYTES + 1))] if announced else []
    peer.h2.send_headers(number, [*diff, *length])
    peer.send()
    for _ in range(0 if announced else 5):
        peer.h2.send_data(number, b"x" * 16_000)
        peer.send()
    assert peer.status(number) == 413
    assert (app.held, peer.connection.is_reading_body) == ([], False)


def test_nothing_is_kept_of_a_body_that_is_not_wanted(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    peer = Peer(app)
    number = peer.h2.get_next_available_stream_id()
    peer.h2.send_headers(number, POST)
    peer.send()
    assert peer.status(number) == 401, "before any of its body came"
    for _ in range(20):
        peer.h2.send_data(number, b"x" * 16_000)
        peer.send()
    assert (peer.connection.is_reading_body, peer.connection.received_bytes) == (False, 0)


def test_of_many_bodies_only_the_oldest_goes_on_past_the_bound(make_app: MakeApp) -> None:
    app = make_app(max_body_bytes=300_000)
    peer = Peer(app)
    piece = b"x" * 16_000
    numbers = [peer.h2.get_next_available_stream_id()]
    peer.h2.send_headers(numbers[0], POST)
    numbers.append(peer.h2.get_next_available_stream_id())
    peer.h2.send_headers(numbers[1], POST)
    peer.send()
    for _ in range(16):
        for number in numbers:
            if peer.h2.local_flow_control_window(number) >= len(piece):
                peer.h2.send_data(number, piece)
                peer.send()
    old, young = (peer.connection._streams[number] for number in numbers)
    assert old.withheld_bytes == 0
    assert young.withheld_bytes > 0
    assert peer.h2.local_flow_control_window(numbers[1]) < module.STREAM_WINDOW_BYTES
    peer.h2.end_stream(numbers[0])
    peer.send()
    assert young.withheld_bytes == 0
    assert peer.h2.local_flow_control_window(numbers[1]) >= module.STREAM_WINDOW_BYTES // 2
    assert len(app.held) == 1


def test_a_client_that_waits_is_told_to_go_on(app: HeldApp) -> None:
    peer = Peer(app)
    number = peer.h2.get_next_available_stream_id()
    peer.h2.send_headers(number, [*POST, ("expect", "100-continue")])
    seen: list[object] = []
    peer.wire.take()
    assert peer.wire.protocol is not None
    peer.wire.protocol.data_received(peer.h2.data_to_send())
    seen += peer.h2.receive_data(peer.wire.take())
    assert any(isinstance(event, h2.events.InformationalResponseReceived) for event in seen)


def test_the_slowest_body_is_what_the_sweep_sees_and_gives_up(app: HeldApp) -> None:
    peer = Peer(app)
    slow, quick = (peer.h2.get_next_available_stream_id(), 0)
    peer.h2.send_headers(slow, POST)
    peer.send()
    app.manual_clock.advance_ms(5_000)
    quick = peer.h2.get_next_available_stream_id()
    peer.h2.send_headers(quick, POST)
    peer.h2.send_data(quick, b"x" * 1000)
    peer.send()
    connection = peer.connection
    assert connection.is_reading_body
    assert (connection.since_s, connection.received_bytes) == (0.0, 0)
    connection.give_up(RequestTimeout("too slow"))
    assert peer.status(slow) == 408
    assert (connection.since_s, connection.received_bytes) == (5.0, 1000)
    assert not peer.wire.closed


# Answers.


def test_an_answer_keeps_to_the_windows_of_the_peer(app: HeldApp) -> None:
    peer = Peer(app, window=1000)
    number = peer.ask(GET)
    app.held[0].reply(200, b"x" * 2500)
    peer.read()
    assert len(peer.bodies[number]) == 1000
    assert not peer.connection.is_idle
    assert peer.connection.is_stalled
    peer.h2.increment_flow_control_window(1000, number)
    peer.send()
    assert len(peer.bodies[number]) == 2000
    peer.h2.increment_flow_control_window(1000, number)
    peer.send()
    assert len(peer.bodies[number]) == 2500
    assert number in peer.ended
    assert peer.connection.is_idle


def test_a_peer_that_takes_no_answers_gets_no_more_requests_done(
    app: HeldApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNREAD_BYTES", 5000)
    peer = Peer(app, window=0)
    first = peer.ask(GET)
    app.held[0].reply(200, b"x" * 6000)
    second = peer.ask(GET)
    assert len(app.held) == 1
    peer.h2.increment_flow_control_window(6000, first)
    peer.send()
    assert len(app.held) == 2
    app.held[1].reply(200, b"")
    assert peer.status(second) == 200


def test_a_full_socket_stops_the_sending_and_the_reading(app: HeldApp) -> None:
    peer = Peer(app, high_water=20_000)
    number = peer.ask(GET)
    peer.wire.unread = 0
    app.held[0].reply(200, b"x" * 60_000)
    peer.read()
    assert len(peer.bodies[number]) < 60_000
    assert not peer.wire.is_reading()
    while len(peer.bodies[number]) < 60_000:
        peer.wire.drain()
        peer.read()
    peer.wire.drain()
    assert peer.wire.is_reading()
    assert number in peer.ended


def test_a_stream_counts_what_waits_and_ends_cleanly(app: HeldApp) -> None:
    peer = Peer(app, window=10)
    number = peer.ask(GET)
    ended: list[bool] = []
    stream = app.held[0].open_stream(content_type=b"text/event-stream", headers=b"X-A: b\r\n")
    stream.on_close = lambda: ended.append(True)
    stream.write(b"x" * 25)
    peer.read()
    assert peer.headers[number]["x-a"] == "b"
    assert peer.bodies[number] == b"x" * 10
    assert stream.buffered_bytes >= 15
    stream.close()
    assert ended == [True]
    peer.h2.increment_flow_control_window(100, number)
    peer.send()
    assert peer.bodies[number] == b"x" * 25
    assert number in peer.ended


def test_what_others_have_not_read_is_not_held_against_a_stream(app: HeldApp) -> None:
    peer = Peer(app)
    peer.ask(GET)
    peer.ask(GET)
    quiet, busy = (held.open_stream(content_type=b"text/event-stream") for held in app.held)
    busy.write(b"x" * 1000)
    assert peer.wire.unread > 1000
    assert quiet.buffered_bytes == 0


def test_a_connection_is_stuck_when_nothing_leaves_it(make_app: MakeApp) -> None:
    app = make_app(slow_reader_ms=1000)
    peer = Peer(app)
    peer.ask(GET)
    stream = app.held[0].open_stream(content_type=b"text/event-stream")
    stuck = []
    for now_s, taken in ((0.5, 10), (1.4, 0), (1.6, 10), (2.5, 0), (2.7, 0)):
        stream.write(b"x" * 100)
        peer.wire.unread -= taken
        stuck.append(stream.is_stuck(app.manual_clock.monotonic_s() + now_s))
    assert stuck == [False, False, False, False, True]


def test_a_stream_hears_that_its_reader_left(app: HeldApp) -> None:
    peer = Peer(app)
    number = peer.ask(GET)
    ended: list[bool] = []
    stream = app.held[0].open_stream(content_type=b"text/event-stream")
    stream.on_close = lambda: ended.append(True)
    peer.h2.reset_stream(number)
    peer.send()
    assert ended == [True]
    stream.write(b"nobody reads this")
    assert peer.connection.is_idle


def test_a_stream_can_be_cut_off_alone(app: HeldApp) -> None:
    peer = Peer(app)
    number, other = peer.ask(GET), peer.ask(GET)
    app.held[0].open_stream(content_type=b"text/event-stream").abort()
    peer.read()
    assert peer.resets == {number: h2.errors.ErrorCodes.CANCEL}
    app.held[1].reply(200, b"ok")
    assert peer.status(other) == 200


def test_who_takes_a_request_back_gives_its_slot_back(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    peer = Peer(app)
    number = peer.ask([*GET[:3], (":path", "/v0/topics"), ("authorization", "Bearer k")])
    caller = app.keyring.identify("k")
    assert caller.requests == 1
    peer.h2.reset_stream(number)
    peer.send()
    assert caller.requests == 0
    app.held[0].reply(200, b"late")
    assert caller.requests == 0


def test_who_leaves_gives_everything_back(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    peer = Peer(app)
    peer.ask([*GET[:3], (":path", "/v0/topics"), ("authorization", "Bearer k")])
    peer.connection.connection_lost(None)
    assert app.keyring.identify("k").requests == 0
    assert not app.connections


# Bounds and ends.


def test_streams_are_bounded(app: HeldApp) -> None:
    peer = Peer(app)
    assert peer.h2.remote_settings.max_concurrent_streams == MAX_STREAMS
    for _ in range(MAX_STREAMS):
        peer.ask(GET)
    assert len(app.held) == MAX_STREAMS
    peer.h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1000
    peer.h2.remote_settings.acknowledge()
    peer.ask(GET)
    assert peer.wire.closed
    assert len(app.held) == MAX_STREAMS


def test_rapid_resets_end_the_connection(app: HeldApp) -> None:
    peer = Peer(app)
    for _ in range(frames.MAX_RESETS + 1):
        number = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(number, GET, end_stream=True)
        peer.h2.reset_stream(number)
        peer.send()
    assert peer.wire.closed
    assert peer.goodbye == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
    assert not peer.connection._streams


def test_resets_now_and_then_do_not(app: HeldApp) -> None:
    peer = Peer(app)
    for _ in range(frames.MAX_RESETS * 2):
        peer.h2.reset_stream(peer.ask(GET))
        peer.send()
        app.manual_clock.advance_ms(200)
    assert not peer.wire.closed


def test_a_flood_of_pings_ends_the_connection(app: HeldApp) -> None:
    peer = Peer(app)
    for _ in range(frames.MAX_CONTROL_FRAMES + 5):
        if peer.wire.closed:
            break
        peer.h2.ping(b"12345678")
        peer.send()
    assert peer.wire.closed


def test_frames_are_read_a_share_a_turn_and_the_rest_after_the_others(
    app: HeldApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(app)
    read: list[int] = []
    cut = peer.connection._frames.cut

    def count_cut(now_s: float) -> bytes:
        piece = cut(now_s)
        read.append(len(piece))
        return piece

    monkeypatch.setattr(peer.connection._frames, "cut", count_cut)
    update = b"\0\0\4\x08\0\0\0\0\0\0\0\0\1"
    count = 4 * module.MAX_PIECES_A_TURN * frames.PIECE_COST
    peer.connection.data_received(update * count)
    assert sum(read) == len(update) * count // 4
    assert peer.wire.is_reading()
    peer.connection.data_received(b"\0\0\0\4\1\0\0\0\0" * (module.MAX_HELD_BYTES // 9 + 1))
    assert sum(read) == len(update) * count // 4, "it has asked for its turn already"
    assert not peer.wire.is_reading()
    for turn in range(2, 5):
        app.step()
        assert sum(read) == turn * len(update) * count // 4
    while not peer.wire.closed:
        app.step()
    peer.read()
    assert peer.goodbye == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


def test_a_share_is_over_when_its_time_is(app: HeldApp, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(app)
    dispatch = app.dispatch
    taken: list[Exchange] = []

    def dispatch_slowly(exchange: Exchange) -> None:
        taken.append(exchange)
        app.manual_clock.advance_ms(10)
        dispatch(exchange)

    monkeypatch.setattr(app, "dispatch", dispatch_slowly)
    for _ in range(12):
        peer.h2.send_headers(peer.h2.get_next_available_stream_id(), GET, end_stream=True)
    peer.send()
    for turn in range(1, 4):
        assert len(taken) == turn * frames.PIECE_COST // frames._COSTS[1]
        app.step()


def test_an_idle_connection_is_told_goodbye(app: HeldApp) -> None:
    peer = Peer(app)
    peer.connection.give_up(None)
    peer.read()
    assert peer.goodbye == h2.errors.ErrorCodes.NO_ERROR
    assert peer.wire.closed
    assert not peer.wire.aborted


def test_a_stalled_connection_is_cut(app: HeldApp) -> None:
    peer = Peer(app, window=0)
    peer.ask(GET)
    app.held[0].reply(200, b"x")
    assert peer.connection.is_stalled
    peer.connection.give_up(None)
    assert peer.wire.aborted


def test_a_wire_without_http2_is_left_alone(app: HeldApp) -> None:
    first, wire = connect(app)
    first.data_received(b"PUT /")
    assert isinstance(wire, Wire)
    assert wire.protocol is first
