"""What hostile clients send over HTTP/2: refused or closed, bounded, nobody else disturbed."""

import time
from collections.abc import Iterator

import pytest
from tests.conformance.api import Api, fresh, ok, open_client, refused
from tests.conformance.h2_client import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    Fields,
    H2Socket,
    fields,
    frame,
)
from tests.conformance.raw_http import exchange
from tests.load.meters import rss_bytes

from topics.testing.server_process import ServerProcess

SETTINGS_OF_SERVER = {
    "TOPICS_HEAD_TIMEOUT_MS": "500",
    "TOPICS_IDLE_TIMEOUT_MS": "1000",
    "TOPICS_MAX_BODY_BYTES": "1000000",
    "TOPICS_ALLOWED_HOSTS": "localhost,127.0.0.1",
}
JSON = ("content-type", "application/json")
BODY = b'{"records":[{"data":1}]}'
GROWTH_BYTES = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("server")
    with ServerProcess(str(directory / "data"), settings=SETTINGS_OF_SERVER) as process:
        yield process


@pytest.fixture(autouse=True)
def undisturbed(server: ServerProcess) -> Iterator[None]:
    """Hold the server to its memory, and ask it for an answer at the end."""
    before = rss_bytes(server)
    yield
    with open_client(server.url, transport="h2c") as client:
        ok(client.get("/v0/health"))
    assert rss_bytes(server) - before < GROWTH_BYTES
    assert "Traceback" not in server.said


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[H2Socket]:
    with H2Socket(server.port) as opened:
        yield opened


def test_a_good_request_by_hand_is_answered(connection: H2Socket) -> None:
    stream_id = connection.request(fields("GET", "/v0/health"))
    connection.receive(until_stream=stream_id)
    assert connection.statuses == {stream_id: 200}


BAD_HEADS: dict[str, Fields] = {
    "no authority": [(":method", "GET"), (":path", "/v0/health"), (":scheme", "http")],
    "an authority that is not ours": fields("GET", "/v0/health", authority="evil.example"),
    "an authority and another host": fields("GET", "/v0/health", ("host", "evil.example")),
    "no path": [(":method", "GET"), (":scheme", "http"), (":authority", "localhost")],
    "an empty path": fields("GET", ""),
    "no method": [(":path", "/v0/health"), (":scheme", "http"), (":authority", "localhost")],
    "two methods": [(":method", "GET"), *fields("GET", "/v0/health")],
    "a pseudo header after others": [("x", "y"), *fields("GET", "/v0/health")],
    "an unknown pseudo header": [*fields("GET", "/v0/health"), (":colour", "red")],
    "upper case": fields("GET", "/v0/health", ("X-Upper", "y")),
    "a connection header": fields("GET", "/v0/health", ("connection", "close")),
    "a transfer encoding": fields("GET", "/v0/health", ("transfer-encoding", "chunked")),
    "a line feed in a value": fields("GET", "/v0/health", ("x", "a\r\nb: c")),
    "a zero byte in a value": fields("GET", "/v0/health", ("x", "a\x00b")),
    "sixty-five headers": fields("GET", "/v0/health", *[(f"x-{n}", "y") for n in range(65)]),
    "a head of seventeen kilobytes": fields(
        "GET", "/v0/health", *[(f"x-{n}", "y" * 3400) for n in range(5)]
    ),
    "an address of nine kilobytes": fields("GET", "/" + "x" * 9000),
    "a tunnel": [(":method", "CONNECT"), (":authority", "evil.example:80")],
}


@pytest.mark.parametrize("given", BAD_HEADS.values(), ids=BAD_HEADS.keys())
def test_a_bad_head_is_refused(connection: H2Socket, given: Fields) -> None:
    connection.send(connection.headers_frame(1, given, flags=END_HEADERS | END_STREAM))
    connection.receive(until_stream=1, deadline_s=3)
    assert connection.refused(1)


def post(length: int, topic: str) -> Fields:
    return fields("POST", f"/v0/topics/{topic}", JSON, ("content-length", str(length)))


