"""Partitioned topics: create, grow, write, look, watch, delete, and everything that is refused."""

import json
from collections.abc import Iterator

import httpx
import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused
from tests.conformance.sse_client import Stream
from websockets.sync.client import connect

from topics.testing.server_process import ServerProcess

DEADLINE_S = 10.0
INCOMPATIBLE = (409, "topic_exists_incompatible")


def fnv1a(key: str) -> int:
    digest = 0x811C9DC5
    for octet in key.encode():
        digest = (digest ^ octet) * 0x01000193 % 2**32
    return digest


def partitioned(api: Api, partitions: int = 3, **config: object) -> str:
    """Make a topic whose name does not look like a partition of another one."""
    topic = fresh("orders") + "x"
    api.create(topic, partitions=partitions, **config)
    return topic


def keyed(*keys: str) -> list[Reply]:
    return [{"data": key, "key": key} for key in keys]


@pytest.fixture
def streams(server: ServerProcess) -> Iterator[httpx.Client]:
    with open_client(server.url) as client:
        yield client


# Making.


def test_a_put_with_partitions_makes_ordinary_topics(api: Api) -> None:
    topic = fresh("orders") + "x"
    created = ok(api.put(f"topics/{topic}", {"partitions": 3, "ttl_ms": 7_000_000}), 201)
    assert (created["topic"], created["created"], created["partitions"]) == (topic, True, 3)
    assert created["config"]["ttl_ms"] == 7_000_000
    assert "partitions" not in created["config"]
    for number in range(3):
        assert api.state(f"{topic}-{number}")["config"] == created["config"]
    refused(api.get(f"topics/{topic}-3"), 404, "topic_not_found")


def test_a_later_put_applies_to_all_partitions(api: Api) -> None:
    topic = partitioned(api)
    changed = ok(api.put(f"topics/{topic}", {"cap_records": 9}))
    assert (changed["created"], changed["partitions"]) == (False, 3)
    assert [api.state(f"{topic}-{i}")["config"]["cap_records"] for i in range(3)] == [9, 9, 9]


def test_partitions_grow_and_take_the_config_of_their_parent(api: Api) -> None:
    topic = partitioned(api, 2, ttl_ms=9_000_000)
    grown = ok(api.put(f"topics/{topic}", {"partitions": 5}))
    assert grown["partitions"] == 5
    assert api.state(f"{topic}-4")["config"]["ttl_ms"] == 9_000_000
    assert ok(api.put(f"topics/{topic}", {"partitions": 5}))["partitions"] == 5


def test_partitions_never_shrink(api: Api) -> None:
    topic = partitioned(api, 4)
    refused(api.put(f"topics/{topic}", {"partitions": 3}), *INCOMPATIBLE)
    assert len(api.state(topic)["partitions"]) == 4


@pytest.mark.parametrize("count", [0, -1, 1025, "3", None, 2.5, True, []])
def test_a_number_of_partitions_that_cannot_be_is_refused(api: Api, count: object) -> None:
    refused(api.put(f"topics/{fresh()}x", {"partitions": count}), 400, "invalid_request")


def test_1024_partitions_are_made_at_once(http1: Api) -> None:
    topic = partitioned(http1, 1024)
    assert len(http1.state(topic)["partitions"]) == 1024
    ok(http1.delete(f"topics/{topic}"))


def test_a_name_that_would_get_too_long_is_refused(api: Api) -> None:
    topic = fresh("n" * 240)
    topic += "n" * (252 - len(topic))
    refused(api.put(f"topics/{topic}", {"partitions": 101}), 400, "invalid_request")
    ok(api.put(f"topics/{topic}", {"partitions": 100}), 201)
    refused(api.put(f"topics/{topic}", {"partitions": 101}), 400, "invalid_request")


# Names.


def test_a_name_that_a_partition_would_take_is_kept(api: Api) -> None:
    topic = partitioned(api)
    for number in (0, 7, 1023, 5000):
        put = api.put(f"topics/{topic}-{number}", {"cap_records": 1})
        refused(put, *INCOMPATIBLE)
    append = api.post(f"topics/{topic}-7", {"records": [{"data": 1}]})
    refused(append, *INCOMPATIBLE)
    refused(api.put(f"topics/{topic}-7", {"partitions": 2}), *INCOMPATIBLE)
    ok(api.put(f"topics/{topic}-07", {}), 201)
    ok(api.put(f"topics/{topic}-x", {}), 201)


