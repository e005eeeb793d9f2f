"""Reads between two times, over HTTP: diff, waiting, watch, WebSocket."""

import json
import time
from collections.abc import Iterator

import httpx
import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused, seqs
from tests.conformance.sse_client import Event, Stream, encode_id
from websockets.sync.client import ClientConnection, connect

from topics.testing.server_process import ServerProcess

DEADLINE_S = 10.0
BAD = [
    {"from_ts": -1},
    {"until_ts": -1},
    {"from_ts": 1.5},
    {"from_ts": "2026-01-01T00:00:00Z"},
    {"until_ts": True},
    {"from_ts": 2, "until_ts": 1},
    {"from_ts": 2**64},
]


@pytest.fixture(params=["http1", "h2c"])
def streams(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[httpx.Client]:
    with open_client(server.url, transport=request.param) as client:
        yield client


@pytest.fixture
def socket(server: ServerProcess) -> Iterator[ClientConnection]:
    url = server.url.replace("http", "ws") + "/v0/ws"
    with connect(url, compression=None, proxy=None) as connection:
        yield connection


def fill(api: Api, count: int, **config: object) -> tuple[str, list[int]]:
    """Make a topic whose records all have times of their own; return it and the times."""
    topic = fresh()
    api.create(topic, **config)
    times: list[int] = []
    deadline_s = time.monotonic() + DEADLINE_S
    while len(times) < count:
        assert time.monotonic() < deadline_s
        api.append(topic, len(times))
        (record,) = api.diff(topic, from_seq=len(times))["records"]
        times.append(record["$ts"])
        wait_for_next_ms(times[-1])
    return topic, times


def wait_for_next_ms(ts: int) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.time_ns() // 1_000_000 <= ts:
        assert time.monotonic() < deadline_s


def open_watch(api: Api, streams: httpx.Client, topics: Reply, **fields: object) -> Stream:
    session = ok(api.post("watch", {"topics": topics, **fields}), 200)
    return Stream(streams, session["stream_url"])


def read_to_end(stream: Stream) -> tuple[list[int], Event]:
    """Return the seqs that come before the window is over, and the event that says so."""
    found: list[int] = []
    while True:
        event = stream.next_of("record", "caught-up")
        if event.kind == "record":
            found += [record["$seq"] for record in event.json["records"]]
        elif "until_reached" in event.json:
            return found, event


def test_a_window_is_read_by_its_times(api: Api, durability: str) -> None:
    topic, times = fill(api, 6, durability=durability)
    page = api.diff(topic, from_ts=times[1], until_ts=times[4])
    assert seqs(page) == [2, 3, 4]
    assert (page["next_from_seq"], page["until_reached"]) == (4, True)
    assert (page["caught_up"], page["lag"], page["tombstone"]) == (False, 2, None)
    assert page["performance"]["records_scanned"] == 3
    assert seqs(api.diff(topic, from_ts=times[4], until_ts=times[5] + 1)) == [5, 6]


def test_pages_of_a_window_follow_each_other_to_its_end(api: Api) -> None:
    topic, times = fill(api, 6)
    found: list[int] = []
    page = api.diff(topic, from_ts=times[0], until_ts=times[5], limit=2)
    while not page["until_reached"]:
        found += seqs(page)
        page = api.diff(
            topic, from_seq=page["next_from_seq"], from_ts=times[0], until_ts=times[5], limit=2
        )
    assert found + seqs(page) == [1, 2, 3, 4, 5]


def test_only_who_asks_for_an_end_is_told_of_it(http1: Api) -> None:
    topic, times = fill(http1, 2)
    assert "until_reached" not in http1.diff(topic)
    assert "until_reached" not in http1.diff(topic, from_ts=times[1])
    assert http1.diff(topic, until_ts=times[1] + 3_600_000)["until_reached"] is False


def test_a_loss_that_may_be_inside_is_announced(http1: Api) -> None:
    topic, times = fill(http1, 6, cap_records=2)
    page = http1.diff(topic, from_ts=times[0])
    assert page["tombstone"]["reason"] == "cap"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 4)
    assert http1.diff(topic, from_ts=times[5])["tombstone"] is None


