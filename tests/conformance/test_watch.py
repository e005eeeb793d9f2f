"""Watch: sessions, frames, resuming, filters, patterns."""

import queue
from collections.abc import Iterator
from random import Random

import httpx
import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused
from tests.conformance.sse_client import ACCEPT, Event, Stream, encode_id

from topics.testing.server_process import ServerProcess


@pytest.fixture(params=["http1", "h2c"])
def streams(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[httpx.Client]:
    """Open a client for streams alone, so that a closed one takes nothing else with it."""
    with open_client(server.url, transport=request.param) as client:
        yield client


def watch(api: Api, topics: Reply, **fields: object) -> Reply:
    return ok(api.post("watch", {"topics": topics, **fields}), 200)


def open_watch(
    api: Api, streams: httpx.Client, topics: Reply, *, last_id: str | None = None, **fields: object
) -> Stream:
    session = watch(api, topics, **fields)
    return Stream(streams, session["stream_url"], last_id=last_id)


def test_a_session_has_the_fields_of_the_contract(api: Api) -> None:
    topic, other = fresh(), fresh()
    api.append(topic, 1, 2, 3)
    api.append(other, 1)
    session = watch(api, {topic: {"from_seq": 1}, other: {"tail": True}})
    assert session["wid"].startswith("wid_")
    assert len(session["wid"]) >= 4 + 22
    assert session["stream_url"].endswith(f"/v0/watch/{session['wid']}")
    assert session["session_ttl_ms"] == 300_000
    shown = session["topics"]
    assert {k: shown[topic][k] for k in ("from_seq", "head_seq", "earliest_seq")} == {
        "from_seq": 1,
        "head_seq": 3,
        "earliest_seq": 1,
    }
    assert shown[other]["from_seq"] == 1


def test_the_stream_has_its_headers_and_starts_with_retry(
    http1: Api, streams: httpx.Client
) -> None:
    topic = fresh()
    http1.append(topic, 1)
    with open_watch(http1, streams, {topic: {"from_seq": 0}}) as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        first = stream.next()
        assert (first.kind, first.data) == ("retry", "2000")


def test_backlog_then_caught_up_then_live(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, "a", "b", "c")
    with open_watch(http1, streams, {topic: {"from_seq": 1}}) as stream:
        frame = stream.next_of("record")
        body = frame.json
        assert (body["topic"], body["from_seq"], body["to_seq"]) == (topic, 1, 3)
        assert body["head_seq"] == 3
        assert [record["data"] for record in body["records"]] == ["b", "c"]
        assert frame.cursor == {topic: 3}
        caught_up = stream.next_of("caught-up")
        assert (caught_up.json["topic"], caught_up.json["head_seq"]) == (topic, 3)
        assert caught_up.cursor == {topic: 3}
        http1.append(topic, "d")
        live = stream.next_of("record")
        assert [record["$seq"] for record in live.json["records"]] == [4]
        assert live.cursor == {topic: 4}


def test_a_tail_shows_only_what_comes(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, "old")
    with open_watch(http1, streams, {topic: {"tail": True}}) as stream:
        stream.next_of("caught-up")
        http1.append(topic, "new")
        assert [record["data"] for record in stream.records(1)] == ["new"]


def test_a_frame_carries_at_most_limit_records(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, *range(10))
    with open_watch(http1, streams, {topic: {"from_seq": 0}}, limit=4) as stream:
        sizes = [len(stream.next_of("record").json["records"]) for _ in range(3)]
    assert sizes == [4, 4, 2]


def test_the_id_names_every_topic_of_the_watch(http1: Api, streams: httpx.Client) -> None:
    one, two = fresh(), fresh()
    http1.append(one, 1)
    http1.append(two, 1, 2)
    with open_watch(http1, streams, {one: {"from_seq": 0}, two: {"from_seq": 0}}) as stream:
        cursors = [stream.next_of("caught-up").cursor for _ in range(2)]
        assert cursors[-1] == {one: 1, two: 2}


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, {"$seq", "$ts", "$node", "meta", "data"}),
        ({"include_tags": True}, {"$seq", "$ts", "$node", "$tag", "meta", "data"}),
        ({"include_meta": False}, {"$seq", "$ts", "$node", "data"}),
        ({"include_data": False}, {"$seq", "$ts", "$node", "meta"}),
        ({"node": "other"}, {"$seq", "$ts", "$node", "meta", "data"}),
        ({"consistency": "strong"}, {"$seq", "$ts", "$node", "meta", "data"}),
    ],
)
def test_a_session_chooses_its_fields(
    http1: Api, streams: httpx.Client, fields: Reply, shown: set[str]
) -> None:
    topic = fresh()
    http1.append_records(topic, [{"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}}])
    with open_watch(http1, streams, {topic: {"from_seq": 0}}, **fields) as stream:
        (record,) = stream.records(1)
    assert set(record) == shown


def test_own_records_are_skipped_and_the_cursor_moves_on(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, "mine", node="me")
    with open_watch(http1, streams, {topic: {"from_seq": 0}}, node="me") as stream:
        assert stream.next_of("caught-up", "record").cursor == {topic: 1}
        http1.append(topic, "mine", node="me")
        http1.append(topic, "theirs", node="them")
        assert [record["data"] for record in stream.records(1)] == ["theirs"]


def test_a_filter_shows_only_fitting_tags(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append_records(topic, [{"data": n, "tag": tag} for n, tag in enumerate("aba")])
    match = ["tag", "Eq", "a"]
    with open_watch(http1, streams, {topic: {"from_seq": 0}}, match=match) as stream:
        assert [record["data"] for record in stream.records(2)] == [0, 2]


def test_a_pattern_watches_present_and_future_topics(http1: Api, streams: httpx.Client) -> None:
    prefix = fresh("pattern")
    http1.append(f"{prefix}.now", 1)
    with open_watch(http1, streams, {f"{prefix}.*": {"from_seq": 0}}) as stream:
        assert stream.next_of("record").json["topic"] == f"{prefix}.now"
        http1.append(f"{prefix}.later", 2)
        frame = stream.next_of("record").json
        assert (frame["topic"], frame["records"][0]["data"]) == (f"{prefix}.later", 2)


def test_loss_is_announced_at_connect(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.create(topic, cap_records=2)
    http1.append(topic, 1, 2)
    http1.append(topic, 3, 4)
    with open_watch(http1, streams, {topic: {"from_seq": 0}}) as stream:
        tombstone = stream.next_of("tombstone", "record")
        assert tombstone.kind == "tombstone"
        body = tombstone.json
        assert (body["topic"], body["reason"]) == (topic, "from_seq_too_old")
        assert (body["gap_from"], body["gap_to"], body["earliest_seq"]) == (1, 2, 3)
        assert body["head_seq"] == 4
        assert tombstone.id is not None
        assert [record["$seq"] for record in stream.records(2)] == [3, 4]


def test_a_deleted_topic_is_told(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, 1)
    with open_watch(http1, streams, {topic: {"from_seq": 0}}) as stream:
        stream.next_of("caught-up")
        ok(http1.delete(f"topics/{topic}"))
        body = stream.next_of("topic-deleted").json
        assert body["topic"] == topic
        assert set(body) >= {"topic", "head_seq", "reason"}


def test_an_idle_stream_has_a_heart(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.create(topic)
    with open_watch(http1, streams, {topic: {"from_seq": 0}}, heartbeat_ms=1000) as stream:
        beat = stream.next_of(":", timeout_s=5)
        word, epoch_ms = beat.data.split()
        assert word == "hb"
        assert int(epoch_ms) > 1_600_000_000_000
        assert beat.id is None


def test_a_session_keeps_its_place_between_streams(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, *range(3))
    session = watch(http1, {topic: {"from_seq": 0}})
    with Stream(streams, session["stream_url"]) as stream:
        stream.records(3)
        last = stream.next_of("caught-up").id
    http1.append(topic, "next")
    with Stream(streams, session["stream_url"], last_id=last) as stream:
        assert [record["data"] for record in stream.records(1)] == ["next"]


def test_an_id_may_rewind_but_not_skip(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, *range(5))
    session = watch(http1, {topic: {"from_seq": 0}})
    with Stream(streams, session["stream_url"]) as stream:
        stream.records(5)
    with Stream(streams, session["stream_url"], last_id=encode_id({topic: 2})) as stream:
        assert [record["$seq"] for record in stream.records(3)] == [3, 4, 5]
        stream.next_of("caught-up")
    http1.append(topic, 5, 6)
    with Stream(streams, session["stream_url"], last_id=encode_id({topic: 99})) as stream:
        assert [record["$seq"] for record in stream.records(2)] == [6, 7]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_resuming_from_any_id_gives_the_exact_suffix(
    http1: Api, streams: httpx.Client, seed: int
) -> None:
    chance = Random(seed)
    one, two = fresh(), fresh()
    for number in range(20):
        http1.append(chance.choice([one, two]), number)
    for topic in (one, two):
        http1.append(topic, "last")
    session = watch(http1, {one: {"from_seq": 0}, two: {"from_seq": 0}}, limit=3)
    total = 22
    frames: list[Event] = []
    with Stream(streams, session["stream_url"]) as stream:
        while sum(len(frame.json["records"]) for frame in frames) < total:
            frames.append(stream.next_of("record"))
    for frame in chance.sample(frames, 4):
        cursor = frame.cursor
        with Stream(streams, session["stream_url"], last_id=frame.id) as stream:
            got: dict[str, list[int]] = {one: [], two: []}
            left = total - cursor.get(one, 0) - cursor.get(two, 0)
            while sum(map(len, got.values())) < left:
                body = stream.next_of("record").json
                got[body["topic"]] += [record["$seq"] for record in body["records"]]
        for topic in (one, two):
            head = http1.state(topic)["head_seq"]
            assert got[topic] == list(range(cursor.get(topic, 0) + 1, head + 1))


@pytest.mark.parametrize("last_id", ["!", "e30x", "bm90IGpzb24", "WzFd", "eyJ4IjotMX0"])
def test_a_bad_id_harms_nobody(http1: Api, streams: httpx.Client, last_id: str) -> None:
    topic = fresh()
    http1.append(topic, 1)
    session = watch(http1, {topic: {"from_seq": 0}})
    with Stream(streams, session["stream_url"], last_id=last_id) as stream:
        assert stream.response.status_code in {200, 400}
        if stream.response.status_code == 200:
            assert stream.records(1)[0]["data"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": {}},
        {"topics": []},
        {"topics": {"x": 1}},
        {"topics": {"x": {"from_seq": -1}}},
        {"topics": {"x": {"from_seq": "1"}}},
        {"topics": {"no good": {"from_seq": 0}}},
        {"topics": {f"t{n}": {"tail": True} for n in range(257)}},
        {"topics": {"x": {"tail": True}}, "consistency": "some"},
        {"topics": {"x": {"tail": True}}, "heartbeat_ms": "often"},
        {"topics": {"x": {"tail": True}}, "limit": -1},
        {"topics": {"x": {"tail": True}}, "match": 1},
        {"topics": {"x": {"tail": True}}, "match": "m" * 70_000},
        {"topics": {"x": {"tail": True}}, "node": ["n" * 100] * 700},
    ],
)
def test_a_bad_watch_is_refused(api: Api, body: Reply) -> None:
    api.put("topics/x")
    refused(api.post("watch", body), 400, "invalid_request")


def test_an_unknown_topic_is_refused_or_dropped(api: Api) -> None:
    topic = fresh()
    api.create(topic)
    topics = {topic: {"from_seq": 0}, fresh("absent"): {"from_seq": 0}}
    refused(api.post("watch", {"topics": topics}), 404, "topic_not_found")
    session = ok(api.post("watch", {"topics": topics}, lenient=True))
    assert set(session["topics"]) == {topic}


def test_an_unknown_session_is_not_found(api: Api) -> None:
    wid = "wid_" + "0" * 32
    response = api.client.get(f"/v0/watch/{wid}", headers=ACCEPT)
    refused(response, 404, "not_found")


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_a_stream_must_be_asked_for_as_one(api: Api, accept: str) -> None:
    topic = fresh()
    api.create(topic)
    session = watch(api, {topic: {"from_seq": 0}})
    response = api.client.get(session["stream_url"], headers={"Accept": accept})
    refused(response, 406, "not_acceptable")


def test_many_watchers_of_one_topic_see_the_same(
    http1: Api, server: ServerProcess, durability: str
) -> None:
    topic = fresh()
    http1.create(topic, durability=durability)
    with open_client(server.url) as client:
        watchers = [open_watch(http1, client, {topic: {"tail": True}}) for _ in range(10)]
        for watcher in watchers:
            watcher.next_of("caught-up")
        http1.append(topic, *range(5))
        http1.append(topic, *range(5))
        for watcher in watchers:
            assert [record["$seq"] for record in watcher.records(10)] == list(range(1, 11))
        for watcher in watchers:
            watcher.close()


def test_nothing_comes_twice(http1: Api, streams: httpx.Client) -> None:
    topic = fresh()
    http1.append(topic, 1)
    with open_watch(http1, streams, {topic: {"from_seq": 0}}) as stream:
        stream.records(1)
        stream.next_of("caught-up")
        with pytest.raises(queue.Empty):
            stream.next_of("record", timeout_s=0.3)