def test_partitions_do_not_take_the_names_of_others(api: Api) -> None:
    topic = fresh("orders") + "x"
    api.create(f"{topic}-2")
    refused(api.put(f"topics/{topic}", {"partitions": 3}), *INCOMPATIBLE)
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")
    api.create(topic, partitions=2)
    refused(api.put(f"topics/{topic}", {"partitions": 3}), *INCOMPATIBLE)
    assert len(api.state(topic)["partitions"]) == 2


def test_a_plain_topic_gets_no_partitions(api: Api) -> None:
    topic = fresh()
    api.create(topic)
    refused(api.put(f"topics/{topic}", {"partitions": 1}), *INCOMPATIBLE)


def test_one_partition_is_not_changed_or_deleted_alone(api: Api) -> None:
    topic = partitioned(api)
    refused(api.put(f"topics/{topic}-1", {"ttl_ms": 5}), *INCOMPATIBLE)
    refused(api.delete(f"topics/{topic}-1"), *INCOMPATIBLE)
    assert ok(api.put(f"topics/{topic}-1", {}))["created"] is False


def test_a_write_makes_no_partitioned_topic(api: Api) -> None:
    body = {"records": [{"data": 1}], "config": {"partitions": 3}}
    refused(api.post(f"topics/{fresh()}", body), 400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "body"), [("diff", {}), ("delete", {"before_seq": 1}), ("claim", {"node": "n"})]
)
def test_what_needs_seqs_is_refused_and_names_the_partitions(
    api: Api, path: str, body: Reply
) -> None:
    topic = partitioned(api)
    detail = refused(api.post(f"topics/{topic}/{path}", body), *INCOMPATIBLE)
    assert detail["topic"] == topic
    assert detail["partitions"] == [f"{topic}-{i}" for i in range(3)]


def test_a_router_copies_from_and_to_partitions_not_parents(api: Api) -> None:
    topic, other = partitioned(api), fresh("plain")
    api.create(other)
    for source, dest in ((topic, other), (other, topic)):
        put = api.put(f"routers/{fresh('r')}", {"source": source, "dest": dest})
        refused(put, *INCOMPATIBLE)
    ok(api.put(f"routers/{fresh('r')}", {"source": f"{topic}-0", "dest": other}), 201)


# Writing.


def test_records_go_where_their_key_says(api: Api) -> None:
    topic = partitioned(api)
    keys = ["user1", "user2", "a", "b", "", "é", "漢字", "user1"]
    reply = api.append_records(topic, keyed(*keys))
    meant = [fnv1a(key) % 3 for key in keys]
    assert meant[:2] == [2, 2]
    assert [partition for partition, _ in reply["seqs"]] == meant
    assert reply["count"] == len(keys)
    assert set(reply) == {
        "topic", "placements", "seqs", "count", "created", "deduped", "performance",
    }  # fmt: skip
    for placement in reply["placements"]:
        number = placement["partition"]
        name = f"{topic}-{number}"
        here = [key for key, place in zip(keys, meant, strict=True) if place == number]
        assert placement == {
            "partition": number,
            "topic": name,
            "first_seq": 1,
            "last_seq": len(here),
            "count": len(here),
        }
        assert api.data(name) == here
    assert [p["partition"] for p in reply["placements"]] == sorted(set(meant))


def test_seqs_may_be_left_out(api: Api) -> None:
    topic = partitioned(api)
    reply = ok(api.post(f"topics/{topic}", {"records": keyed("a", "b")}, return_seqs=False))
    assert "seqs" not in reply
    assert sum(p["count"] for p in reply["placements"]) == 2


def test_without_a_key_the_tag_is_it_and_a_key_becomes_the_tag(api: Api) -> None:
    topic = partitioned(api)
    records = [
        {"data": 1, "tag": "user1"},
        {"data": 2, "key": "user1"},
        {"data": 3, "key": "user1", "tag": "user1", "meta": {"a": 1}},
        {"data": 4, "key": "user1", "tag": "other", "meta": {"a": 1}},
        {"data": 5, "key": "user1", "tag": "other"},
    ]
    api.append_records(topic, records)
    page = api.diff(f"{topic}-2", include_tags=True, include_meta=True)
    shown = [(r["data"], r.get("$tag"), r.get("meta")) for r in page["records"]]
    assert shown == [
        (1, "user1", None),
        (2, "user1", None),
        (3, "user1", {"a": 1}),
        (4, "other", {"$key": "user1", "a": 1}),
        (5, "other", {"$key": "user1"}),
    ]


