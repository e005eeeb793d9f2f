"""Limits on new things: 429 with the name of the limit, and a slot that comes back."""

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.conformance.api import Api, fresh, ok, open_client, refused
from tests.conformance.sse_client import ACCEPT, Stream

from topics.testing.server_process import ServerProcess

SETTINGS = {
    "TOPICS_MAX_TOPICS": "6",
    "TOPICS_MAX_ROUTERS": "1",
    "TOPICS_MAX_PRODUCERS": "2",
    "TOPICS_MAX_IDEMPOTENCY_KEYS": "2",
    "TOPICS_MAX_WATCH_SESSIONS": "4",
    "TOPICS_MAX_SSE_CONNECTIONS": "3",
    "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY": "2",
    "TOPICS_MAX_INFLIGHT_PER_KEY": "2",
    "TOPICS_MAX_BATCH_RECORDS": "5",
    "TOPICS_MAX_RECORD_BYTES": "1000",
    "TOPICS_MAX_META_BYTES": "100",
    "TOPICS_MAX_TAG_BYTES": "10",
    "TOPICS_MAX_NODE_BYTES": "8",
    "TOPICS_MAX_LIMIT": "7",
    "TOPICS_MAX_CLAIM": "3",
    "TOPICS_MAX_WATCH_TOPICS": "2",
    "TOPICS_MAX_BODY_BYTES": "20000",
    "TOPICS_SESSION_TTL_MS": "1500",
}
FIRST, SECOND = "first-key-000000000", "second-key-00000000"
KEYS = f"{FIRST},{SECOND}"


@pytest.fixture
def owner(server: ServerProcess) -> Iterator[Api]:
    """Open a client; leave no topic behind."""
    with open_client(server.url, key=FIRST) as client:
        api = Api(client)
        yield api
    with open_client(server.url, key=SECOND) as cleaner:
        for entry in ok(cleaner.get("/v0/topics"))["topics"]:
            ok(cleaner.delete(f"/v0/topics/{entry['topic']}"))


def limited(response: httpx.Response, name: str, top: int) -> None:
    detail = refused(response, 429, "throttled")
    assert (detail["limit"], detail["max"]) == (name, top)


