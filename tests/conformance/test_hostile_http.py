"""What hostile clients send: refused or closed in bounded time, while a good client is served."""

import contextlib
import gzip
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from tests.conformance.api import TRANSPORTS, Api, fresh, ok, open_client, refused
from tests.conformance.raw_http import (
    connect,
    exchange,
    receive_all,
    receive_replies,
    send_all,
)

from topics.api.routes import ROUTES, Route
from topics.config import ServerConfig
from topics.testing.server_process import ServerProcess

SETTINGS = {
    "TOPICS_HEAD_TIMEOUT_MS": "500",
    "TOPICS_BODY_MIN_BYTES_PER_S": "1024",
    "TOPICS_MAX_BODY_BYTES": "2000000",
    "TOPICS_IDLE_TIMEOUT_MS": "400",
    "TOPICS_ALLOWED_HOSTS": "localhost,127.0.0.1,good.example",
}
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
TAKES_JSON = [
    route
    for route in ROUTES
    if route.method in ("POST", "PUT")
    and not {":pin", ":upload", ":backup"} & set(route.path.split("/"))
]
GET = b"GET /v0/health HTTP/1.1\r\n"
POST = b"POST /v0/topics/hostile HTTP/1.1\r\n" + HOST + JSON
BODY = b'{"records":[{"data":1}]}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)

HEADS = {
    "no host": GET + b"\r\n",
    "two hosts": GET + HOST + HOST + b"\r\n",
    "two different hosts": GET + HOST + b"Host: good.example\r\n\r\n",
    "a host that is not ours": GET + b"Host: evil.example\r\n\r\n",
    "a host that starts like ours": GET + b"Host: localhost.evil.example\r\n\r\n",
    "an empty host": GET + b"Host: \r\n\r\n",
    "a host with a path": GET + b"Host: localhost/x\r\n\r\n",
    "1.0 with transfer encoding": POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNKS,
    "length and transfer encoding": POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "transfer encoding and length": POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "two transfer encodings": POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "an unknown transfer encoding": POST + b"Transfer-Encoding: cow\r\n\r\n" + CHUNKS,
    "chunked that is not last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS,
    "transfer encoding with a tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKS,
    "two lengths": POST + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY,
    "lengths in a list": POST + b"Content-Length: 24, 24\r\n\r\n" + BODY,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + BODY,
    "a signed length": POST + b"Content-Length: +24\r\n\r\n" + BODY,
    "a length in hex": POST + b"Content-Length: 0x18\r\n\r\n" + BODY,
    "a length with a space": POST + b"Content-Length: 2 4\r\n\r\n" + BODY,
    "an endless length": POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n" + BODY,
    "an empty length": POST + b"Content-Length: \r\n\r\n" + BODY,
    "a huge chunk extension": POST + CHUNKED + b"\r\n18;" + b"x" * 500_000 + b"\r\n" + BODY,
    "endless chunk extensions": POST
    + CHUNKED
    + b"\r\n"
    + b"1;xxxxxxxxxxxxxxxxxxx\r\n \r\n" * 40_000
    + b"0\r\n\r\n",
    "endless trailers": POST + CHUNKED + b"\r\n0\r\n" + b"X-T: y\r\n" * 40_000 + b"\r\n",
    "a chunk size that is no number": POST + CHUNKED + b"\r\nzz\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a negative chunk size": POST + CHUNKED + b"\r\n-5\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk size in C": POST + CHUNKED + b"\r\n0x18\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": POST + CHUNKED + b"\r\n" + b"f" * 17 + b"\r\n" + BODY,
    "an empty chunk size": POST + CHUNKED + b"\r\n\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk longer than its size": POST + CHUNKED + b"\r\n2\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk with a bare line feed": POST + CHUNKED + b"\r\n18\n" + BODY + b"\n0\n\n",
    "a header of a megabyte": GET + HOST + b"X-Big: " + b"x" * 1_000_000 + b"\r\n\r\n",
    "ten thousand headers": GET + HOST + b"X-Many: 1\r\n" * 10_000 + b"\r\n",
    "sixty-five headers": GET + HOST + b"X-Many: 1\r\n" * 65 + b"\r\n",
    "a head of seventeen kilobytes": GET
    + HOST
    + (b"X-Big: " + b"x" * 8500 + b"\r\n") * 2
    + b"\r\n",
    "an address of a megabyte": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "an address of nine kilobytes": b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method of a megabyte": b"G" * 1_000_000 + b" / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a folded header": GET + HOST + b"X-Fold: a\r\n b\r\n\r\n",
    "a fold first": GET + b" " + HOST + b"\r\n",
    "bare line feeds": GET.replace(b"\r", b"") + b"Host: localhost\n\n",
    "a bare carriage return": GET + HOST + b"X-Y: a\rb\r\n\r\n",
    "a zero byte in a header": GET + HOST + b"X-Zero: a\x00b\r\n\r\n",
    "a zero byte in a name": GET + HOST + b"X-\x00Zero: a\r\n\r\n",
    "a zero byte in the address": b"GET /v0/he\x00alth HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space before the colon": GET + HOST + b"X-Space : a\r\n\r\n",
    "a header without a colon": GET + HOST + b"nonsense\r\n\r\n",
    "a header without a name": GET + HOST + b": a\r\n\r\n",
    "another version": b"GET /v0/health HTTP/3.7\r\n" + HOST + b"\r\n",
    "no version": b"GET /v0/health\r\n" + HOST + b"\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300,
    "random bytes": bytes(range(256)) * 8,
    "half of the HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\nnonsense" + b"\x00" * 100,
    "HTTP/2 with a first frame that is none": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
    "a tunnel": b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "an upgrade to nothing": b"GET /v0/ws HTTP/1.1\r\n"
    + HOST
    + b"Upgrade: websocket\r\nConnection: close, Upgrade\r\n\r\n",
    "a websocket without a key": b"GET /v0/ws HTTP/1.1\r\n"
    + HOST
    + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
}


