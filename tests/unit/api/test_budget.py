"""What is kept of bodies that are not whole and of answers that nobody reads."""

import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.test_http2 import POST, Peer
from tests.unit.api.wire import HeldApp, answers, connect, post

from topics.api.budget import Budget, plan_budgets
from topics.config import ServerConfig
from topics.errors import LimitReached
from topics.limits import MIB

KEYS = "one,two"
PIECE = b" " * 100_000


def open_body(app: HeldApp, size: int, key: str) -> bytes:
    """Return what is answered to a head and the begin of its body."""
    connection, wire = connect(app)
    head = post("/v0/topics/a", b" " * MIB, b"Authorization: Bearer " + key.encode())[:-MIB]
    connection.data_received(head)
    for _ in range(size // len(PIECE)):
        connection.data_received(PIECE)
    return wire.sent


def test_half_of_a_budget_is_for_one_key_and_none_is_refused_for_another(
    make_app: MakeApp,
) -> None:
    budget = Budget("a_limit", 100, advice="wait")
    app = make_app(keys=KEYS)
    one, two = map(app.keyring.identify, KEYS.split(","))
    budget.take(one, 50)
    with pytest.raises(LimitReached, match="a_limit is 50 and used up: half"):
        budget.take(one, 1)
    budget.take(two, 49)
    with pytest.raises(LimitReached, match="a_limit is 100 and used up: wait or raise it"):
        budget.take(two, 1)
    budget.change(one, -50)
    assert (budget.used, budget.is_full) == (49, False)
    budget.take(app.keyring.anonymous, 50)


def test_two_of_the_largest_bodies_always_have_room(make_app: MakeApp) -> None:
    bodies, *_ = plan_budgets(ServerConfig(max_body_bytes=MIB, max_unfinished_body_bytes=MIB))
    app = make_app(keys=KEYS)
    for key in KEYS.split(","):
        bodies.take(app.keyring.identify(key), MIB)


def test_bodies_that_are_not_whole_are_counted_and_refused(make_app: MakeApp) -> None:
    app = make_app(keys=KEYS, max_body_bytes=MIB, max_unfinished_body_bytes=2 * MIB)
    for _ in range(2):
        assert open_body(app, MIB // 2, "one") == b""
    refused = answers(open_body(app, MIB // 2, "one"))
    assert [answer.status for answer in refused] == [429]
    assert b"max_unfinished_body_bytes" in refused[0].body
    assert refused[0].headers["connection"] == "close"
    assert open_body(app, MIB // 2, "two") == b""
    for connection in list(app.connections):
        connection.connection_lost(None)  # type: ignore[attr-defined] # HTTP/1.1
    assert app.bodies.used == 0


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_is_counted_until_it_is_answered(app: HeldApp, *, chunked: bool) -> None:
    connection, _ = connect(app)
    sent = post("/v0/topics/a", PIECE)
    if chunked:
        at = sent.index(b"Content-Length")
        sent = sent[:at] + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PIECE) + PIECE
        sent += b"\r\n0\r\n\r\n"
    connection.data_received(sent[:-10_000])
    assert 80_000 < app.bodies.used < 100_000
    connection.data_received(sent[-10_000:])
    assert app.bodies.used > 80_000
    app.held[0].reply(200, b"{}")
    assert app.bodies.used == 0


def test_a_small_body_is_counted_only_while_it_comes(app: HeldApp) -> None:
    connection, _ = connect(app)
    sent = post("/v0/topics/a", b" " * 5000)
    connection.data_received(sent[:-10])
    assert app.bodies.used > 0
    connection.data_received(sent[-10:])
    assert (len(app.held), app.bodies.used) == (1, 0)


@pytest.mark.parametrize("size", [5_000, 160_000])
def test_bodies_of_streams_are_counted_as_well(make_app: MakeApp, size: int) -> None:
    app = make_app(max_body_bytes=MIB, max_unfinished_body_bytes=MIB)
    peer = Peer(app)
    whole, left, dropped = (peer.h2.get_next_available_stream_id() + 2 * n for n in range(3))
    for number in (whole, left, dropped):
        peer.h2.send_headers(number, POST)
        for _ in range(size // 5_000):
            peer.h2.send_data(number, b" " * 5_000)
        peer.send()
    assert app.bodies.used == 3 * size
    peer.h2.end_stream(whole)
    peer.h2.reset_stream(left)
    peer.send()
    assert app.bodies.used == size + (size if size > 64 * 1024 else 0)
    app.held[0].reply(200, b"{}")
    assert app.bodies.used == size
    peer.connection.connection_lost(None)
    assert app.bodies.used == 0


def test_a_stream_is_refused_when_too_much_is_kept(make_app: MakeApp) -> None:
    app = make_app(max_body_bytes=MIB, max_unfinished_body_bytes=MIB)
    app.bodies.take(app.keyring.anonymous, 2 * MIB - 5_000)
    peer = Peer(app)
    number = peer.h2.get_next_available_stream_id()
    peer.h2.send_headers(number, POST)
    peer.h2.send_data(number, b" " * 10_000)
    peer.send()
    assert peer.status(number) == 429
    assert app.bodies.used == 2 * MIB - 5_000


def test_answers_are_counted_while_the_peer_takes_none(app: HeldApp) -> None:
    connection, wire = connect(app, high_water=1000)
    connection.data_received(post("/v0/topics/a/diff", b"{}"))
    app.held[0].reply(200, b"x" * 5000)
    assert app.answers.used > 5000
    wire.drain()
    assert app.answers.used == 0
    connection.data_received(post("/v0/topics/a/diff", b"{}"))
    app.held[1].reply(200, b"x" * 5000)
    connection.connection_lost(None)
    assert app.answers.used == 0


def test_answers_of_streams_are_counted_while_windows_are_shut(app: HeldApp) -> None:
    peer = Peer(app, window=1000)
    numbers = [peer.ask(POST, b"{}") for _ in range(2)]
    for exchange in app.held:
        exchange.reply(200, b"x" * 50_000)
    assert app.answers.used == 2 * 49_000
    peer.h2.increment_flow_control_window(50_000, numbers[0])
    peer.send()
    assert app.answers.used == 0, "less is not worth counting"
    peer.ask(POST, b"{}")
    app.held[2].reply(200, b"x" * 50_000)
    assert app.answers.used == 2 * 49_000
    peer.connection.connection_lost(None)
    assert app.answers.used == 0


def test_no_request_is_taken_while_long_answers_wait_for_an_earlier_one(app: HeldApp) -> None:
    connection, wire = connect(app)
    write = post("/v0/topics/a", b"{}")
    connection.data_received(write * 2)
    app.held[1].reply(200, b"x" * MIB)
    connection.data_received(write * 3)
    assert len(app.held) == 2
    app.held[0].reply(200, b"x")
    app.step()
    assert len(app.held) == 5
    for exchange in app.held[2:]:
        exchange.reply(200, b"x")
    assert len(answers(wire.sent)) == 5
