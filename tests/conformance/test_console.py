"""The console over plain HTTP: who gets in, what a page may do, what a key is shown."""

import re
from collections.abc import Iterator

import httpx
import pytest
from tests.conformance.api import TRANSPORTS, fresh, ok, open_client, refused

from topics.testing.server_process import ServerProcess

OWNER, READER, WRITER = "owner-key-000000000000", "reader-key-00000000000", "writer-key-0000000000"
KEYS = f"{OWNER},{READER}:r:in.,{WRITER}:w:in."
PAGES = ["/", "/console/topics/in.q", *(
    f"/console/{page}" for page in ("queues", "groups", "routers", "storage", "latency", "pipeline")
)]  # fmt: skip
DATA = ["overview", "history", "groups", "queues", "routers", "storage", "latency"]


@pytest.fixture(scope="module", autouse=True)
def prepared(server: ServerProcess) -> None:
    with open_client(server.url, key=OWNER) as client:
        for name in ("in.q", "out.q"):
            config = {"type": "queue", "dead_letter": f"{name}.dead"}
            ok(client.put(f"/v0/topics/{name}", json=config), 201)
        for name in ("in.a", "in.b", "out.a"):
            ok(client.put(f"/v0/topics/{name}", json={}), 201)
        for topic in ("in.a", "out.a"):
            join = {"member": "m", "topics": [topic]}
            ok(client.post(f"/v0/groups/{topic}.g/join", json=join))
        for name, dest in (("in.r", "in.b"), ("out.r", "out.a")):
            body = {"source": "in.a", "dest": dest}
            ok(client.put(f"/v0/routers/{name}", json=body), 201)