def test_records_without_key_and_tag_go_round_one_partition_a_request(api: Api) -> None:
    topic = partitioned(api)
    used = [api.append(topic, 1, 2)["placements"] for _ in range(6)]
    assert [len(placements) for placements in used] == [1] * 6
    assert sorted(p["partition"] for placements in used for p in placements) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("key", [5, [], {}, True, "k" * 257, "é" * 129])
def test_a_bad_key_is_refused_and_nothing_is_written(api: Api, key: object) -> None:
    topic = partitioned(api)
    records = [{"data": 1, "key": "fine"}, {"data": 2, "key": key}]
    refused(api.post(f"topics/{topic}", {"records": records}), 400, "invalid_request")
    assert api.state(topic)["count"] == 0


def test_on_a_plain_topic_a_key_is_an_unknown_field(api: Api) -> None:
    topic = fresh()
    api.append_records(topic, [{"data": 1, "key": 5}, {"data": 2, "key": "k"}])
    page = api.diff(topic, include_tags=True)
    assert [r.get("$tag") for r in page["records"]] == [None, None]


def test_a_repeat_finds_its_partitions_also_after_they_grew(api: Api) -> None:
    topic = partitioned(api)
    body = {"records": [*keyed("a", "b", "c", "d"), {"data": 0}], "idempotency_key": "once"}
    first = ok(api.post(f"topics/{topic}", body))
    again = ok(api.post(f"topics/{topic}", body))
    assert (first["deduped"], again["deduped"]) == (False, True)
    assert again["seqs"] == first["seqs"]
    api.put(f"topics/{topic}", {"partitions": 7})
    later = ok(api.post(f"topics/{topic}", body))
    assert (later["deduped"], later["seqs"]) == (True, first["seqs"])
    assert api.state(topic)["count"] == 5


def test_the_header_is_a_key_of_a_write_too(http1: Api) -> None:
    topic = partitioned(http1)
    headers = {"Content-Type": "application/json", "Idempotency-Key": "h-1"}
    body = json.dumps({"records": keyed("a", "b", "c")}).encode()
    ok(http1.raw("POST", f"topics/{topic}", body, headers))
    assert ok(http1.raw("POST", f"topics/{topic}", body, headers))["deduped"] is True


def test_what_a_full_partition_refuses_is_told_with_what_others_took(api: Api) -> None:
    topic = partitioned(api, cap_records=2, discard="reject")
    api.append_records(topic, keyed("user1", "user2"))  # both in 2, which is full now
    body = {"records": keyed("a", "user1", "b"), "idempotency_key": "partly"}
    detail = refused(api.post(f"topics/{topic}", body), 422, "topic_full")
    assert detail["failed"] == [2]
    assert {p["partition"] for p in detail["placements"]} == {fnv1a(k) % 3 for k in "ab"}
    assert [seq for _, seq in detail["seqs"]] == [1, 0, 2]
    ok(api.put(f"topics/{topic}", {"cap_records": 10}))
    whole = ok(api.post(f"topics/{topic}", body))
    assert whole["deduped"] is False
    assert api.state(topic)["count"] == 5, "the rest was written, and nothing twice"
    assert ok(api.post(f"topics/{topic}", body))["deduped"] is True


# Looking.


def test_the_state_of_a_parent_is_the_sum_of_its_partitions(api: Api) -> None:
    topic = partitioned(api)
    api.append_records(topic, keyed(*map(str, range(20))))
    parts = [api.state(f"{topic}-{i}") for i in range(3)]
    whole = api.state(topic)
    for name in ("count", "bytes", "head_seq"):
        assert whole[name] == sum(part[name] for part in parts)
    assert whole["next_seq"] == 21
    assert (whole["earliest_seq"], whole["evict_floor"]) == (0, 0)
    fields = ("topic", "head_seq", "earliest_seq", "count", "bytes")
    assert whole["partitions"] == [
        {"partition": number, **{name: part[name] for name in fields}}
        for number, part in enumerate(parts)
    ]
    assert "partitions" not in parts[0]


def test_a_list_shows_the_parent_and_its_partitions(api: Api) -> None:
    topic = partitioned(api)
    api.append_records(topic, keyed("a", "b", "c"))
    shown = ok(api.get("topics", prefix=topic))["topics"]
    assert [line["topic"] for line in shown] == [topic, *(f"{topic}-{i}" for i in range(3))]
    assert (shown[0]["partitions"], shown[0]["count"]) == (3, 3)
    assert all("partitions" not in line for line in shown[1:])


