"""A watcher that does not read: it is told and closed, and nobody else notices."""

import http.client
import re
import socket
import time
from collections.abc import Iterator
from typing import Self

import pytest
from tests.conformance.api import Api, fresh, ok, open_client
from tests.conformance.sse_client import Event, Stream, parse_events

from topics.testing.server_process import ServerProcess

SETTINGS = {
    "TOPICS_SLOW_READER_MS": "700",
    "TOPICS_STREAM_BUFFER_BYTES": "131072",
}
PAD = "x" * 50_000
RECORDS = 200


class Sleeper:
    """An HTTP/1.1 stream that is opened and left alone."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(10)
        self._socket.connect(("127.0.0.1", port))
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._connection.sock = self._socket
        self._connection.request("GET", path, headers={"Accept": "text/event-stream"})

    def wake(self) -> list[Event]:
        """Read all that is there until the server's end."""
        response = self._connection.getresponse()
        text = bytearray()
        try:
            while part := response.read1():
                text += part
        except (http.client.IncompleteRead, ConnectionError):
            pass
        return list(parse_events(iter(text.decode().split("\n"))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@pytest.fixture
def api(server: ServerProcess) -> Iterator[Api]:
    with open_client(server.url) as client:
        yield Api(client)


def streams(api: Api) -> int:
    found = re.search(r"^topics_sse_connections (\d+)", api.get("metrics").text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def until_closed(api: Api, left: int) -> None:
    end_s = time.monotonic() + 15
    while streams(api) > left:
        assert time.monotonic() < end_s, "the sleeper was never closed"
        time.sleep(0.02)


def test_a_sleeper_is_told_closed_and_may_resume(api: Api, server: ServerProcess) -> None:
    topic = fresh()
    api.create(topic)
    session = ok(api.post("watch", {"topics": {topic: {"from_seq": 0}}}))
    with Sleeper(server.port, session["stream_url"].removeprefix(server.url)) as sleeper:
        for number in range(RECORDS):
            api.append(topic, [number, PAD])
        until_closed(api, 0)
        events = sleeper.wake()
    seen = [r["$seq"] for e in events if e.kind == "record" for r in e.json["records"]]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) < RECORDS
    last_id = next((event.id for event in reversed(events) if event.id), None)
    with Stream(api.client, session["stream_url"], last_id=last_id) as stream:
        rest = [record["$seq"] for record in stream.records(RECORDS - len(seen))]
    assert rest == list(range(len(seen) + 1, RECORDS + 1))


def test_a_sleeper_that_wakes_hears_why_it_was_closed(api: Api, server: ServerProcess) -> None:
    topic = fresh()
    api.create(topic)
    session = ok(api.post("watch", {"topics": {topic: {"from_seq": 0}}}))
    with Sleeper(server.port, session["stream_url"].removeprefix(server.url)) as sleeper:
        for number in range(RECORDS):
            api.append(topic, [number, PAD])
        until_closed(api, 0)
        *others, last = sleeper.wake()
    assert "error" not in [event.kind for event in others]
    assert last.kind == "error"
    assert set(last.json) >= {"code", "error"}


def test_a_neighbour_is_not_slowed(api: Api, server: ServerProcess) -> None:
    topic = fresh()
    api.create(topic)
    sessions = [ok(api.post("watch", {"topics": {topic: {"from_seq": 0}}})) for _ in range(2)]
    slowest_s = 0.0
    with (
        Sleeper(server.port, sessions[0]["stream_url"].removeprefix(server.url)),
        Stream(api.client, sessions[1]["stream_url"]) as stream,
    ):
        stream.next_of("caught-up")
        for number in range(RECORDS):
            start_s = time.monotonic()
            api.append(topic, [number, PAD])
            (record,) = stream.records(1)
            slowest_s = max(slowest_s, time.monotonic() - start_s)
            assert record["data"][0] == number
    assert slowest_s < 2.0
