"""The matrix: every route, every set of scopes, every place a name can stand in.

What is expected comes from one table: a route needs scopes, and every name in its path, query,
body or cursor must begin with a prefix of the key. No route of the server may be missing from it.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest
from tests.conformance.api import TRANSPORTS, Api, Reply, ok, open_client, refused
from tests.conformance.sse_client import ACCEPT
from websockets.sync.client import connect

from topics.api import routes
from topics.testing.server_process import ServerProcess

SCOPES = {
    "r": {"read"},
    "c": {"consume"},
    "rc": {"read", "consume"},
    "w": {"write", "consume"},
    "d": {"delete"},
    "a": {"admin"},
    "rw": {"read", "write", "consume"},
    "all": {"read", "consume", "write", "delete", "admin"},
}
OWNER = "owner-key-000000000000"
SPELLED = {
    "r": "read",
    "c": "c",
    "rc": "read+consume",
    "w": "w",
    "d": "delete",
    "a": "a",
    "rw": "rw",
    "all": "",
}
KEYS = ",".join(
    [
        OWNER,
        *(f"key-{name}-000000000000:{scopes}:in.|in2." for name, scopes in SPELLED.items()),
        *(f"wide-{name}-000000000000:{scopes}" for name, scopes in SPELLED.items()),
    ]
)


class Route(NamedTuple):
    """A request with `{a}` and `{b}` where names stand; a path without a slash is below `/v0`."""

    method: str
    path: str
    needs: set[str]
    body: str | None = None
    names: int = 1
    is_narrow: bool = True
    """Whether a key with prefixes may ever."""


ROUTES = [
    Route("PUT", "topics/{a}", {"admin"}, "{}"),
    Route("PUT", "topics/{a}", {"admin"}, '{"type":"queue","dead_letter":"{b}"}', 2),
    Route("GET", "topics/{a}", {"read"}),
    Route("DELETE", "topics/{a}-none", {"delete"}),
    Route("POST", "topics/{a}", {"write"}, '{"records":[{"data":1}]}'),
    Route("POST", "topics/{a}/diff", {"read"}, "{}"),
    Route("POST", "topics/{a}/delete", {"delete"}, '{"before_seq":1}'),
    Route("PUT", "routers/{a}->x", {"admin"}, '{"source":"{a}","dest":"{b}"}', 2),
    Route("PUT", "routers/{b}->y", {"admin"}, '{"source":"{a}","dest":"{a}.y"}', 2),
    Route("PUT", "routers/{a}->z", {"admin"}, '{"source":"{b}","dest":"{a}.z"}', 2),
    Route("GET", "routers/{a}->none", {"read"}),
    Route("DELETE", "routers/{a}->none", {"delete"}),
    Route("POST", "watch", {"read"}, '{"topics":{"{a}":{"tail":true}}}'),
    Route("POST", "watch", {"read"}, '{"topics":{"{a}":{"tail":true},"{b}":{"tail":true}}}', 2),
    Route("POST", "watch", {"read"}, '{"topics":{"{a}*":{"tail":true}}}'),
    Route("GET", "watch/none", {"read"}, None, 0),
    Route("GET", "ws", set(), None, 0),
    Route("POST", "tickets", set(), "{}", 0),
    Route("POST", "topics/{a}/claim", {"read", "write"}, '{"node":"w"}'),
    Route("POST", "topics/{a}/ack", {"write"}, '{"node":"w","seqs":[1]}'),
    Route("POST", "topics/{a}/nack", {"write"}, '{"node":"w","seqs":[1]}'),
    Route("POST", "topics/{a}/extend", {"write"}, '{"node":"w","seqs":[1],"lease_ms":1000}'),
    Route("POST", "topics/{a}/redrive", {"read", "write", "delete"}, '{"to":"{b}"}', 2),
    Route("GET", "topics/{a}/work?node=w", {"read", "write"}),
    Route("GET", "topics/{a}/segments?pin_ms=1", {"read"}),
    Route("GET", "topics/{a}/range", {"read"}),
    Route("POST", "pins/none", {"read"}, '{"pin_ms":1}', 0),
    Route("DELETE", "pins/none", {"read"}, None, 0),
    Route("POST", "topics/{a}/compact", {"admin"}, "{}"),
    Route("POST", "uploads", {"admin", "write"}, '{"topic":"{a}"}'),
    Route("POST", "uploads/none/attach", {"admin", "write"}, '{"segments":[]}', 0),
    Route("DELETE", "uploads/none", {"admin", "write"}, None, 0),
    Route("GET", "groups/{a}", {"read"}),
    Route("DELETE", "groups/{a}", {"admin"}),
    Route("POST", "groups/{a}/join", {"consume"}, '{"member":"m","topics":["{b}"]}', 2),
    Route("POST", "groups/{a}/heartbeat", {"consume"}, '{"member":"m","generation":1}'),
    Route("POST", "groups/{a}/leave", {"consume"}, '{"member":"m"}'),
    Route("POST", "groups/{a}/commit", {"consume"}, '{"offsets":{"{b}":{"0":0}}}', 2),
    Route("POST", "groups/{a}/poll", {"read", "consume"}, '{"member":"m","generation":1}'),
    Route("POST", "groups/{a}/seek", {"admin"}, '{"to":"latest","topics":{"{b}":null}}', 2),
    Route("POST", "backups/none", {"admin"}, "{}", 0, is_narrow=False),
    Route("GET", "topics", {"read"}, None, 0),
    Route("GET", "routers", {"read"}, None, 0),
    Route("GET", "groups", {"read"}, None, 0),
    Route("GET", "metrics", {"read"}, None, 0),
    Route("GET", "/console/data/overview", {"read"}, None, 0),
    Route("GET", "/console/data/history?topic={a}", {"read"}),
    Route("GET", "/console/data/history?group={a}", {"read"}),
    Route("POST", "/console/resend/{a}", {"read", "write"}, '{"seq":1}'),
]
OPEN = {
    **dict.fromkeys(
        ("GET /v0/health", "GET /healthz", "GET /v0/ready", "GET /readyz"),
        "probes have no key, unless `probe_auth` asks for one: test_auth",
    ),
    **dict.fromkeys(
        (
            "GET /openapi.json",
            "GET /docs",
            "GET /console",
            "GET /console/",
            "GET /console/static/:file",
        ),
        "the same for everybody, and says nothing of what is stored",
    ),
    **dict.fromkeys(
        ("GET /console/login", "POST /console/login", "POST /console/logout"),
        "how a browser comes to have a key, and gives it back: test_console",
    ),
    **dict.fromkeys(
        (
            "GET /",
            "GET /console/topics/:topic",
            "GET /console/queues",
            "GET /console/groups",
            "GET /console/routers",
            "GET /console/storage",
            "GET /console/latency",
            "GET /console/pipeline",
        ),
        "pages answer with the way to sign in, and with pages that refuse: test_console",
    ),
}
"""Routes that are not in the matrix, and why."""
INSIDE, OUTSIDE = "in.q", "out.q"
CLOSED_GROUP = "in.closed"
"""A group with an allowed name that has a topic outside."""


@pytest.fixture(scope="module", autouse=True)
def prepared(server: ServerProcess) -> None:
    """Make every topic the matrix names, so that 403 is never 404 in disguise."""
    with open_client(server.url, key=OWNER) as client:
        for name in (INSIDE, OUTSIDE, "in2.other"):
            ok(client.put(f"/v0/topics/{name}", json={"type": "queue"}), 201)
        for group, topic in ((INSIDE, "in2.log"), (OUTSIDE, "out.log"), (CLOSED_GROUP, "out.log")):
            client.put(f"/v0/topics/{topic}", json={})
            ok(client.post(f"/v0/groups/{group}/commit", json={"offsets": {topic: {"0": 0}}}))


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def filled(text: str, a: str, b: str) -> str:
    return text.replace("{a}", a).replace("{b}", b)


def target_of(route: Route, a: str, b: str) -> str:
    path = filled(route.path, a, b)
    return path if path.startswith("/") else f"/v0/{path}"


def send(client: httpx.Client, route: Route, a: str, b: str) -> int:
    headers = {} if route.body is None else {"Content-Type": "application/json"}
    if "/work" in route.path or "watch/" in route.path:
        headers |= ACCEPT
    body = None if route.body is None else filled(route.body, a, b)
    request = client.build_request(
        route.method, target_of(route, a, b), content=body, headers=headers
    )
    response = client.send(request, stream=True)
    try:
        if response.headers["content-type"].startswith("application/json"):
            response.read()
            error = response.json().get("error")
            if response.status_code in {401, 403}:
                wanted = {401: "unauthorized", 403: "forbidden"}[response.status_code]
                assert error["code"] == wanted
        return response.status_code
    finally:
        response.close()


def name_of(route: Route) -> str:
    return f"{route.method} {route.path} {route.body or ''}"


def places(route: Route) -> Iterator[tuple[str, str, bool]]:
    """Yield the two names and whether both are inside of the prefix."""
    yield INSIDE, "in2.other", route.is_narrow
    if route.names:
        yield OUTSIDE, "in2.other", False
    if route.names == 2:
        yield INSIDE, OUTSIDE, False


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_may_do_what_its_scopes_and_prefixes_say(
    server: ServerProcess, transport: str, scope: str, route: Route
) -> None:
    allowed = route.needs <= SCOPES[scope]
    with open_client(server.url, transport=transport, key=f"key-{scope}-000000000000") as client:
        for a, b, inside in places(route):
            status = send(client, route, a, b)
            if allowed and inside:
                assert status not in {401, 403}
                assert status < 500
            else:
                assert status == 403, (a, b)


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_without_prefixes_may_use_every_name(
    server: ServerProcess, scope: str, route: Route
) -> None:
    with open_client(server.url, key=f"wide-{scope}-000000000000") as client:
        for a, b, _ in places(route):
            status = send(client, route, a, b)
            if route.needs <= SCOPES[scope]:
                assert status not in {401, 403}
                assert status < 500
            else:
                assert status == 403, (a, b)


def routes_in_the_matrix() -> set[str]:
    """Return the labels of the routes that the requests of the matrix find in the server."""
    found = set()
    for route in ROUTES:
        path = target_of(route, INSIDE, "in2.other").partition("?")[0]
        found.add(routes.find_route(route.method, path)[0].label)
    return found


def test_no_route_is_missing_from_the_matrix() -> None:
    there = {route.label: route for route in (*routes.ROUTES, *routes.PAGES)}
    tried = routes_in_the_matrix()
    assert tried.isdisjoint(OPEN), "an exception that is none"
    assert tried | OPEN.keys() == there.keys(), "a route is new, or gone: change the matrix"
    assert not [label for label in OPEN if there[label].scopes], "what has a scope has to be tried"
    for label in OPEN:
        route = there[label]
        assert route.is_open or route.is_probe or route.is_page, f"{label} needs a key: try it"


@pytest.mark.parametrize("route", [r for r in ROUTES if "groups/" in r.path], ids=name_of)
def test_a_group_with_a_topic_outside_is_closed(server: ServerProcess, route: Route) -> None:
    with open_client(server.url, key=OWNER) as owner, key_client(server, "all") as client:
        assert send(client, route, CLOSED_GROUP, "in2.log") == 403
        assert ok(owner.get(f"/v0/groups/{CLOSED_GROUP}"))["group"] == CLOSED_GROUP
        groups = ok(client.get("/v0/groups"))["groups"]
        assert CLOSED_GROUP not in [group["group"] for group in groups]


def test_a_watch_is_for_the_key_that_made_it(server: ServerProcess) -> None:
    """A ticket stands for its key, once, and opens no more than that key does."""
    with key_client(server, "r") as reader, open_client(server.url) as nobody:
        body = {"topics": {INSIDE: {"tail": True}}}
        url = ok(reader.post("/v0/watch", json=body))["stream_url"]
        for scope, status, code in (("all", 401, "unauthorized"), ("w", 403, "forbidden")):
            with key_client(server, scope) as other:
                refused(other.get(url, headers=ACCEPT), status, code)
                given = {"ticket": ok(other.post("/v0/tickets", json={}), 201)["ticket"]}
            refused(nobody.get(url, params=given, headers=ACCEPT), status, code)
            refused(nobody.get(url, params=given, headers=ACCEPT), 401, "unauthorized")


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_nobody_may_do_nothing(server: ServerProcess, transport: str, route: Route) -> None:
    with open_client(server.url, transport=transport) as client:
        assert send(client, route, INSIDE, "in2.other") == 401
        assert send(client, route, OUTSIDE, "in2.other") == 401


def key_client(server: ServerProcess, scope: str) -> httpx.Client:
    return open_client(server.url, key=f"key-{scope}-000000000000")


def test_lists_show_only_what_the_key_may_see(server: ServerProcess) -> None:
    with open_client(server.url, key=OWNER) as owner, key_client(server, "r") as reader:
        for n in range(4):
            Api(owner).append(f"in.list{n}", 1)
            Api(owner).append(f"out.list{n}", 1)
            body = {"source": f"in.list{n}", "dest": f"out.list{n}.copy"}
            ok(owner.put(f"/v0/routers/in.list{n}->out", json=body), 201)
            body = {"source": f"in.list{n}", "dest": f"in.list{n}.copy"}
            ok(owner.put(f"/v0/routers/in.list{n}->in", json=body), 201)
        seen = [entry["topic"] for entry in ok(reader.get("/v0/topics"))["topics"]]
        assert set(seen) >= {"in.list0", "in.list3"}
        assert all(name.startswith(("in.", "in2.")) for name in seen)
        assert ok(reader.get("/v0/topics", params={"prefix": "out."}))["topics"] == []
        routers = ok(reader.get("/v0/routers"))["routers"]
        assert {router["router"] for router in routers} >= {"in.list0->in"}
        assert not any("out." in json.dumps(router) for router in routers)


def test_a_cursor_of_another_key_shows_nothing_more(server: ServerProcess) -> None:
    with open_client(server.url, key=OWNER) as owner, key_client(server, "r") as reader:
        for n in range(3):
            owner.put(f"/v0/topics/out.cursor{n}", json={})
        first = ok(owner.get("/v0/topics", params={"prefix": "out.cursor", "page_size": 1}))
        cursor = first["next_cursor"]
        response = reader.get("/v0/topics", params={"cursor": cursor, "page_size": 100})
        if response.status_code == 200:
            names = [entry["topic"] for entry in response.json()["topics"]]
            assert all(name.startswith(("in.", "in2.")) for name in names)
        else:
            assert response.status_code in {400, 403}


def test_pages_of_a_narrow_key_are_whole(server: ServerProcess) -> None:
    with open_client(server.url, key=OWNER) as owner, key_client(server, "r") as reader:
        for n in range(5):
            owner.put(f"/v0/topics/in2.page{n}", json={})
            owner.put(f"/v0/topics/in.page{n}", json={})
            owner.put(f"/v0/topics/in1.page{n}", json={})
        found: list[str] = []
        parameters: dict[str, str] = {"page_size": "3"}
        while True:
            page = ok(reader.get("/v0/topics", params=parameters))
            found += [entry["topic"] for entry in page["topics"]]
            if "next_cursor" not in page:
                break
            parameters["cursor"] = page["next_cursor"]
        assert len(found) == len(set(found))
        assert {name for name in found if ".page" in name} == {
            f"{prefix}.page{n}" for prefix in ("in", "in2") for n in range(5)
        }


def test_metrics_of_single_topics_are_only_those_of_the_prefix(server: ServerProcess) -> None:
    with key_client(server, "r") as reader:
        text = reader.get("/v0/metrics").text
    assert 'topic="in.q"' in text
    assert 'topic="out.' not in text


def test_errors_do_not_tell_names_outside(server: ServerProcess) -> None:
    """A name that is there and one that is not get the same answer."""
    with key_client(server, "r") as reader:
        there, absent = reader.get("/v0/topics/out.q"), reader.get("/v0/topics/out.absent")
        assert refused(there, 403, "forbidden") == refused(absent, 403, "forbidden")


def test_a_wide_pattern_needs_a_wide_key(server: ServerProcess) -> None:
    with key_client(server, "r") as reader:
        for pattern in ("*", "i*", "in*", "in", "out.*"):
            body = {"topics": {pattern: {"tail": True}}}
            response = reader.post("/v0/watch", params={"lenient": "true"}, json=body)
            refused(response, 403, "forbidden")
        ok(reader.post("/v0/watch", json={"topics": {"in.*": {"tail": True}}}))


def test_a_dead_letter_outside_is_refused_on_a_write_too(server: ServerProcess) -> None:
    with key_client(server, "all") as client:
        config = {"type": "queue", "dead_letter": "out.dead"}
        body = {"records": [{"data": 1}], "config": config}
        refused(client.post("/v0/topics/in.fresh", json=body), 403, "forbidden")


def test_a_router_between_foreign_topics_is_not_taken_over(server: ServerProcess) -> None:
    with open_client(server.url, key=OWNER) as owner, key_client(server, "all") as client:
        foreign = {"source": "out.src", "dest": "out.dst"}
        ok(owner.put("/v0/routers/in.bridge", json=foreign), 201)
        mine = {"source": "in.src", "dest": "in.dst"}
        refused(client.put("/v0/routers/in.bridge", json=mine), 403, "forbidden")
        assert ok(owner.get("/v0/routers/in.bridge"))["source"] == "out.src"


def test_a_foreign_page_writes_nothing_and_takes_no_job_whatever_it_shows(
    server: ServerProcess, transport: str
) -> None:
    page = {"Origin": "https://evil.example"}
    with open_client(server.url, transport=transport, key=OWNER) as owner:
        owner.put("/v0/topics/in.asked", json={"type": "queue"})
        body = {"records": [{"data": 1}]}
        refused(owner.post("/v0/topics/in.asked", json=body, headers=page), 403, "forbidden")
        ok(owner.post("/v0/topics/in.asked", json=body))
        work = "/v0/topics/in.asked/work?node=w"
        refused(owner.get(work, headers={**ACCEPT, **page}), 403, "forbidden")
        state = ok(owner.get("/v0/topics/in.asked", headers=page))
        assert (state["count"], state["queue"]["ready"]) == (1, 1)
        owner.delete("/v0/topics/in.asked")


def test_a_name_beyond_the_prefix_is_not_shown_in_a_config(server: ServerProcess) -> None:
    queue = {"type": "queue", "max_deliveries": 1}
    with open_client(server.url, key=OWNER) as owner, key_client(server, "all") as client:
        ok(owner.put("/v0/topics/in.jobs", json=queue), 201)
        for dead_letter, shown in (("out.hidden", None), ("in.dead", "in.dead")):
            config = {**queue, "dead_letter": dead_letter}
            made = ok(owner.put("/v0/topics/in.jobs", json=config))
            assert made["config"]["dead_letter"] == dead_letter
            assert ok(client.get("/v0/topics/in.jobs"))["config"]["dead_letter"] == shown
            changed = ok(client.put("/v0/topics/in.jobs", json={"lease_ms": 1000}))
            assert changed["config"]["dead_letter"] == shown
            page = client.get("/console/topics/in.jobs")
            assert ("out.hidden" in page.text, page.status_code) == (False, 200)
            config = ok(owner.get("/v0/topics/in.jobs"))["config"]
            assert (config["dead_letter"], config["lease_ms"]) == (dead_letter, 1000)


@pytest.mark.parametrize(
    ("router", "source", "dest"),
    [
        ("in.r", "in.doomed", "out.copy"),
        ("in.r", "out.copy", "in.doomed"),
        ("out.r", "in.doomed", "in2.copy"),
    ],
)
def test_a_topic_does_not_go_with_a_router_that_the_key_may_not_delete(
    server: ServerProcess, router: str, source: str, dest: str
) -> None:
    with open_client(server.url, key=OWNER) as owner, key_client(server, "all") as client:
        for name in (source, dest):
            owner.put(f"/v0/topics/{name}", json={})
        ok(owner.put(f"/v0/routers/{router}", json={"source": source, "dest": dest}), 201)
        reply = client.delete("/v0/topics/in.doomed")
        refused(reply, 403, "forbidden")
        assert "routers that this key may not delete" in reply.text
        assert "out." not in reply.text
        ok(owner.get("/v0/topics/in.doomed"))
        ok(owner.delete(f"/v0/routers/{router}"))
        ok(owner.put("/v0/routers/in.own", json={"source": "in.doomed", "dest": "in.own"}), 201)
        gone = ok(client.delete("/v0/topics/in.doomed"))
        assert (gone["deleted"], gone["routers_removed"]) == (True, ["in.own"])
        for name in ("out.copy", "in2.copy", "in.own"):
            owner.delete(f"/v0/topics/{name}")


OPERATIONS: list[tuple[Reply, set[str]]] = [
    ({"op": "subscribe", "topics": {"{a}": {"tail": True}}}, {"read"}),
    ({"op": "publish", "topic": "{a}", "records": [{"data": 1}]}, {"write"}),
    (
        {"op": "publish", "topic": "{a}", "records": [{"data": 1}], "config": {"ttl_ms": 0}},
        {"write", "admin"},
    ),
]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("operation", "needs"), OPERATIONS)
def test_each_operation_of_a_websocket_is_authorised(
    server: ServerProcess, scope: str, operation: Reply, needs: set[str]
) -> None:
    url = server.url.replace("http", "ws") + "/v0/ws"
    headers = {"Authorization": f"Bearer key-{scope}-000000000000"}
    with connect(url, proxy=None, additional_headers=headers) as socket:
        for topic in (INSIDE, OUTSIDE):
            socket.send(json.dumps(operation).replace("{a}", topic))
            answer = json.loads(socket.recv(5))
            if needs <= SCOPES[scope] and topic == INSIDE:
                assert answer["op"] in {"subscribed", "ack"}, answer
                if answer["op"] == "subscribed":
                    json.loads(socket.recv(5))  # caught_up
            else:
                assert (answer["op"], answer["code"]) == ("error", "forbidden")