@pytest.mark.parametrize("length", [len(BODY) - 1, len(BODY) + 1, 0, 10**30])
def test_a_length_that_lies_writes_nothing(
    server: ServerProcess, connection: H2Socket, length: int
) -> None:
    topic = fresh("lie")
    connection.send(connection.headers_frame(1, post(length, topic), flags=END_HEADERS))
    connection.send(frame(DATA, END_STREAM, 1, BODY))
    connection.receive(deadline_s=3)
    assert connection.statuses.get(1, 400) // 100 == 4
    with open_client(server.url) as client:
        refused(client.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


def test_a_body_over_the_limit_is_stopped(server: ServerProcess) -> None:
    with open_client(server.url, transport="h2c") as client:
        response = client.post(
            "/v0/topics/x",
            content=(b"x" * 100_000 for _ in range(30)),
            headers={"Content-Type": "application/json"},
        )
        refused(response, 413, "payload_too_large")
        ok(client.get("/v0/health"))


def test_a_head_without_end_is_cut_off(connection: H2Socket) -> None:
    block = b"\x00\x01x\x7f\x81\x06" + b"y" * 900
    connection.send(frame(HEADERS, END_STREAM, 1, b"\x82"))
    sent = 0
    while not connection.closed and sent < 32 * 1024 * 1024:
        connection.send(frame(CONTINUATION, 0, 1, block) * 50)
        sent += 50 * 900
    connection.receive(deadline_s=5)
    assert connection.closed


def test_a_head_that_stops_is_cut_off(connection: H2Socket) -> None:
    connection.send(frame(HEADERS, END_STREAM, 1, b"\x82"))
    connection.receive(deadline_s=8)
    assert connection.closed


def test_a_small_head_that_unpacks_to_a_large_one_is_refused(connection: H2Socket) -> None:
    value = b"y" * 3900
    size = b"\x7f" + bytes([(3900 - 127) & 0x7F | 0x80, (3900 - 127) >> 7])
    entry = b"\x40\x01x" + size + value
    bomb = b"\x82\x86\x84" + entry + b"\xbe" * 12_000
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, bomb))
    connection.receive(until_stream=1, deadline_s=5)
    assert connection.refused(1)


def test_requests_taken_back_at_once_do_not_pile_up(
    server: ServerProcess, connection: H2Socket
) -> None:
    topic = fresh("reset")
    with open_client(server.url) as client:
        Api(client).create(topic)
    head = fields("POST", f"/v0/topics/{topic}/diff", JSON)
    start_s = time.monotonic()
    for number in range(3000):
        stream_id = 2 * number + 1
        connection.send(
            connection.headers_frame(stream_id, head, flags=END_HEADERS)
            + frame(DATA, END_STREAM, stream_id, b'{"wait_ms":30000}')
            + frame(RST_STREAM, 0, stream_id, b"\x00\x00\x00\x08")
        )
        if connection.closed:
            break
    with open_client(server.url) as client:
        ok(client.get("/v0/health"))
    assert time.monotonic() - start_s < 20


def test_more_streams_than_allowed_are_refused(server: ServerProcess, connection: H2Socket) -> None:
    topic = fresh("many")
    with open_client(server.url) as client:
        Api(client).create(topic)
    head = fields("POST", f"/v0/topics/{topic}/diff", JSON)
    for number in range(5000):
        stream_id = 2 * number + 1
        connection.send(
            connection.headers_frame(stream_id, head, flags=END_HEADERS)
            + frame(DATA, END_STREAM, stream_id, b'{"wait_ms":5000}')
        )
        if connection.closed:
            break
    connection.receive(deadline_s=2)
    assert connection.closed or len(connection.resets) > 1000


@pytest.mark.parametrize(
    "flood",
    [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, b""), frame(DATA, 0, 1, b"")],
    ids=["pings", "settings", "empty data"],
)
def test_a_flood_without_reading_is_bounded(connection: H2Socket, flood: bytes) -> None:
    head = fields("POST", "/v0/topics/flood", JSON)
    connection.send(connection.headers_frame(1, head, flags=END_HEADERS))
    connection.socket.settimeout(1.0)
    sent = 0
    end_s = time.monotonic() + 4
    while not connection.closed and sent < 300_000 and time.monotonic() < end_s:
        connection.send(flood * 1000)
        sent += 1000


@pytest.mark.parametrize(
    "sent",
    [
        PREFACE + frame(SETTINGS, 0, 0, b"\x00\x01\x00"),
        PREFACE + frame(SETTINGS, 0, 3, b""),
        PREFACE + frame(SETTINGS, 0, 0, b"") + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
        PREFACE + frame(SETTINGS, 0, 0, b"") + frame(DATA, 0, 0, b"x"),
        PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 5, 2, b"\x82\x86\x84"),
        PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff"),
        PREFACE + frame(SETTINGS, 0, 0, b"") + frame(CONTINUATION, 4, 1, b"\x82"),
        PREFACE + frame(SETTINGS, 0, 0, b"") + frame(8, 0, 0, b"\x00\x00\x00\x00"),
        PREFACE + frame(DATA, 0, 1, b"x"),
    ],
)
def test_broken_frames_close_the_connection(server: ServerProcess, sent: bytes) -> None:
    answer = exchange(server.port, sent, deadline_s=5)
    assert answer.closed


def test_a_body_that_never_comes_is_cut_off(connection: H2Socket) -> None:
    connection.send(connection.headers_frame(1, post(1000, "slow"), flags=END_HEADERS))
    connection.receive(until_stream=1, deadline_s=15)
    assert connection.refused(1)


def test_an_idle_connection_is_closed(connection: H2Socket) -> None:
    stream_id = connection.request(fields("GET", "/v0/health"))
    connection.receive(until_stream=stream_id)
    start_s = time.monotonic()
    connection.receive(deadline_s=8)
    assert connection.closed
    assert time.monotonic() - start_s < 6