@pytest.fixture(params=TRANSPORTS)
def browser(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[httpx.Client]:
    """Speak as a browser does that has no session yet."""
    with open_client(server.url, transport=request.param) as client:
        client.headers["Origin"] = server.url
        yield client


def sign_in(browser: httpx.Client, key: str, goal: str = "") -> httpx.Response:
    return browser.post("/console/login", data={"key": key, "next": goal})


def token_of(page: httpx.Response) -> str:
    found = re.search('name="csrf" content="([^"]+)"', page.text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_without_a_session_leads_to_the_way_in(browser: httpx.Client, path: str) -> None:
    reply = browser.get(path)
    assert reply.status_code == 303
    assert reply.headers["location"].partition("?")[0] == "/console/login"
    assert reply.content == b""


@pytest.mark.parametrize("path", PAGES)
def test_pages_may_do_nothing_but_what_they_need(browser: httpx.Client, path: str) -> None:
    sign_in(browser, OWNER)
    reply = browser.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"


def test_a_cookie_is_for_the_server_alone(browser: httpx.Client) -> None:
    reply = sign_in(browser, OWNER, "/console/queues")
    assert reply.status_code == 303
    assert reply.headers["location"] == "/console/queues"
    name_and_id, *flags = reply.headers["set-cookie"].split("; ")
    assert re.fullmatch(r"topics_session=[A-Za-z0-9_-]{43}", name_and_id)
    assert set(flags) == {"Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"}
    origin = browser.headers["Origin"]
    # One of a proxy that says it, one of a browser behind a proxy that says nothing.
    for https in ({"X-Forwarded-Proto": "https"}, {"Origin": origin.replace("http", "https")}):
        reply = browser.post("/console/login", data={"key": OWNER}, headers=https)
        assert "Secure" in reply.headers["set-cookie"].split("; ")


@pytest.mark.parametrize("key", ["", "wrong", OWNER + "x", OWNER[:-1]])
def test_a_wrong_key_gets_no_cookie(browser: httpx.Client, server: ServerProcess, key: str) -> None:
    reply = sign_in(browser, key)
    assert reply.status_code in {401, 429}
    assert "set-cookie" not in reply.headers
    assert not key or f"{key}" not in reply.text
    assert "wrong" not in server.said


def test_a_session_writes_with_the_token_of_its_page_alone(browser: httpx.Client) -> None:
    sign_in(browser, OWNER)
    body = {"records": [{"data": 1}]}
    refused(browser.post("/v0/topics/in.a", json=body), 403, "forbidden")
    headers = {"X-Topics-CSRF": token_of(browser.get("/"))}
    ok(browser.post("/v0/topics/in.a", json=body, headers=headers))
    headers["Origin"] = "http://localhost:1"
    refused(browser.post("/v0/topics/in.a", json=body, headers=headers), 403, "forbidden")
    refused(browser.delete("/v0/topics/in.a"), 403, "forbidden")


def test_signing_out_ends_the_session_for_good(browser: httpx.Client) -> None:
    sign_in(browser, OWNER)
    cookie = f"topics_session={browser.cookies['topics_session']}"
    token = token_of(browser.get("/"))
    refused(browser.post("/console/logout", data={"csrf": "guess"}), 403, "forbidden")
    ok(browser.get("/v0/topics"))
    reply = browser.post("/console/logout", data={"csrf": token})
    assert (reply.status_code, reply.headers["location"]) == (303, "/console/login")
    assert "Max-Age=0" in reply.headers["set-cookie"]
    refused(browser.get("/v0/topics", headers={"Cookie": cookie}), 401, "unauthorized")


@pytest.mark.parametrize("view", DATA)
def test_what_a_page_shows_needs_a_key_that_reads(browser: httpx.Client, view: str) -> None:
    refused(browser.get(f"/console/data/{view}"), 401, "unauthorized")
    sign_in(browser, WRITER)
    refused(browser.get(f"/console/data/{view}"), 403, "forbidden")
    assert browser.get("/").status_code == 403


@pytest.mark.parametrize("view", DATA)
def test_a_key_is_shown_only_names_of_its_own(browser: httpx.Client, view: str) -> None:
    sign_in(browser, READER)
    body = ok(browser.get(f"/console/data/{view}"))
    assert "out." not in str(body)
    if view in {"groups", "overview", "queues", "routers", "storage"}:
        assert "in." in str(body)
    assert ok(browser.get("/console/data/history", params={"topic": "in.a"}))["topic"] is not None
    refused(browser.get("/console/data/history", params={"topic": "out.a"}), 403, "forbidden")
    refused(browser.get("/console/data/history", params={"group": "out.a.g"}), 403, "forbidden")
    assert browser.get("/console/topics/out.q").status_code == 403
    assert browser.get("/console/topics/in.q").status_code == 200


def test_the_letters_of_partitions_are_counted_and_can_be_redriven(
    browser: httpx.Client, server: ServerProcess
) -> None:
    queue = fresh("in.spread")
    with open_client(server.url, key=OWNER) as client:
        ok(client.put(f"/v0/topics/{queue}.dead", json={"partitions": 2}), 201)
        config = {"type": "queue", "max_deliveries": 1, "dead_letter": f"{queue}.dead"}
        ok(client.put(f"/v0/topics/{queue}", json=config), 201)
        ok(client.post(f"/v0/topics/{queue}", json={"records": [{"data": 1}]}))
        for step, body in (("claim", {}), ("nack", {"seqs": [1]}), ("claim", {})):
            ok(client.post(f"/v0/topics/{queue}/{step}", json={"node": "w", **body}))
    sign_in(browser, OWNER)
    (shown,) = ok(browser.get("/console/data/queues", params={"q": queue}))["queues"]
    assert (shown["dead_letter"], shown["dead"], shown["redrivable"]) == (f"{queue}.dead", 1, True)


def test_sending_again_needs_what_reading_and_writing_need(browser: httpx.Client) -> None:
    sign_in(browser, READER)
    headers = {"X-Topics-CSRF": token_of(browser.get("/"))}
    reply = browser.post("/console/resend/in.a", json={"seq": 1}, headers=headers)
    refused(reply, 403, "forbidden")
    bearer = {"Authorization": f"Bearer {OWNER}"}
    missing = browser.post("/console/resend/in.a", json={"seq": 999}, headers=bearer)
    refused(missing, 400, "invalid_request")
    refused(
        browser.post("/console/resend/none", json={"seq": 1}, headers=bearer),
        404,
        "topic_not_found",
    )


def test_what_is_sent_again_may_hold_half_a_surrogate_pair(browser: httpx.Client) -> None:
    owner = {"Authorization": f"Bearer {OWNER}", "Content-Type": "application/json"}
    topic = fresh()
    sent = rb'{"records":[{"data":"\ud800","meta":{"m":"\udc00"},"tag":"t","node":"n"}]}'
    ok(browser.post(f"/v0/topics/{topic}", content=sent, headers=owner), 201)
    ok(browser.post(f"/console/resend/{topic}", json={"seq": 1}, headers=owner))
    again = browser.post(f"/v0/topics/{topic}/diff", json={"include_tags": True}, headers=owner)
    records = again.text.split('"$seq":')[1:]
    for record in records:
        for part in (r'"data":"\ud800"', r'"meta":{"m":"\udc00"}', '"$tag":"t"', '"$node":"n"'):
            assert part in record
    assert len(records) == 2


@pytest.mark.parametrize(
    "name", ["none.js", "..%2Fpages.py", "%2Fetc%2Fpasswd", "vendor%2FuPlot.LICENSE", "pages.py"]
)
def test_only_files_of_the_console_are_given(browser: httpx.Client, name: str) -> None:
    refused(browser.get(f"/console/static/{name}"), 404, "not_found")


def test_a_file_that_is_known_is_not_sent_again(browser: httpx.Client) -> None:
    reply = browser.get("/console/static/console.css")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/css; charset=utf-8"
    known = {"If-None-Match": reply.headers["etag"]}
    again = browser.get("/console/static/console.css", headers=known)
    assert (again.status_code, again.content) == (304, b"")


def test_a_page_of_another_name_is_not_served(browser: httpx.Client) -> None:
    refused(browser.get("/", headers={"Host": "evil.example"}), 400, "invalid_request")
