"""The hostile and the heavy: what one client may do to a server that others use, too.

One function a row. Each sends what it has, bounded in bytes and in time, waits for what comes back,
and leaves nothing open. Answers are read and not judged: whether somebody is refused is the matter
of other tests, here only the others count.
"""

import base64
import gzip
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from hpack import Encoder
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
    fields,
    frame,
)

OWNER, READER, WRITER, NARROW = (f"{name}-key-0000000000000000" for name in ("o", "r", "w", "n"))
KEYS = f"{OWNER},{READER}:read,{WRITER}:read+write,{NARROW}:read:no-such-prefix."
LONGEST_S = 10.0
FLOOD_S = 3.0
PREPARE_S = 300.0
TOPICS = 100_000
RECORDS = 1_000_000
MIB = 1024 * 1024
BODY_BYTES = 64 * MIB - 1024
WINDOW_UPDATE, PRIORITY = 8, 2
JSON = "Content-Type: application/json\r\n"
GZIPPED = "Content-Encoding: gzip\r\n"


class Server(NamedTuple):
    """Where the requests go."""

    port: int


Attack = Callable[[Server], None]
ROWS: dict[str, Attack] = {}


def row(name: str) -> Callable[[Attack], Attack]:
    def keep(attack: Attack) -> Attack:
        ROWS[name] = attack
        return attack

    return keep


# By hand.


def request(
    method: str, path: str, body: bytes = b"", *, key: str | None = OWNER, more: str = JSON
) -> bytes:
    who = f"Authorization: Bearer {key}\r\n" if key else ""
    length = f"Content-Length: {len(body)}\r\n" if body or method != "GET" else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{who}{more}{length}\r\n".encode() + body


def send(
    server: Server,
    sent: bytes | Iterable[bytes],
    *,
    answers: int = 1,
    longest_s: float = LONGEST_S,
) -> bytes:
    """Send on a connection of its own, and read until so many answers began and it is quiet."""
    with connected(server) as connection:
        reader = Reader(connection)
        with suppress(OSError):  # it may hang up on us, which is a fine answer
            for part in [sent] if isinstance(sent, bytes) else sent:
                connection.sendall(part)
        return reader.wait(answers, longest_s)


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) as connection:
        yield connection


