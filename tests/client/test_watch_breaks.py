"""A watch goes on exactly where it was, whatever happens to its connection or the server."""

import asyncio
import json
import logging
import socket
import threading
from base64 import urlsafe_b64decode
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.client.bad_server import BadServer, reply, serving
from tests.client.faces import DEADLINE_S

from topics.client import AsyncTopics, Topics
from topics.errors import TopicNotFound, TopicsError, Unreachable
from topics.model.diff import Record
from topics.model.stream import CaughtUp, TopicDeleted, WatchItem
from topics.testing.server_process import ServerProcess

LIVES = 3
BATCH = 30
NAMES = ("a.1", "a.2", "b")
SECRET = "sk-very-secret"
MADE = reply(
    200,
    b'{"wid":"wid_1","stream_url":"/v0/watch/wid_1","session_ttl_ms":1,'
    b'"topics":{"t":{"from_seq":4,"head_seq":4,"earliest_seq":1}}}',
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {"TOPICS_SLOW_READER_MS": "300", "TOPICS_STREAM_BUFFER_BYTES": "65536"}
    with ServerProcess(str(tmp_path / "data"), settings=settings) as process:
        yield process


def write_and_kill(server: ServerProcess) -> None:
    """Write through several lives of the server; a topic of the pattern is made in each."""
    with Topics(server.url) as client:
        for life in range(LIVES):
            for n in range(BATCH):
                number = life * BATCH + n
                for name in (*NAMES, f"a.new-{life}"):
                    client.append(name, [{"data": number}], idempotency_key=str(number))
            server.kill9()
            server.start()


class Got:
    """What came, by topic."""

    def __init__(self) -> None:
        self.rows: defaultdict[str, list[tuple[int, Any]]] = defaultdict(list)
        self.count = 0

    def take(self, item: WatchItem) -> bool:
        """Tell whether all has come."""
        assert not isinstance(item, TopicDeleted)
        if isinstance(item, Record):
            self.rows[item.topic].append((item.seq, item.data))
            self.count += 1
        return self.count == (len(NAMES) + 1) * LIVES * BATCH

    def check(self) -> None:
        for name in NAMES:
            assert [data for _, data in self.rows[name]] == list(range(LIVES * BATCH))
        for life in range(LIVES):
            wanted = list(range(life * BATCH, (life + 1) * BATCH))
            assert [data for _, data in self.rows[f"a.new-{life}"]] == wanted
        for rows in self.rows.values():
            seqs = [seq for seq, _ in rows]
            assert seqs == sorted(set(seqs))


def create_topics(url: str) -> None:
    with Topics(url) as client:
        for name in NAMES:
            client.create(name, durability="fsync")


@pytest.mark.crash
def test_a_watch_survives_kills_and_neither_skips_nor_repeats(mortal: ServerProcess) -> None:
    create_topics(mortal.url)
    got = Got()
    with Topics(mortal.url) as client, client.watch({"a.*": 0, "b": 0}, limit=7) as watch:
        killer = threading.Thread(target=write_and_kill, args=(mortal,))
        killer.start()
        assert any(got.take(item) for item in watch)
        killer.join(DEADLINE_S)
    got.check()


@pytest.mark.crash
def test_an_awaited_watch_survives_kills(mortal: ServerProcess) -> None:
    create_topics(mortal.url)
    got = Got()

    async def read() -> None:
        client = AsyncTopics(mortal.url)
        async with client, client.watch({"a.*": 0, "b": 0}, limit=7) as watch:
            first = await anext(watch)  # from here on it is connected
            work = asyncio.create_task(asyncio.to_thread(write_and_kill, mortal))
            got.take(first)
            async for item in watch:
                if got.take(item):
                    break
            await work

    asyncio.run(read())
    got.check()


def rows(watch: Iterator[WatchItem], count: int) -> list[tuple[str, int]]:
    found = (item for item in watch if isinstance(item, Record))
    return sorted((item.topic, item.data) for item in islice(found, count))


def lose_watches(server: ServerProcess) -> None:
    """End the server as a crash would that came before it had saved its watches."""
    server.kill9()
    (Path(server.data_dir) / "meta" / "watches.log").unlink(missing_ok=True)


@pytest.mark.crash
def test_a_server_that_forgot_the_watch_is_asked_for_the_rest(mortal: ServerProcess) -> None:
    with Topics(mortal.url) as client:
        client.append("a.1", [{"data": 1}])
        client.append("a.gone", [{"data": 2}])
        client.append("b", [{"data": 3}])
        with client.watch({"a.*": 0, "b": None}) as watch:
            assert rows(watch, 2) == [("a.1", 1), ("a.gone", 2)]
            client.append("b", [{"data": 4}])
            assert rows(watch, 1) == [("b", 4)]
            lose_watches(mortal)
            mortal.start()
            client.drop("a.gone")
            client.append("a.1", [{"data": 5}])
            client.append("a.new", [{"data": 6}])
            client.append("b", [{"data": 7}])
            news = (item for item in watch if not isinstance(item, CaughtUp))
            items = list(islice(news, 4))
    gone = [item for item in items if isinstance(item, TopicDeleted)]
    assert gone == [TopicDeleted(topic="a.gone", head_seq=1)]
    assert rows(iter(items), 9) == [("a.1", 5), ("a.new", 6), ("b", 7)]


@pytest.mark.crash
def test_a_named_topic_that_went_with_the_watch_is_not_found(mortal: ServerProcess) -> None:
    with Topics(mortal.url) as client:
        client.append("b", [{"data": 3}])
        with client.watch({"b": 0}) as watch:
            assert rows(watch, 1) == [("b", 3)]
            next(watch)  # it has caught up
            lose_watches(mortal)
            mortal.start()
            client.drop("b")
            with pytest.raises(TopicNotFound):
                next(watch)


def test_a_slow_reader_is_told_and_gets_everything(
    mortal: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    pad = "x" * 100_000
    with Topics(mortal.url) as client:
        client.create("t")
        with client.watch({"t": 0}, limit=5) as watch:
            next(watch)
            for number in range(200):
                client.append("t", [{"data": [number, pad]}])
            until_closed(client)
            with caplog.at_level(logging.WARNING, logger="topics.watch"):
                records = (item for item in watch if isinstance(item, Record))
                numbers = [item.data[0] for item in islice(records, 200)]
    assert numbers == list(range(200))
    assert [record.name for record in caplog.records] == ["topics.watch"]


def until_closed(client: Topics) -> None:
    done = threading.Event()
    for _ in range(int(DEADLINE_S / 0.05)):
        if "topics_sse_connections 0" in client.metrics():
            return
        done.wait(0.05)
    raise AssertionError("the server never closed the stream")


def event(seq: int, data: int) -> bytes:
    body = b'{"topic":"t","records":[{"$seq":%d,"$ts":1,"data":%d}]}' % (seq, data)
    text = b"event: record\nid: %b\ndata: %b\n\n" % (b"id-%d" % seq, body)
    return b"%x\r\n%b\r\n" % (len(text), text)


def asked_id(server: BadServer, number: int) -> str | None:
    for line in server.requests[number].split(b"\r\n"):
        if line.lower().startswith(b"last-event-id:"):
            return line.partition(b":")[2].strip().decode()
    return None


@pytest.fixture(params=["plain", "awaited"])
def first(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - a function
    """Return the first items of a watch of either client."""

    def plain(url: str, count: int, **options: Any) -> list[int]:  # noqa: ANN401
        with Topics(url, token=SECRET) as client, client.watch(["t"], **options) as watch:
            return [item.data for item in islice(watch, count) if isinstance(item, Record)]

    def awaited(url: str, count: int, **options: Any) -> list[int]:  # noqa: ANN401
        async def run() -> list[int]:
            client = AsyncTopics(url, token=SECRET)
            async with client, client.watch(["t"], **options) as watch:
                found = [await anext(watch) for _ in range(count)]
                return [item.data for item in found if isinstance(item, Record)]

        return asyncio.run(run())

    return plain if request.param == "plain" else awaited


def test_a_stream_that_breaks_is_opened_behind_the_last_event(first: Any) -> None:  # noqa: ANN401
    def script(connection: socket.socket, number: int) -> None:
        if number == 1:
            connection.sendall(MADE)
        elif number == 2:  # lost before anything came
            connection.shutdown(socket.SHUT_RDWR)
        elif number == 3:  # lost in the middle of an event
            connection.sendall(HEAD + event(5, 50) + event(6, 60)[:30])
            connection.shutdown(socket.SHUT_RDWR)
        elif number == 4:  # ended as an answer ends, on a connection that stays
            connection.sendall(HEAD + event(6, 60) + b"0\r\n\r\n")
        else:
            connection.sendall(HEAD + event(7, 70))

    with serving(script) as server:
        assert first(server.url, 3) == [50, 60, 70]
        made_at = asked_id(server, 2) or ""
        assert json.loads(urlsafe_b64decode(made_at + "==")) == {"t": 4}
        assert asked_id(server, 1) is None  # the session stands where it was made
        assert asked_id(server, 3) == "id-5"
        assert asked_id(server, 4) == "id-6"
        for request in server.requests:
            head = request.partition(b"\r\n\r\n")[0]
            assert SECRET.encode() not in head.partition(b"\r\n")[0]
            assert f"Bearer {SECRET}".encode() in head


def test_a_connection_without_heartbeats_is_given_up(
    first: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script(connection: socket.socket, number: int) -> None:
        if number == 1:
            connection.sendall(MADE)
        elif number == 2:
            connection.sendall(HEAD + event(5, 50))  # and then nothing for ever
        else:
            connection.sendall(HEAD + event(6, 60))

    monkeypatch.setattr("topics.client.watching.LATE_S", 0.1)
    monkeypatch.setattr("topics.client.watching.HEARTBEAT_MS", (10, 60_000))
    with serving(script) as server:
        assert first(server.url, 2, heartbeat_ms=10) == [50, 60]
        assert asked_id(server, 2) == "id-5"


def test_an_answer_that_is_no_stream_is_told(first: Any) -> None:  # noqa: ANN401
    def script(connection: socket.socket, number: int) -> None:
        connection.sendall(MADE if number == 1 else reply(200, b"<html>welcome</html>"))

    with serving(script) as server, pytest.raises(TopicsError, match="no stream"):
        first(server.url, 1)


def test_a_watch_that_ends_does_not_wait_for_ever() -> None:
    def script(connection: socket.socket, number: int) -> None:
        if number == 1:
            connection.sendall(MADE)
        else:
            connection.shutdown(socket.SHUT_RDWR)

    with serving(script) as server, Topics(server.url, retry_for_s=0.3) as client:
        watch = client.watch(["t"], until_caught_up=True)
        with pytest.raises(Unreachable):
            list(watch)


def test_closing_ends_a_watch_that_waits_for_its_server() -> None:
    paused = threading.Event()

    def script(connection: socket.socket, number: int) -> None:
        if number == 1:
            connection.sendall(MADE)
        else:
            body = b'{"error":{"code":"not_ready","message":"x","detail":{"replay_progress":0.5}}}'
            connection.sendall(reply(503, body, b"Retry-After: 600"))
            paused.set()

    with serving(script) as server, Topics(server.url) as client:
        watch = client.watch(["t"])
        waiter = threading.Thread(target=list, args=(watch,))
        waiter.start()
        assert paused.wait(DEADLINE_S)
        watch.close()
        waiter.join(DEADLINE_S)
        assert not waiter.is_alive()