# Deleting.


def test_a_delete_removes_all_partitions(api: Api) -> None:
    topic = partitioned(api)
    api.append_records(topic, keyed("a", "b", "c"))
    refused(api.delete(f"topics/{topic}", if_empty=True), 409, "topic_not_empty")
    assert ok(api.delete(f"topics/{topic}"))["deleted"] is True
    assert ok(api.get("topics", prefix=topic))["topics"] == []
    assert ok(api.delete(f"topics/{topic}"))["deleted"] is False
    ok(api.put(f"topics/{topic}-1", {}), 201)


def test_a_refused_delete_leaves_every_partition_open(api: Api) -> None:
    topic = partitioned(api)
    api.append_records(topic, keyed("user1"))
    refused(api.delete(f"topics/{topic}", if_empty=True), 409, "topic_not_empty")
    assert api.append_records(topic, keyed("a", "b", "c", "d", "user1"))["count"] == 5


# Watching.


def test_a_watch_on_the_parent_follows_partitions_that_come_later(
    http1: Api, streams: httpx.Client
) -> None:
    topic = partitioned(http1, 2)
    http1.append_records(topic, keyed("a", "b", "c"))
    session = ok(http1.post("watch", {"topics": {topic: {"from_seq": 0}}}))
    assert sorted(session["topics"]) == [f"{topic}-0", f"{topic}-1"]
    with Stream(streams, session["stream_url"]) as stream:
        assert {r["data"] for r in stream.records(3)} == set("abc")
        ok(http1.put(f"topics/{topic}", {"partitions": 6}))
        later = [f"k{i}" for i in range(30)]
        placed = http1.append_records(topic, keyed(*later))["seqs"]
        assert max(partition for partition, _ in placed) > 1
        assert {r["data"] for r in stream.records(30)} == set(later)


def test_a_watch_on_the_parent_resumes_where_it_was(http1: Api, streams: httpx.Client) -> None:
    topic = partitioned(http1, 3)
    http1.append_records(topic, keyed("a", "b", "c", "d"))
    session = ok(http1.post("watch", {"topics": {topic: {"from_seq": 0}}}))
    last_id, seen = None, 0
    with Stream(streams, session["stream_url"]) as stream:
        while seen < 4:
            event = stream.next_of("record")
            last_id, seen = event.id, seen + len(event.json["records"])
    ok(http1.put(f"topics/{topic}", {"partitions": 4}))
    later = [f"k{i}" for i in range(20)]
    http1.append_records(topic, keyed(*later))
    with Stream(streams, session["stream_url"], last_id=last_id) as stream:
        assert {r["data"] for r in stream.records(20)} == set(later)


def test_a_watch_on_the_parent_starts_at_its_tail_or_at_its_beginning(api: Api) -> None:
    topic = partitioned(api, 2)
    api.append_records(topic, keyed("a", "b", "c"))
    session = ok(api.post("watch", {"topics": {topic: {"tail": True}}}))
    assert all(place["from_seq"] == place["head_seq"] for place in session["topics"].values())
    refused(api.post("watch", {"topics": {topic: {"from_seq": 2}}}), 400, "invalid_request")


def test_a_websocket_publishes_to_a_parent_and_subscribes_to_it(
    http1: Api, server: ServerProcess
) -> None:
    topic = partitioned(http1)
    url = server.url.replace("http", "ws") + "/v0/ws"
    with connect(url, compression=None, proxy=None) as socket:

        def ask(**fields: object) -> Reply:
            socket.send(json.dumps(fields))
            return answer("subscribed", "ack", "unsubscribed", "error")

        def answer(*ops: str) -> Reply:
            while True:
                body: Reply = json.loads(socket.recv(DEADLINE_S))
                if body["op"] in ops:
                    return body

        assert len(ask(op="subscribe", topics={topic: {"from_seq": 0}})["topics"]) == 3
        ack = ask(op="publish", topic=topic, records=keyed("user1"), idempotency_key="ws")
        assert (ack["op"], ack["seqs"], ack["count"]) == ("ack", [[2, 1]], 1)
        assert ack["placements"][0]["topic"] == f"{topic}-2"
        again = ask(op="publish", topic=topic, records=keyed("user1"), idempotency_key="ws")
        assert (again["deduped"], again["seqs"]) == (True, [[2, 1]])
        assert ask(op="unsubscribe", topics=[topic])["topics"] == [topic]