FRAMING = (
    "1.0 with",
    "length",
    "transfer",
    "two transfer",
    "an unknown transfer",
    "chunked",
    "two lengths",
    "a negative",
    "a signed",
    "a length",
    "an endless",
    "an empty length",
    "a chunk",
    "a fold",
    "bare",
    "a bare",
    "a zero",
    "a space",
    "a header without",
)
"""Whoever reads on after these may take a body for a request."""


class GoodClient:
    """Somebody who only wants an answer, again and again."""

    def __init__(self, url: str) -> None:
        self.statuses: list[int] = []
        self.slowest_s = 0.0
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        with open_client(self._url) as client:
            while not self._stop.wait(0.005):
                start_s = time.monotonic()
                body = {"records": [{"data": 1}]}
                self.statuses.append(client.post("/v0/topics/good", json=body).status_code)
                self.slowest_s = max(self.slowest_s, time.monotonic() - start_s)


@pytest.fixture(autouse=True)
def good_client(server: ServerProcess) -> Iterator[GoodClient]:
    """Serve a good client all the while, and hold its answers against the promise."""
    client = GoodClient(server.url)
    yield client
    client.stop()
    assert set(client.statuses) <= {200, 201}
    assert client.slowest_s < 2.0


@pytest.mark.parametrize("sent", HEADS.values(), ids=HEADS.keys())
def test_it_is_refused_or_closed(server: ServerProcess, sent: bytes) -> None:
    answer = exchange(server.port, sent)
    assert answer.is_refusal, answer.received[:300]
    assert answer.elapsed_s < 5
    with open_client(server.url) as client:
        refused(client.get("/v0/topics/hostile"), 404, "topic_not_found")


@pytest.mark.parametrize("name", [name for name in HEADS if name.startswith(FRAMING)])
def test_nothing_behind_a_broken_frame_is_a_request(server: ServerProcess, name: str) -> None:
    smuggled = (
        b"PUT /v0/topics/smuggled HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 2\r\n\r\n{}"
    )
    exchange(server.port, HEADS[name] + smuggled)
    with open_client(server.url) as client:
        refused(client.get("/v0/topics/smuggled"), 404, "topic_not_found")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "127.0.0.1", "localhost:{port}", "good.example:1234"]
)
def test_our_own_names_are_good_hosts(server: ServerProcess, host: str) -> None:
    name = host.replace("{port}", str(server.port)).encode()
    answer = exchange(server.port, GET + b"Host: " + name + b"\r\nConnection: close\r\n\r\n")
    assert answer.statuses == [200]
    assert answer.closed


def test_a_wrong_authority_is_refused_over_http2(server: ServerProcess) -> None:
    with open_client(server.url, transport="h2c") as client:
        response = client.get("/v0/health", headers={"Host": "evil.example"})
        assert 400 <= response.status_code < 500