def until(holds: Callable[[], bool], deadline_s: float = 5.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_only_new_topics_count(owner: Api) -> None:
    names = [fresh() for _ in range(6)]
    for name in names:
        owner.create(name)
    limited(owner.put(f"topics/{fresh()}"), "max_topics", 6)
    limited(owner.post(f"topics/{fresh()}", {"records": [{"data": 1}]}), "max_topics", 6)
    ok(owner.put(f"topics/{names[0]}", {"ttl_ms": 9_000_000}))
    owner.append(names[0], 1)
    ok(owner.delete(f"topics/{names[0]}"))
    owner.create(fresh())


def test_only_new_producers_and_keys_count(owner: Api) -> None:
    topic = fresh()
    owner.create(topic, producer_expiry_ms=3_600_000)

    def send(**options: object) -> httpx.Response:
        return owner.post(f"topics/{topic}", {"records": [{"data": 1}], **options})

    for n in (1, 2):
        ok(send(producer_id=f"p{n}", producer_seq=1))
        ok(send(idempotency_key=f"k{n}"))
    limited(send(producer_id="p3", producer_seq=1), "max_producers", 2)
    limited(send(idempotency_key="k3"), "max_idempotency_keys", 2)
    assert ok(send(producer_id="p1", producer_seq=1))["deduped"]
    assert ok(send(idempotency_key="k1"))["deduped"]
    ok(send(producer_id="p1", producer_seq=2))
    ok(owner.post(f"topics/{topic}", {"records": [{"data": 1}]}))


def test_only_new_routers_count(owner: Api) -> None:
    source, dest = fresh(), fresh()
    body = {"source": source, "dest": dest}
    owner.create(source)
    ok(owner.put("routers/one", body), 201)
    response = owner.put("routers/two", {"source": source, "dest": fresh()})
    limited(response, "max_routers", 1)
    ok(owner.put("routers/one", body))
    ok(owner.delete("routers/one"))
    ok(owner.put("routers/two", body), 201)


def test_a_destination_that_cannot_be_made_leaves_no_router(owner: Api) -> None:
    names = [fresh() for _ in range(6)]
    for name in names:
        owner.create(name)
    response = owner.put("routers/r", {"source": names[0], "dest": fresh("new")})
    limited(response, "max_topics", 6)
    refused(owner.get("routers/r"), 404, "router_not_found")


def test_streams_are_counted_for_each_key_and_for_all(owner: Api, server: ServerProcess) -> None:
    topic = fresh()
    owner.create(topic)
    watch = {"topics": {topic: {"tail": True}}}
    with open_client(server.url, key=SECOND) as other:

        def open_stream(client: httpx.Client) -> Stream:
            return Stream(client, ok(client.post("/v0/watch", json=watch))["stream_url"])

        own = [open_stream(owner.client) for _ in range(2)]
        limited(open_stream(owner.client).response, "max_sse_connections_per_key", 2)
        third = open_stream(other)
        until(lambda: owner.post("watch", watch).status_code == 200)
        url = ""

        def second_session() -> bool:
            nonlocal url
            response = other.post("/v0/watch", json=watch)
            url = response.json().get("stream_url", "")
            return response.status_code == 200

        until(second_session)
        limited(other.get(url, headers=ACCEPT), "max_sse_connections", 3)
        for stream in (*own, third):
            stream.close()
        until(lambda: "topics_sse_connections 0" in owner.get("metrics").text)
        until(second_session)
        with Stream(other, url) as stream:
            assert stream.response.status_code == 200


def test_sessions_are_counted_and_end_by_themselves(owner: Api) -> None:
    topic = fresh()
    owner.create(topic)
    watch = {"topics": {topic: {"tail": True}}}
    until(lambda: "topics_watch_sessions 0" in owner.get("metrics").text)
    sessions = [ok(owner.post("watch", watch)) for _ in range(4)]
    assert sessions[0]["session_ttl_ms"] == 1500
    limited(owner.post("watch", watch), "max_watch_sessions", 4)
    until(lambda: owner.post("watch", watch).status_code == 200)
    gone = owner.client.get(sessions[0]["stream_url"], headers=ACCEPT)
    refused(gone, 404, "not_found")


def test_requests_under_way_are_counted_for_each_key(owner: Api, server: ServerProcess) -> None:
    topic = fresh()
    owner.create(topic)
    answers: list[int] = []

    def wait() -> None:
        with open_client(server.url, key=FIRST) as client:
            body = {"wait_ms": 8000}
            answers.append(client.post(f"/v0/topics/{topic}/diff", json=body).status_code)

    waiters = [threading.Thread(target=wait) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
    until(lambda: owner.get("topics").status_code == 429)
    limited(owner.get("topics"), "max_inflight_per_key", 2)
    with open_client(server.url, key=SECOND) as other:
        Api(other).append(topic, 1)
    for waiter in waiters:
        waiter.join()
    assert answers == [200, 200]
    until(lambda: owner.get("topics").status_code == 200)


def test_a_request_that_was_given_up_frees_its_slot(owner: Api, server: ServerProcess) -> None:
    topic = fresh()
    owner.create(topic)
    for _ in range(2):
        with (
            open_client(server.url, key=FIRST) as client,
            pytest.raises(httpx.ReadTimeout),
        ):
            client.post(f"/v0/topics/{topic}/diff", json={"wait_ms": 9000}, timeout=0.05)
    until(lambda: owner.get("topics").status_code == 200, deadline_s=3.0)


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"data": "x" * 999}, "record_too_large"),
        ({"data": 1, "meta": {"m": "x" * 100}}, "invalid_request"),
        ({"data": 1, "tag": "x" * 11}, "invalid_request"),
        ({"data": 1, "node": "x" * 9}, "invalid_request"),
    ],
)
def test_a_hard_limit_refuses_a_record(owner: Api, record: object, code: str) -> None:
    refused(owner.post(f"topics/{fresh()}", {"records": [record]}), 400, code)


def test_the_other_hard_limits_hold(owner: Api) -> None:
    topic = fresh("q")
    owner.create(topic, type="queue")
    body = {"records": [{"data": 1}] * 6}
    refused(owner.post(f"topics/{topic}", body), 400, "batch_too_large")
    for _ in range(2):
        owner.append(topic, 1, 2, 3, 4, 5)
    assert len(owner.diff(topic, limit=100)["records"]) == 7
    assert ok(owner.post(f"topics/{topic}/claim", {"node": "w", "max": 3}))["count"] == 3
    over = owner.post(f"topics/{topic}/claim", {"node": "w", "max": 4})
    if over.status_code == 200:
        assert over.json()["count"] <= 3
    else:
        refused(over, 400, "invalid_request")
    watch = {"topics": {name: {"tail": True} for name in ("a1", "b1", "c1")}}
    refused(owner.post("watch", watch), 400, "invalid_request")
    big = b'{"records":[{"data":"' + b"x" * 20_000 + b'"}]}'
    refused(owner.raw("POST", f"topics/{topic}", big), 413, "payload_too_large")


def test_all_bytes_together_are_limited(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("bytes")
    settings = {"TOPICS_MAX_TOTAL_BYTES": "20000"}
    with (
        ServerProcess(str(directory / "data"), settings=settings) as server,
        open_client(server.url) as client,
    ):
        api = Api(client)
        statuses = [
            api.post("topics/t", {"records": [{"data": "x" * 1000}]}).status_code for _ in range(30)
        ]
        assert set(statuses) == {200, 201, 429}
        limited(
            api.post("topics/t", {"records": [{"data": "x" * 9000}]}), "max_total_bytes", 20_000
        )
        ok(api.post("topics/t/delete", {"before_seq": 1000}))
        assert api.append("t", "x")["count"] == 1
