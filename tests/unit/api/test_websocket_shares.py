"""A WebSocket takes a share of each turn, however many frames and messages it sends at once."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.api.wire import Wire
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request

from topics.api.auth import parse_keys
from topics.api.budget import plan_budgets
from topics.api.exchange import Exchange
from topics.api.turns import Turns
from topics.api.websocket import FRAMES_A_TURN, MESSAGES_A_TURN, WebSocketConnection
from topics.config import ServerConfig
from topics.testing.manual_clock import ManualClock

PONG = b"\x8a\x00"
MASK = b"\0\0\0\0"


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """Frame as a client does, with a mask that changes nothing."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([opcode | (0x80 if fin else 0)]) + length + MASK + payload


class Talk:
    """A WebSocket on a wire, and the turns of its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **settings: object) -> None:
        self.loop = loop
        clock, config = ManualClock(), ServerConfig(**settings)  # type: ignore[arg-type] # any setting
        bodies, _, streams = plan_budgets(config)
        app = SimpleNamespace(
            config=config,
            bodies=bodies,
            unread_streams=streams,
            clock=clock,
            loop=loop,
            turns=Turns(loop, clock),
            metrics=SimpleNamespace(websocket_connections=0),
            live=SimpleNamespace(streams={}, alarms=SimpleNamespace(set=lambda *_: None)),
            stopping=False,
            watches=SimpleNamespace(room=None),
        )
        server, client = WSConnection(ConnectionType.SERVER), WSConnection(ConnectionType.CLIENT)
        server.receive_data(client.send(Request(host="h", target="/v0/ws")))
        next(iter(server.events()))
        accepted = server.send(AcceptConnection())
        exchange = cast("Exchange", SimpleNamespace(caller=parse_keys("").anonymous))
        self.connection = WebSocketConnection(app, exchange, server, accepted)  # type: ignore[arg-type] # a part of one
        self.wire = Wire()
        self.wire.protocol = self.connection
        self.connection.connection_made(cast("asyncio.Transport", self.wire))
        self.wire.take()

    def turn(self) -> bytes:
        """Let one turn of the loop pass; return what was sent."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        return self.wire.take()

    def receive(self, data: bytes) -> bytes:
        self.connection.data_received(data)
        return self.wire.take()


Connect = Callable[..., Talk]


@pytest.fixture
def connect() -> Iterator[Connect]:
    loop = asyncio.new_event_loop()
    bugs: list[object] = []
    loop.set_exception_handler(lambda _, context: bugs.append(context))

    def make(**settings: object) -> Talk:
        return Talk(loop, **settings)

    yield make
    loop.close()
    assert bugs == []


def test_many_tiny_frames_are_taken_a_share_a_turn(connect: Connect) -> None:
    talk = connect()
    rounds = 10
    sent = talk.receive(frame(0x9) * (rounds * FRAMES_A_TURN))
    for _ in range(rounds - 1):
        assert sent == PONG * FRAMES_A_TURN
        assert not talk.wire.is_reading(), "more would be kept"
        sent = talk.turn()
    assert sent == PONG * FRAMES_A_TURN
    assert talk.turn() == b""
    assert talk.wire.is_reading()


def test_empty_fragments_are_frames_too_and_nothing_of_them_is_kept(connect: Connect) -> None:
    talk = connect()
    ping = b'{"op":"ping","request_id":1}'
    fragments = frame(0x0, fin=False) * (3 * FRAMES_A_TURN)
    talk.receive(frame(0x1, ping, fin=False) + fragments + frame(0x0))
    for _ in range(2):
        assert talk.turn() == b""
        assert talk.connection._message == ping
    assert b'"request_id":1' in talk.turn()
    assert not talk.connection._message


def test_many_messages_are_handled_a_share_a_turn(connect: Connect) -> None:
    talk = connect()
    ping = frame(0x1, b'{"op":"ping"}')
    sent = talk.receive(ping * (4 * MESSAGES_A_TURN))
    for _ in range(4):
        assert sent.count(b'"op":"pong"') == MESSAGES_A_TURN
        sent = talk.turn()
    assert sent == b""


def test_connections_that_ask_together_share_a_turn_in_the_order_they_asked(
    connect: Connect,
) -> None:
    one, two = connect(), connect()
    for talk in (one, two):
        assert talk.receive(frame(0x9) * (3 * FRAMES_A_TURN)) == PONG * FRAMES_A_TURN
    for _ in range(2):
        assert one.turn() == two.wire.take() == PONG * FRAMES_A_TURN


def test_a_peer_that_does_not_read_is_asked_for_no_more(connect: Connect) -> None:
    talk = connect(stream_buffer_bytes=4096)
    talk.receive(frame(0x9) * (100 * FRAMES_A_TURN))
    for _ in range(200):
        talk.turn()
    assert talk.wire.unread <= 4096 + len(PONG) * FRAMES_A_TURN
    assert not talk.wire.is_reading()
    talk.wire.drain()
    assert talk.turn() == PONG * FRAMES_A_TURN


@pytest.mark.parametrize("op", ["ping", "subscribe", "unsubscribe", "dance"])
def test_only_what_brings_records_may_be_long(connect: Connect, op: str) -> None:
    talk = connect()
    body = b'{"op":"%b","request_id":7,"x":"%b"}' % (op.encode(), b"y" * 65_000)
    assert b"128" not in talk.receive(frame(0x1, body))
    long = frame(0x1, b'{"op":"%b","request_id":7,"x":"' % op.encode(), fin=False)
    long += frame(0x0, b"y" * 65_000, fin=False) * 3 + frame(0x0, b'"}')
    answer = talk.receive(long)
    assert b'"request_id":7,"code":"invalid_request"' in answer
    assert b"may have 131072 bytes, unless it is a publish" in answer


def test_a_message_names_no_more_topics_than_a_watch_has(connect: Connect) -> None:
    talk = connect(max_watch_topics=2)
    answer = talk.receive(frame(0x1, b'{"op":"unsubscribe","topics":["a","b","c"]}'))
    assert b"a message may name 2 topics or patterns" in answer


def test_a_message_that_grows_beyond_its_bound_ends_the_connection(connect: Connect) -> None:
    talk = connect(max_body_bytes=100_000)
    talk.receive(frame(0x1, b"x" * 60_000, fin=False))
    assert b"a message may have 100000 bytes" in talk.receive(frame(0x0, b"x" * 60_000))
    assert talk.wire.closed
    assert not talk.connection._message


def test_messages_that_are_not_whole_are_counted_among_the_bodies(connect: Connect) -> None:
    talk = connect()
    bodies = talk.connection._app.bodies
    part = frame(0x1, b"x" * 60_000, fin=False)
    talk.receive(part)
    assert bodies.used == 60_000
    talk.receive(frame(0x0, b"x" * 1_000, fin=False))
    assert bodies.used == 61_000
    bodies.change(parse_keys("").anonymous, 1 << 40)
    assert b"max_unfinished_body_bytes" in talk.receive(frame(0x0, b"x", fin=False))
    assert talk.wire.closed
    assert bodies.used == 1 << 40
