"""A field or parameter that nobody knows is refused everywhere, and nothing is done."""

import pytest
from tests.conformance.api import Api, Reply, fresh, ok, refused
from tests.conformance.test_websocket import Socket, socket  # noqa: F401 - a fixture

from topics.api.describe import DESCRIPTIONS
from topics.api.routes import ROUTES, Route

WITH_BODY = [route for route in ROUTES if route.method in ("POST", "PUT")]
WITH_QUERY = [route for route in ROUTES if route.needs_log]
FREE = ["/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/metrics", "/docs"]


def path_of(route: Route) -> str:
    name = fresh()
    return "/".join(name if part[:1] == ":" else part for part in route.path.split("/"))


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.label)
def test_no_body_may_have_a_field_that_nobody_knows(http1: Api, route: Route) -> None:
    response = http1.client.request(route.method, path_of(route), json={"nobody_knows_me": 1})
    if route.label == "POST /v0/backups/:backup":
        refused(response, 404, "not_found")  # there are none here, whatever was asked
        return
    assert refused(response, 400, "invalid_request")["field"] == "nobody_knows_me"
    assert "unknown field 'nobody_knows_me'" in response.text


@pytest.mark.parametrize("route", WITH_QUERY, ids=lambda route: route.label)
def test_no_query_may_have_a_parameter_that_nobody_knows(http1: Api, route: Route) -> None:
    body: Reply | None = {} if route.method in ("POST", "PUT") else None
    asked = {"nobody_knows_me": "1"}
    response = http1.client.request(route.method, path_of(route), params=asked, json=body)
    assert refused(response, 400, "invalid_request")["field"] == "nobody_knows_me"
    known = DESCRIPTIONS[route.label].query
    assert (", ".join(sorted(known)) if known else "none is known here") in response.text


@pytest.mark.parametrize("path", FREE)
def test_probes_and_pages_take_any_parameter(http1: Api, path: str) -> None:
    assert http1.client.get(path, params={"_": "17"}).status_code == 200


def test_a_misspelled_bound_does_not_widen_a_delete(api: Api) -> None:
    topic = fresh()
    api.append_records(topic, [{"data": n, "tag": "x"} for n in range(3)])
    response = api.post(f"topics/{topic}/delete", {"match": "x", "befor_seq": 2})
    assert refused(response, 400, "invalid_request") == {
        "field": "befor_seq",
        "nearest": "before_seq",
    }
    assert "unknown field 'befor_seq': did you mean 'before_seq'?" in response.text
    response = api.delete(f"topics/{topic}", if_emtpy=True)
    assert refused(response, 400, "invalid_request")["nearest"] == "if_empty"
    assert api.data(topic) == [0, 1, 2]
    response = api.post(f"topics/{topic}/diff", {"fromseq": 2})
    assert refused(response, 400, "invalid_request")["nearest"] == "from_seq"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"op": "subscribe", "topics": {"a*": {"frm_seq": 0}}}, "frm_seq"),
        ({"op": "subscribe", "topics": {"a*": {}}, "mach": "x"}, "mach"),
        ({"op": "ping", "pong": 1}, "pong"),
        ({"op": "publish", "topic": "x", "records": [{"data": 1}], "creat": False}, "creat"),
        ({"op": "publish", "topic": "x", "records": [{"data": 1, "tags": "t"}]}, "tags"),
    ],
)
def test_a_message_with_a_field_that_nobody_knows_is_refused(
    socket: Socket,  # noqa: F811 - the fixture
    message: Reply,
    field: str,
) -> None:
    socket.send(**{**message, "request_id": "r"})
    error = socket.next()
    assert (error["op"], error["request_id"], error["code"]) == ("error", "r", "invalid_request")
    assert error["detail"]["field"] == field


def test_what_the_contract_names_is_known(http1: Api) -> None:
    """Each field of each body, by its name on the wire: a client of the first server goes on."""
    topic, queue, copies = fresh(), fresh(), fresh()
    record = {"data": 1, "tag": "t", "node": "n", "meta": {}, "key": "k"}
    fields: Reply = {
        "records": [record], "node": "n", "idempotency_key": "k", "create": True,
        "config": {"ttl_ms": 0}, "disable_backpressure": False,
        "producer_id": "p", "producer_seq": 1,
    }  # fmt: skip
    ok(http1.post(f"topics/{topic}", fields, return_seqs=False), 201)
    ok(
        http1.post(
            f"topics/{topic}/diff",
            {
                "from_seq": 0, "limit": 1, "node": "x", "include_tags": True, "include_meta": True,
                "wait_ms": 0, "max_batch_bytes": 1, "match": "t", "from_ts": 0, "until_ts": 0,
            },
        )
    )  # fmt: skip
    ok(
        http1.post(
            "watch",
            {
                "topics": {topic: {"from_seq": 0, "tail": True}}, "node": "x", "limit": 1,
                "max_batch_bytes": 1, "heartbeat_ms": 1000, "include_meta": True,
                "include_tags": True, "include_data": True, "consistency": "strong", "match": "t",
            },
            lenient=True,
        )
    )  # fmt: skip
    http1.create(queue, type="queue")
    held: Reply = {"node": "n", "seqs": [1], "lease_ids": ["lease_0"]}
    ok(http1.post(f"topics/{queue}/claim", {"node": "n", "max": 1, "lease_ms": 1000}))
    ok(http1.post(f"topics/{queue}/ack", held))
    ok(http1.post(f"topics/{queue}/nack", {**held, "delay_ms": 1}))
    ok(http1.post(f"topics/{queue}/extend", {**held, "lease_ms": 1000}))
    router = {
        "source": topic, "dest": copies, "preserve_node": True, "preserve_tag": True,
        "create_dest": True, "filter": None, "allow_cycle": False, "guarantee": "exactly_once",
    }  # fmt: skip
    ok(http1.put(f"routers/{fresh()}", router), 201)
    ok(http1.get("topics", prefix=topic, page_size=10, touch=False))
    ok(http1.get("routers", prefix="x", source=topic, dest=copies, page_size=10))
