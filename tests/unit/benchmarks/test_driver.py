"""The load driver in C: it finds the end of a reply, no earlier and no later."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from benchmarks.server import wire
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.load import Load, Tools, compiler
from benchmarks.server.peers import start_epoll

pytestmark = pytest.mark.skipif(compiler() is None, reason="the driver needs a C compiler")
SECONDS = 0.1
REQUEST = b"the bytes of a request"
EARLY_S = 0.002
DEADLINE_S = 10.0


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("tools"))


class ScriptedServer:
    """Answers each request of a known size with one reply, and keeps its last byte back a while."""

    def __init__(self, replies: list[bytes], sizes: list[int], hello: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._replies, self._sizes, self._hello = replies, sizes, hello
        self.requests: list[bytes] = []
        self.early = False
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # pieces stay pieces
        ended = suppress(ConnectionError)  # by the driver, in the middle of a reply
        with ended, connection, connection.makefile("rb") as incoming:
            if self._hello:
                connection.sendall(b'INFO {"version":"x"}\r\n')
                incoming.read(self._hello)
                connection.sendall(b"PING\r\nPONG\r\n")
                incoming.read(len(b"PONG\r\n"))
            while request := incoming.read(self._sizes[len(self.requests) % len(self._sizes)]):
                self._answer(connection, request)

    def _answer(self, connection: socket.socket, request: bytes) -> None:
        reply = self._replies[len(self.requests) % len(self._replies)]
        self.requests.append(request)
        for start in range(0, len(reply) - 1, 7):
            connection.sendall(reply[start : min(start + 7, len(reply) - 1)])
        if select.select([connection], [], [], EARLY_S)[0]:
            self.early |= connection.recv(1, socket.MSG_PEEK) != b""  # no bytes: it ended
        connection.sendall(reply[-1:])

    @contextmanager
    def running(self) -> Iterator["ScriptedServer"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._thread.join(DEADLINE_S)
            self._listener.close()
        assert not self._thread.is_alive()


def one_at_a_time(
    port: int, protocol: str, *, replies: int = 1, requests: tuple[bytes, ...] = (REQUEST,)
) -> Load:
    return Load(
        port=port,
        protocol=protocol,
        requests=requests,
        records=1,
        replies=replies,
        connections=1,
        setup=wire.NATS_HELLO if protocol == "nats" else b"",
        fill=len(requests) > 1,
    )


HTTP_REPLY = b"HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 12\r\n\r\n\r\n\r\nHTTP/1.1"
PAGE = b"*3\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$4\r\ndata\r\n$6\r\na\r\nb\r\n\r\n*-1\r\n*0\r\n"
ACK = b"MSG _INBOX.0000.1 1 26\r\n" + b'{"stream":"bench","seq":1}' + b"\r\n"
REPLIES = [
    ("http", HTTP_REPLY, 1),
    ("http", b"HTTP/1.1 204 No Content\r\n\r\n", 1),
    ("resp", PAGE, 1),
    ("resp", b"+OK\r\n:12\r\n$-1\r\n$0\r\n\r\n", 4),
    ("nats", ACK, 1),
    ("nats", ACK + b"+OK\r\n" + ACK, 2),
]


@pytest.mark.parametrize(("protocol", "reply", "replies"), REPLIES)
def test_a_reply_in_pieces_ends_with_its_last_byte(
    tools: Tools, protocol: str, reply: bytes, replies: int
) -> None:
    hello = len(wire.NATS_HELLO) if protocol == "nats" else 0
    with ScriptedServer([reply], [len(REQUEST)], hello).running() as server:
        load = one_at_a_time(server.port, protocol, replies=replies)
        figures = tools.drive(load, seconds=SECONDS, warmup=0.02)
    assert figures.rate > 0
    assert not server.early
    assert set(server.requests[:-1]) == {REQUEST}


@pytest.mark.parametrize(
    ("protocol", "reply", "said"),
    [
        ("http", b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "503 Busy"),
        ("resp", b"-ERR unknown command\r\n", "unknown command"),
        ("nats", b'MSG _INBOX.0000.1 1 12\r\n{"error":{}}\r\n', "error"),
        ("http", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "chunked"),
    ],
)
def test_a_run_with_a_refused_request_has_no_figures(
    tools: Tools, protocol: str, reply: bytes, said: str
) -> None:
    hello = len(wire.NATS_HELLO) if protocol == "nats" else 0
    with (
        ScriptedServer([reply], [len(REQUEST)], hello).running() as server,
        pytest.raises(CannotMeasure, match=said),
    ):
        tools.drive(one_at_a_time(server.port, protocol), seconds=SECONDS, warmup=0)


def test_the_seqs_of_a_claim_are_in_the_ack_that_follows(tools: Tools) -> None:
    claim, ack = wire.http_claim("q", count=2), wire.http_ack("q", count=2)
    jobs = b'{"claimed":[{"$seq":41,"data":1},{"$seq":18446744073709551615}]}'
    replies = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(jobs), jobs), HTTP_REPLY]
    with ScriptedServer(replies, [len(claim), len(ack)]).running() as server:
        load = one_at_a_time(server.port, "http", requests=(claim, ack))
        tools.drive(load, seconds=SECONDS, warmup=0)
    first_ack = server.requests[1]
    assert first_ack.endswith(b'"worker-0000","seqs":[                  41,18446744073709551615]}')


def test_a_request_larger_than_all_buffers_arrives_as_it_is(tools: Tools) -> None:
    large = b"".join(b"%08d" % number for number in range(2_000_000))
    with ScriptedServer([HTTP_REPLY], [len(large)]).running() as server:
        load = one_at_a_time(server.port, "http", requests=(large,))
        tools.drive(load, seconds=SECONDS, warmup=0)
    assert server.requests[0] == large


def test_a_pipeline_over_many_connections_gets_all_its_replies(
    tools: Tools, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        peer = start_epoll(tmp_path, tools, stack)
        load = Load(
            port=peer.port,
            protocol="http",
            requests=[wire.http_append("bench", count=1), wire.http_append("bench", count=20)],
            records=1,
            connections=16,
            depth=8,
        )
        figures = tools.drive(load, seconds=SECONDS, warmup=0.02)
    assert figures.rate > 0
    assert 0 < figures.p50_us <= figures.p99_us