def test_http_1_0_is_answered_and_closed(server: ServerProcess) -> None:
    answer = exchange(server.port, b"GET /v0/health HTTP/1.0\r\n" + HOST + b"\r\n")
    assert answer.closed
    assert answer.statuses == [200]


def test_a_slow_head_is_cut_off(server: ServerProcess) -> None:
    with connect(server.port) as connection:
        start_s = time.monotonic()
        for byte in GET + HOST + b"X-Slow: " + b"x" * 200:
            with contextlib.suppress(OSError):
                connection.send(bytes([byte]))
            time.sleep(0.02)  # this is the attack
            if time.monotonic() - start_s > 1.5:
                break
        answer = receive_all(connection, deadline_s=3)
    assert answer.closed
    assert set(answer.statuses) <= {400, 408}


def test_a_head_that_never_ends_is_cut_off(server: ServerProcess) -> None:
    answer = exchange(server.port, GET + HOST + b"X-Y: ", deadline_s=5)
    assert answer.closed
    assert answer.elapsed_s < 3


def test_a_slow_body_is_cut_off(server: ServerProcess) -> None:
    with connect(server.port) as connection:
        connection.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        start_s = time.monotonic()
        closed = False
        while time.monotonic() - start_s < 12 and not closed:
            try:
                connection.send(b"x" * 5)
                connection.settimeout(0.1)  # this is the attack: fifty bytes a second
                closed = connection.recv(1000) == b""
            except TimeoutError:
                continue
            except OSError:
                closed = True
        assert closed


def test_an_idle_connection_is_closed(server: ServerProcess) -> None:
    answer = exchange(server.port, GET + HOST + b"\r\n", deadline_s=8)
    assert answer.statuses == [200]
    assert answer.closed
    assert 0.2 < answer.elapsed_s < 6


def test_a_connection_that_says_nothing_is_closed(server: ServerProcess) -> None:
    assert exchange(server.port, b"", deadline_s=8).closed


@pytest.mark.parametrize("transport", ["http1", "h2c"])
def test_a_gzip_bomb_does_not_go_off(server: ServerProcess, transport: str) -> None:
    small = gzip.compress(b'{"records":[{"data":"' + b"x" * 1_500_000 + b'"}]}')
    big = gzip.compress(b"x" * 100_000_000, compresslevel=1)
    nested = gzip.compress(b"x" * 1_000_000) * 50
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with open_client(server.url, transport=transport) as client:
        for bomb in (small, big, nested):
            response = client.post("/v0/topics/hostile", content=bomb, headers=headers)
            assert response.status_code in {400, 413}