class Reader:
    """Takes all that comes, in a thread: nobody is a slow reader without meaning it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = 0
        self._tail = b""
        self._is_over = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, answers: int, longest_s: float) -> bytes:
        """Return the last of what came when there are so many answers, or nothing more comes."""
        end_s = time.monotonic() + longest_s
        with self._news:
            while self._answers < answers and not self._is_over and time.monotonic() < end_s:
                self._news.wait(0.1)
        return self._tail

    def _read(self) -> None:
        with suppress(OSError):
            while data := self._connection.recv(MIB):
                with self._news:
                    self._answers += data.count(b"HTTP/1.1 ")
                    self._tail = data[-65536:]
                    self._news.notify()
        with self._news:
            self._is_over = True
            self._news.notify()


def flood(server: Server, opening: bytes, part: bytes, *, seconds: float = FLOOD_S) -> None:
    """Send the same for some seconds, as quickly as it is taken."""
    end_s = time.monotonic() + seconds
    with connected(server) as connection:
        Reader(connection)
        connection.settimeout(seconds)
        with suppress(OSError):
            connection.sendall(opening)
            while time.monotonic() < end_s:
                connection.sendall(part)


def together(works: Iterable[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def prepare(server: Server) -> None:
    """Make what the heavy requests are about."""
    batch = json.dumps({"records": [{"data": {"n": n}, "tag": f"k{n}"} for n in range(10_000)]})
    for topic in ("million", "by-seq", "dropped"):
        send(server, request("PUT", f"/v0/topics/{topic}", b"{}"))
        write = request("POST", f"/v0/topics/{topic}?return_seqs=false", batch.encode())
        send(server, [write] * (RECORDS // 10_000), answers=RECORDS // 10_000)
    fat = json.dumps({"records": [{"data": "x" * 900}] * 1000}).encode()
    send(server, request("POST", "/v0/topics/fat", fat))
    send(server, request("PUT", "/v0/topics/jobs", b'{"type":"queue","max_deliveries":1000}'))
    jobs = request("POST", "/v0/topics/jobs?return_seqs=false", batch.encode())
    send(server, [jobs] * 20, answers=20)
    shares = [range(start, TOPICS, 64) for start in range(64)]
    together(partial(make_topics, server, share) for share in shares)


def make_topics(server: Server, numbers: range) -> None:
    one = b'{"records":[{"data":1}]}'
    writes = (request("POST", f"/v0/topics/many.{n:06}", one) for n in numbers)
    send(server, writes, answers=len(numbers), longest_s=PREPARE_S)


# Without a key.


FORM = "Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://localhost\r\n"


@row("no key: sign-in with 690 KiB of gzip")
def sign_in_gzip(server: Server) -> None:
    varied = (b"%41" * 30 + b"%%%02x" % (n * 7919 % 256) for n in range(40 * MIB // 93))
    body = gzip.compress(b"key=" + b"".join(varied), 6)
    send(server, request("POST", "/console/login", body, key=None, more=FORM + GZIPPED))


@row("no key: sign-in with 64 MiB")
def sign_in_plain(server: Server) -> None:
    body = b"key=" + b"%41" * (BODY_BYTES // 3 - 2)
    send(server, request("POST", "/console/login", body, key=None, more=FORM))


@row("no key: 64 MiB to every route, eight at once")
def refused_bodies(server: Server) -> None:
    body = b"[" + b"[]," * (BODY_BYTES // 3 - 10) + b"1]"
    together(
        partial(send, server, request("POST", path, body, key=None))
        for path in ("/v0/topics/t", "/v0/watch", "/v0/tickets", "/v0/none") * 2
    )


@row("no key: heads of 1,000 fields, 200 a connection")
def wide_heads(server: Server) -> None:
    for length in (20, 200):
        more = "".join(f"X-{n}: {'y' * length}\r\n" for n in range(12_000 // (length + 9)))
        ask = request("GET", "/v0/health", key=None, more=more)
        send(server, ask * 200, answers=200)


@row("no key: 20,000 pipelined requests")
def pipeline(server: Server) -> None:
    send(server, request("GET", "/v0/ready", key=None, more="") * 20_000, answers=20_000)


@row("no key: 20,000 different heads")
def different_heads(server: Server) -> None:
    heads = (request("GET", f"/none/{n}", key=None, more="") for n in range(20_000))
    send(server, b"".join(heads), answers=20_000)


@row("no key: openapi, docs, sign-in page, 300 each, gzip")
def open_pages(server: Server) -> None:
    for path in ("/openapi.json", "/docs", "/console/login"):
        ask = request("GET", path, key=None, more="Accept-Encoding: gzip\r\n")
        send(server, ask * 300, answers=300)


@row("no key: 500 connections that come and go")
def comers(server: Server) -> None:
    for _ in range(500):
        with connected(server):
            pass


def h2_opening() -> bytes:
    return PREFACE + frame(SETTINGS, 0, 0, b"")


def h2_head(method: str, path: str, *more: tuple[str, str]) -> bytes:
    return Encoder().encode(fields(method, path, *more))


def h2_row(name: str, part: bytes, *, opening: bytes = b"") -> None:
    many = part * max(1, 65_536 // len(part))
    ROWS[f"no key: HTTP/2 {name}"] = lambda server: flood(server, h2_opening() + opening, many)


LONG_POST = h2_head("POST", "/console/login", ("content-type", "application/json"))
h2_row("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)))
h2_row("PING", frame(PING, 0, 0, b"12345678"))
h2_row("SETTINGS", frame(SETTINGS, 0, 0, b""))
h2_row("SETTINGS that change", frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535) * 16))
h2_row("PRIORITY", frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 15)))
h2_row("unknown frames", frame(0xEE, 0, 0, b"x"))
h2_row("empty DATA", frame(DATA, 0, 1, b""), opening=frame(HEADERS, END_HEADERS, 1, LONG_POST))
h2_row(
    "DATA of one byte", frame(DATA, 0, 1, b"x"), opening=frame(HEADERS, END_HEADERS, 1, LONG_POST)
)
h2_row("CONTINUATION", frame(CONTINUATION, 0, 1, b""), opening=frame(HEADERS, 0, 1, LONG_POST))


@row("no key: HTTP/2 streams opened and reset")
def rapid_reset(server: Server) -> None:
    head = h2_head("POST", "/console/login", ("content-type", "application/json"))
    resets = (
        frame(HEADERS, END_HEADERS, number, head) + frame(RST_STREAM, 0, number, b"\0\0\0\x08")
        for number in range(1, 40_001, 2)
    )
    send(server, [h2_opening(), b"".join(resets)], answers=0)
    time.sleep(1)


@row("no key: HTTP/2 requests in one go")
def h2_requests(server: Server) -> None:
    head = h2_head("GET", "/v0/health")
    asks = (
        frame(HEADERS, END_HEADERS | END_STREAM, number, head) for number in range(1, 20_001, 2)
    )
    with connected(server) as connection:
        Reader(connection)
        with suppress(OSError):
            connection.sendall(
                h2_opening() + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))
            )
            connection.sendall(b"".join(asks))
        time.sleep(FLOOD_S)


@row("no key: HTTP/2 heads that fill the table")
def h2_tables(server: Server) -> None:
    def heads() -> Iterator[bytes]:
        encoder = Encoder()
        for number in range(1, 4_001, 2):
            more = tuple((f"x-{number}-{n}", "v" * 40) for n in range(40))
            head = encoder.encode(fields("GET", "/v0/health", *more))
            yield frame(HEADERS, END_HEADERS | END_STREAM, number, head)

    send(server, [h2_opening(), *heads()], answers=0)
    time.sleep(1)


# With a key that may read.

DEEP = b"[" * 200 + b"]" * 200


def shapes(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield JSON that is large in each of the ways there are."""
    yield "wrong type, junk behind", b'{"limit":"x","junk":[' + b"0," * (size // 2 - 20) + b"0]}"
    yield "wide", b"{" + b",".join(b'"k%06d":0' % n for n in range(size // 12)) + b"}"
    yield "arrays", b'{"junk":[' + b"[]," * (size // 3 - 10) + b"[]]}"
    yield "deep", b'{"junk":[' + b",".join([DEEP] * (size // 410)) + b"]}"
    yield "one text", b'{"node":"' + b"x" * (size - 20) + b'"}'
    yield "escapes", b'{"node":"' + b"\\u0041" * (size // 6 - 5) + b'"}'
    yield "names", b'{"topics":{' + b",".join(b'"t%06d":{}' % n for n in range(size // 13)) + b"}}"
    yield "seqs", b'{"node":"w","seqs":[' + b"1," * (size // 2 - 20) + b"1]}"
    yield "floats", b'{"from_seq":1.0,"seqs":[' + b"1.0," * (size // 4 - 10) + b"1.0]}"
    yield "not JSON", b'{"a":' * (size // 5)


BODIES = {
    "diff": ("POST", "/v0/topics/million/diff"),
    "delete": ("POST", "/v0/topics/fat/delete"),
    "topic": ("PUT", "/v0/topics/new"),
    "append": ("POST", "/v0/topics/new"),
    "claim": ("POST", "/v0/topics/jobs/claim"),
    "ack": ("POST", "/v0/topics/jobs/ack"),
    "nack": ("POST", "/v0/topics/jobs/nack"),
    "extend": ("POST", "/v0/topics/jobs/extend"),
    "redrive": ("POST", "/v0/topics/jobs/redrive"),
    "router": ("PUT", "/v0/routers/a-b"),
    "join": ("POST", "/v0/groups/g/join"),
    "heartbeat": ("POST", "/v0/groups/g/heartbeat"),
    "leave": ("POST", "/v0/groups/g/leave"),
    "commit": ("POST", "/v0/groups/g/commit"),
    "poll": ("POST", "/v0/groups/g/poll"),
    "seek": ("POST", "/v0/groups/g/seek"),
    "watch": ("POST", "/v0/watch"),
    "ticket": ("POST", "/v0/tickets"),
    "backup": ("POST", "/v0/backups/b"),
    "pin": ("POST", "/v0/pins/p"),
    "upload": ("POST", "/v0/uploads"),
    "attach": ("POST", "/v0/uploads/u/attach"),
    "compact": ("POST", "/v0/topics/fat/compact"),
    "resend": ("POST", "/console/resend/fat"),
}


def bodies_row(word: str, method: str, path: str) -> None:
    def attack(server: Server) -> None:
        for size in (64 * 1024, MIB, 16 * MIB):
            for _, body in shapes(size):
                send(server, request(method, path, body))
                packed = gzip.compress(body, 1)
                send(server, request(method, path, packed, more=JSON + GZIPPED))

    ROWS[f"bodies of each kind: {word}"] = attack


for _word, (_method, _path) in BODIES.items():
    bodies_row(_word, _method, _path)


@row("read key: diff with a wrong type and junk, 3.6 MiB of gzip")
def diff_junk(server: Server) -> None:
    junk = b",".join(b'{"a":%d}' % (n * 7919 % 100_003) for n in range(4 * MIB))
    body = b'{"limit":"x","junk":[' + junk + b"]}"
    packed = gzip.compress(body, 6)
    send(server, request("POST", "/v0/topics/fat/diff", packed, key=READER, more=JSON + GZIPPED))


@row("read key: 30,000 tickets")
def tickets(server: Server) -> None:
    send(server, request("POST", "/v0/tickets", b"{}", key=READER) * 30_000, answers=30_000)


@row("read key: 20 pages in a pipeline, gzip")
def gzip_pages(server: Server) -> None:
    ask = request(
        "POST",
        "/v0/topics/fat/diff",
        b'{"limit":1000,"max_batch_bytes":8388608}',
        key=READER,
        more=JSON + "Accept-Encoding: gzip\r\n",
    )
    send(server, ask * 20, answers=20)


@row("read key: 200 pages that nobody takes, on 20 connections")
def unread_pages(server: Server) -> None:
    ask = request("POST", "/v0/topics/fat/diff", b'{"limit":1000}', key=READER)
    connections = []
    for _ in range(20):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(ask * 10)
        connections.append(connection)
    time.sleep(2)
    for connection in connections:
        connection.close()


@row("read key: 256 patterns over 100,000 topics")
def patterns(server: Server) -> None:
    for names in (
        {f"many.{n * 390:06}*": {"tail": True} for n in range(256)},  # of one topic each
        {f"{'m' * n}none*": {"tail": True} for n in range(100)},
        {"*": {"from_seq": 0}},
    ):
        body = json.dumps({"topics": names}).encode()
        tail = send(server, request("POST", "/v0/watch", body, key=READER))
        found = tail.find(b"/v0/watch/wid_")
        if found >= 0:
            path = tail[found:].split(b'"')[0].decode()
            more = "Accept: text/event-stream\r\n"
            with connected(server) as connection:
                Reader(connection)
                connection.sendall(request("GET", path, key=READER, more=more))
                time.sleep(2)


@row("read key: 2,000 watches with 60 KiB of filters")
def fat_watches(server: Server) -> None:
    names = {
        f"many.{n:06}": {"tail": True, "match": ["tag", "Eq", f"{n:0200}"]} for n in range(200)
    }
    body = json.dumps({"topics": names}).encode()
    send(server, request("POST", "/v0/watch", body, key=READER) * 2_000, answers=2_000)


@row("read key: lists of 1,000 topics, 100 pages, and by prefix")
def lists(server: Server) -> None:
    pages = request("GET", "/v0/topics?page_size=1000", key=READER, more="")
    prefix = request("GET", "/v0/topics?page_size=1000&prefix=many.09", key=READER, more="")
    none = request("GET", "/v0/topics?page_size=1000", key=NARROW, more="")
    for ask in (pages, prefix, none):
        send(server, ask * 30, answers=30)
    for other in ("/v0/routers", "/v0/groups"):
        send(server, request("GET", other, key=READER, more="") * 30, answers=30)


@row("read key: metrics, text and JSON, of all and of a prefix")
def scrapes(server: Server) -> None:
    for key in (READER, NARROW):
        for accept in ("text/plain", "application/json"):
            ask = request("GET", "/v0/metrics", key=key, more=f"Accept: {accept}\r\n")
            send(server, ask * 10, answers=10)


@row("read key: pages and data of the console")
def console(server: Server) -> None:
    views = (
        "overview", "topics", "queues", "groups", "routers", "storage", "latency", "pipeline",
        "history", "graph", "topic?topic=million", "history?topic=million",
    )  # fmt: skip
    for key in (READER, NARROW):
        for view in views:
            ask = request("GET", f"/console/data/{view}", key=key, more="")
            send(server, ask * 5, answers=5)


@row("read key: reads that find nothing in a million records")
def vain_reads(server: Server) -> None:
    for body in (
        b'{"match":["tag","Eq","none"],"limit":1000}',
        b'{"match":["tag","Glob","none*"],"limit":1000}',
        b'{"node":["a","b"],"limit":1000,"from_seq":0}',
    ):
        send(server, request("POST", "/v0/topics/million/diff", body, key=READER) * 5, answers=5)


def websocket(server: Server, frames: bytes, *, key: str = WRITER) -> None:
    nonce = base64.b64encode(os.urandom(16)).decode()
    more = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {nonce}\r\n"
    )
    send(server, [request("GET", "/v0/ws", key=key, more=more), frames], answers=2)
    time.sleep(1)


def ws_frame(payload: bytes, *, op: int = 1, fin: bool = True) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65_536:
        length = bytes([0x80 | 126]) + struct.pack(">H", size)
    else:
        length = bytes([0x80 | 127]) + struct.pack(">Q", size)
    return bytes([(0x80 if fin else 0) | op]) + length + b"\0\0\0\0" + payload


def ws_row(name: str, opening: bytes, part: bytes, size: int = 4 * MIB) -> None:
    frames = opening + part * (size // len(part))
    ROWS[f"read key: WebSocket {name}"] = lambda server: websocket(server, frames)


def ws_op(op: str, **more: object) -> bytes:
    return ws_frame(json.dumps({"op": op, "request_id": "r", **more}).encode())


ws_row("4 MiB of tiny frames", b"", ws_frame(b"x"))
ws_row("4 MiB of empty fragments", ws_frame(b"", fin=False), ws_frame(b"", op=0, fin=False))
ws_row("4 MiB of pings", b"", ws_frame(b"", op=9))
ws_row("4 MiB of pongs", b"", ws_frame(b"x", op=10))
ws_row("4 MiB of ping ops", b"", ws_op("ping"))
ws_row("4 MiB of unknown ops", b"", ws_op("none"))
ws_row("4 MiB of publishes", b"", ws_op("publish", topic="ws", records=[{"data": 1}]))
ws_row("4 MiB of subscriptions", b"", ws_op("subscribe", topics={"fat": {"from_seq": 0}}))
ws_row("a message of 60 MiB", b"", ws_frame(b"[" + b"[]," * (20 * MIB) + b"1]"), 1)
ws_row(
    "64 subscriptions to patterns",
    b"",
    ws_op("subscribe", topics={f"many.{n * 390:06}*": {"tail": True} for n in range(256)}),
    64 * 7_000,
)


# With a key that may write.


@row("write key: 4 million unknown members, 48 MiB")
def unknown_members(server: Server) -> None:
    unknown = b",".join(b'"k%07d":0' % n for n in range(4_000_000))
    body = b'{"records":[{"data":1}],' + unknown + b"}"
    record = b'{"records":[{"data":1,' + unknown + b"}]}"
    send(server, request("POST", "/v0/topics/new", body, key=WRITER))
    send(server, request("POST", "/v0/topics/new", record, key=WRITER))


@row("write key: batches of 60 MiB, plain, gzip, one text, deep")
def large_batches(server: Server) -> None:
    fat = b'{"records":[' + b",".join([b'{"data":"%s"}' % (b"x" * 6_200)] * 10_000) + b"]}"
    small = b'{"records":[' + b",".join([b'{"data":{"n":1},"tag":"t"}'] * 10_000) + b"]}"
    nested = (
        b'{"records":[' + b",".join([b'{"data":[%s]}' % b",".join([DEEP] * 2_000)] * 60) + b"]}"
    )
    for body in (fat, small, nested):
        send(server, request("POST", "/v0/topics/new?return_seqs=false", body, key=WRITER))
        packed = gzip.compress(body, 1)
        more = JSON + GZIPPED
        send(server, request("POST", "/v0/topics/new?return_seqs=false", packed, more=more))


@row("write key: chunks of one byte")
def tiny_chunks(server: Server) -> None:
    head = request("POST", "/v0/topics/new", key=WRITER, more=JSON + "X-A: b\r\n")
    head = head.replace(b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n")
    body = b"1\r\n \r\n" * (2 * MIB)
    send(server, [head, body, b'18\r\n{"records":[{"data":1}]}\r\n0\r\n\r\n'])


@row("write key: 16 bodies that never end, 60 MiB each")
def unfinished_bodies(server: Server) -> None:
    head = request("POST", "/v0/topics/new", key=WRITER)
    head = head.replace(b"Content-Length: 0\r\n", b"Content-Length: %d\r\n" % BODY_BYTES)
    part = b" " * (60 * MIB)
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(16)]

    together(partial(give, connection, [head, part]) for connection in connections)
    for connection in connections:
        connection.close()


def give(connection: socket.socket, parts: Iterable[bytes]) -> None:
    """Send what is taken within a moment."""
    connection.settimeout(FLOOD_S)
    with suppress(OSError):
        for part in parts:
            connection.sendall(part)


@row("write key: partitions, 10,000 keys a batch")
def partitioned(server: Server) -> None:
    send(server, request("PUT", "/v0/topics/parts", b'{"partitions":64}'))
    records = b",".join(b'{"data":%d,"tag":"k%d","key":"k%d"}' % (n, n, n) for n in range(10_000))
    body = b'{"records":[' + records + b"]}"
    send(server, [request("POST", "/v0/topics/parts?return_seqs=false", body)] * 5, answers=5)


@row("write key: claims and acks of 1,000 over 200,000 jobs")
def claims(server: Server) -> None:
    claim = request("POST", "/v0/topics/jobs/claim", b'{"node":"w","max":1000}', key=WRITER)
    send(server, claim * 100, answers=100)
    for start in range(1, 100_001, 1_000):
        seqs = list(range(start, start + 1_000))
        body = json.dumps({"node": "w", "seqs": seqs}).encode()
        send(server, request("POST", "/v0/topics/jobs/ack", body, key=WRITER))


# With a key that may delete.


@contextmanager
def appending(server: Server) -> Iterator[None]:
    """Have others append to the same shard all the while."""
    is_over = threading.Event()
    write = request("POST", "/v0/topics/million", b'{"records":[{"data":1,"tag":"z"}]}')

    def append() -> None:
        with connected(server) as connection, suppress(OSError):
            while not is_over.is_set():
                connection.sendall(write)
                connection.recv(65_536)

    writers = [threading.Thread(target=append, daemon=True) for _ in range(4)]
    for writer in writers:
        writer.start()
    yield
    is_over.set()
    for writer in writers:
        writer.join(LONGEST_S)


@row("delete: a glob over a million records while others append")
def delete_glob(server: Server) -> None:
    with appending(server):
        body = b'{"match":["tag","Glob","k*"]}'
        send(server, request("POST", "/v0/topics/million/delete", body))


@row("delete: a million records below a seq while others append")
def delete_before(server: Server) -> None:
    with appending(server):
        send(server, request("POST", "/v0/topics/by-seq/delete", b'{"before_seq":999000}'))


@row("delete: a topic of a million records while others append")
def drop_topic(server: Server) -> None:
    with appending(server):
        send(server, request("DELETE", "/v0/topics/dropped"))


@row("read key: a read of what was deleted")
def read_deleted(server: Server) -> None:
    for topic in ("million", "by-seq"):
        ask = request("POST", f"/v0/topics/{topic}/diff", b'{"limit":1000}', key=READER)
        send(server, ask * 5, answers=5)


@row("many connections at rest: 3,000")
def resting(server: Server) -> None:
    connections = []
    with suppress(OSError):
        connections += [
            socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S)
            for _ in range(3_000)
        ]
    time.sleep(2)
    for connection in connections:
        connection.close()