@pytest.mark.parametrize("window", BAD, ids=str)
def test_a_window_that_cannot_be_is_refused(http1: Api, window: Reply) -> None:
    topic = fresh()
    http1.append(topic, 1)
    response = http1.post(f"topics/{topic}/diff", window)
    refused(response, 400, "invalid_request")
    assert "_ts" in response.json()["error"]["message"]
    refused(http1.post("watch", {"topics": {topic: window}}), 400, "invalid_request")


def test_a_wait_ends_with_its_window(http1: Api) -> None:
    topic, times = fill(http1, 1)
    until_ts = time.time_ns() // 1_000_000 + 300
    page = http1.diff(topic, from_seq=1, until_ts=until_ts, wait_ms=8_000)
    assert (page["records"], page["until_reached"]) == ([], True)
    assert page["performance"]["wait_ms"] < 5_000
    assert times[0] < until_ts <= time.time_ns() // 1_000_000


def test_a_watch_of_the_past_ends_with_its_window(http1: Api, streams: httpx.Client) -> None:
    topic, times = fill(http1, 6)
    start = {"from_ts": times[1], "until_ts": times[4]}
    with open_watch(http1, streams, {topic: start}, limit=2) as stream:
        found, end = read_to_end(stream)
        assert found == [2, 3, 4]
        assert (end.json["topic"], end.json["until_reached"]) == (topic, True)
        assert end.cursor == {topic: 4}


def test_a_watch_is_live_until_its_window_is_over(http1: Api, streams: httpx.Client) -> None:
    topic, _ = fill(http1, 1)
    http1.create(other := fresh())
    until_ts = time.time_ns() // 1_000_000 + 700
    with open_watch(http1, streams, {topic: {"until_ts": until_ts}, other: {}}) as stream:
        assert [record["data"] for record in stream.records(1)] == [0]
        http1.append(topic, "live")
        found, end = read_to_end(stream)
        assert (found, end.cursor) == ([2], {topic: 2, other: 0})
        http1.append(topic, "late")
        http1.append(other, "of the other")
        assert [record["data"] for record in stream.records(1)] == ["of the other"]


def test_a_stream_that_comes_back_goes_on_from_its_place(http1: Api, streams: httpx.Client) -> None:
    topic, times = fill(http1, 6)
    start = {"from_ts": times[1], "until_ts": times[5]}
    session = ok(http1.post("watch", {"topics": {topic: start}}), 200)
    assert session["topics"][topic]["from_seq"] == 1
    with Stream(streams, session["stream_url"]) as stream:
        assert read_to_end(stream)[0] == [2, 3, 4, 5]
    with Stream(streams, session["stream_url"], last_id=encode_id({topic: 3})) as stream:
        assert read_to_end(stream)[0] == [4, 5]


@pytest.mark.parametrize("by_topic", [True, False])
def test_a_subscription_ends_with_its_window(
    http1: Api, socket: ClientConnection, *, by_topic: bool
) -> None:
    topic, times = fill(http1, 5)
    window = {"from_ts": times[1], "until_ts": times[3]}
    asked = {"topics": {topic: window}} if by_topic else {"topic": topic, **window}
    socket.send(json.dumps({"op": "subscribe", **asked}))
    found: list[int] = []
    message: Reply = {}
    while "until_reached" not in message:
        message = json.loads(socket.recv(DEADLINE_S))
        found += [record["$seq"] for record in message.get("records", [])]
    assert (message["op"], message["topic"], found) == ("caught_up", topic, [2, 3])


@pytest.mark.parametrize("window", BAD, ids=str)
def test_a_subscription_that_cannot_be_is_refused(
    http1: Api, socket: ClientConnection, window: Reply
) -> None:
    topic = fresh()
    http1.append(topic, 1)
    socket.send(json.dumps({"op": "subscribe", "topic": topic, **window}))
    answer = json.loads(socket.recv(DEADLINE_S))
    assert (answer["op"], answer["code"]) == ("error", "invalid_request")