def test_a_body_in_chunks_is_stopped_at_the_limit(server: ServerProcess) -> None:
    with connect(server.port) as connection:
        send_all(connection, POST + CHUNKED + b"\r\n")
        for _ in range(80):
            send_all(connection, b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        answer = receive_all(connection)
    assert answer.is_refusal
    assert answer.statuses in ([413], [])


def test_a_long_body_is_refused_before_it_is_sent(server: ServerProcess) -> None:
    answer = exchange(server.port, POST + b"Content-Length: 99999999\r\n\r\n")
    assert answer.statuses == [413]
    assert answer.closed


def test_a_long_body_that_nobody_wants_is_not_kept(server: ServerProcess) -> None:
    head = b"POST /v0/nowhere HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 1900000\r\n\r\n"
    answer = exchange(server.port, head + b"x" * 1000)
    assert answer.statuses == [404]
    assert answer.closed


def test_an_expectation_is_met_or_refused_at_once(server: ServerProcess) -> None:
    head = POST + LENGTH + b"Expect: 100-continue\r\n\r\n"
    with connect(server.port) as connection:
        connection.sendall(head)
        connection.settimeout(5)
        first = connection.recv(1000)
        assert first.startswith((b"HTTP/1.1 100", b"HTTP/1.1 417"))
    answer = exchange(
        server.port, POST + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
    )
    assert answer.statuses in ([413], [417])


def test_a_hundred_requests_in_one_write_are_answered_in_order(server: ServerProcess) -> None:
    topic = fresh("pipe").encode()
    requests = b""
    for number in range(100):
        body = b'{"records":[{"data":%d}]}' % number
        requests += b"POST /v0/topics/%s HTTP/1.1\r\n" % topic + HOST + JSON
        requests += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with connect(server.port) as connection:
        connection.sendall(requests)
        replies = receive_replies(connection, 100)
    assert [json.loads(body)["first_seq"] for _, body in replies] == list(range(1, 101))
    with open_client(server.url) as client:
        assert Api(client).data(topic.decode()) == list(range(100))


def test_slow_and_quick_requests_in_one_write_keep_their_order(server: ServerProcess) -> None:
    topic = fresh("pipe").encode()
    create = b"PUT /v0/topics/%s HTTP/1.1\r\n" % topic + HOST + JSON
    create += b'Content-Length: 22\r\n\r\n{"durability":"fsync"}'
    body = b'{"wait_ms":300}'
    poll = b"POST /v0/topics/%s/diff HTTP/1.1\r\n" % topic + HOST + JSON
    poll += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    write = b"POST /v0/topics/%s HTTP/1.1\r\n" % topic + HOST + JSON + LENGTH + b"\r\n" + BODY
    missing = b"GET /v0/nothing HTTP/1.1\r\n" + HOST + b"\r\n"
    with connect(server.port) as connection:
        connection.sendall(create + poll + write + GET + HOST + b"\r\n" + missing)
        replies = receive_replies(connection, 5)
    assert [status for status, _ in replies] == [201, 200, 200, 200, 404]
    assert b'"records":[]' in replies[1][1].replace(b" ", b"")
    assert b'"first_seq"' in replies[2][1]
    assert b'"uptime_ms"' in replies[3][1]


def test_endless_pipelining_without_reading_is_bounded(server: ServerProcess) -> None:
    """Requests whose answers nobody reads do not pile up in memory."""
    before = rss_bytes(server)
    with connect(server.port) as connection:
        connection.settimeout(0.3)
        big = GET.replace(b"health", b"metrics") + HOST + b"\r\n"
        end_s = time.monotonic() + 3
        with contextlib.suppress(OSError):
            while time.monotonic() < end_s:
                connection.send(big * 100)
        assert rss_bytes(server) - before < 64 * 1024 * 1024


def rss_bytes(server: ServerProcess) -> int:
    with open(f"/proc/{server.pid}/status", encoding="ascii") as status:  # noqa: PTH123 - procfs
        # Not the pages of mapped files: those are the system's to keep or to drop.
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_a_half_closed_connection_still_gets_its_answer(server: ServerProcess) -> None:
    with connect(server.port) as connection:
        connection.sendall(GET + HOST + b"\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = receive_all(connection)
    assert answer.closed
    assert answer.statuses in ([200], [])


def test_half_a_body_and_an_end_write_nothing(server: ServerProcess) -> None:
    topic = fresh("half").encode()
    head = b"POST /v0/topics/%s HTTP/1.1\r\n" % topic + HOST + JSON + LENGTH + b"\r\n"
    with connect(server.port) as connection:
        connection.sendall(head + BODY[:-1])
        connection.shutdown(socket.SHUT_WR)
        assert receive_all(connection).is_refusal
    with connect(server.port) as connection:
        connection.sendall(head + BODY[:-1])
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    with open_client(server.url) as client:
        ok(client.get("/v0/health"))
        refused(client.get(f"/v0/topics/{topic.decode()}"), 404, "topic_not_found")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("depth", [1_000, 200_000])  # the second as far as the route takes it
@pytest.mark.parametrize("route", TAKES_JSON, ids=lambda route: route.label)
def test_a_body_that_is_nested_too_deep_is_refused(
    server: ServerProcess, route: Route, depth: int, transport: str
) -> None:
    depth = min(depth, route.body_max(ServerConfig()) // 2 - 100)
    with open_client(server.url, transport=transport) as client:
        topic = fresh("deep")
        ok(client.put(f"/v0/topics/{topic}", json={"type": "queue"}), 201)
        path = re.sub(":[a-z]+", topic, route.path)
        body = b'{"records":[{"data":1}],"deep":%b%b}' % (b"[" * depth, b"]" * depth)
        headers = {"Content-Type": "application/json"}
        answer = client.request(route.method, path, content=body, headers=headers)
        refused(answer, 400, "invalid_request")
        assert ok(client.get(f"/v0/topics/{topic}"))["count"] == 0


def test_many_resets_harm_nobody(server: ServerProcess) -> None:
    for _ in range(200):
        connection = connect(server.port)
        connection.sendall(POST + LENGTH + b"\r\n" + BODY[:5])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    with open_client(server.url) as client:
        assert ok(client.get("/v0/health"))["status"] == "ok"


def test_the_server_did_not_stumble(server: ServerProcess) -> None:
    assert "Traceback" not in server.said
