"""What a head decides, what is remembered of it, and how requests end."""

import msgspec
import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.wire import HEALTH, HOST, HeldApp, answers, connect, post

from topics.api import app as module
from topics.api.routes import PAGES, ROUTES, find_route
from topics.errors import MethodNotAllowed, RequestError, RouteNotFound


def get(path: str, *lines: str) -> bytes:
    head = f"GET {path} HTTP/1.1\r\n{HOST.decode()}"
    return (head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}"


# Routes.


@pytest.mark.parametrize("route", [*ROUTES, *PAGES], ids=lambda route: route.label)
def test_every_route_is_found_by_its_path(route: object) -> None:
    method, path = route.label.split(" ")  # type: ignore[attr-defined] # a Route
    filled = "/".join("a.name" if part[:1] == ":" else part for part in path.split("/"))
    found, name = find_route(method, filled)
    assert found is route
    assert name == ("a.name" if ":" in path else name)


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/console/x",
        "/v0",
        "/v0/",
        "/v0/topicss",
        "/v0/topics/a/b",
        "//v0/topics",
    ],
)
def test_an_unknown_path_is_not_found(path: str) -> None:
    with pytest.raises(RouteNotFound):
        find_route("GET", path)


def test_a_name_is_decoded_after_the_path_is_taken_apart() -> None:
    assert find_route("GET", "/v0/topics/a%2Eb")[1] == "a.b"
    assert find_route("GET", "/v0/topics/a%2Fb")[1] == "a/b"
    with pytest.raises(RequestError, match="UTF-8"):
        find_route("GET", "/v0/topics/%ff")


def test_a_wrong_method_is_told_the_right_ones() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        find_route("PATCH", "/v0/topics/a")
    assert refused.value.allowed == ("DELETE", "GET", "POST", "PUT")


# Remembered heads.


def test_a_repeated_head_is_read_once(app: HeldApp) -> None:
    assert app.read_head(HEALTH) is app.read_head(bytearray(HEALTH))


@pytest.mark.parametrize(
    "raw",
    [
        get("/nowhere"),
        get("/v0/topics").replace(b"localhost", b"evil.example"),
        b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        get("/v0/topics", "X-Long: " + "x" * 1024),
    ],
    ids=["refused", "host", "chunked", "long"],
)
def test_some_heads_are_read_every_time(app: HeldApp, raw: bytes) -> None:
    assert app.read_head(raw) is not app.read_head(raw)


def test_remembered_heads_are_bounded(app: HeldApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_HEADS", 4)
    for number in range(20):
        app.read_head(get(f"/v0/topics/t{number}"))
    assert len(app._heads) <= 4


def test_a_remembered_head_never_lends_its_rights(make_app: MakeApp) -> None:
    app = make_app(keys="reader:r:a.,writer:rw")
    reader = app.read_head(get("/v0/topics/a.x", bearer("reader")))
    writer = app.read_head(get("/v0/topics/a.x", bearer("writer")))
    nobody = app.read_head(get("/v0/topics/a.x", bearer("nobody")))
    assert reader.caller is app.keyring.identify("reader")
    assert writer.caller is app.keyring.identify("writer")
    assert reader.refusal is None
    assert nobody.refusal is not None
    assert nobody.caller is app.keyring.nobody
    assert not nobody.caller.scopes
    again = app.read_head(get("/v0/topics/a.x", bearer("reader")))
    assert again.caller is reader.caller
    other = app.read_head(get("/v0/topics/b.x", bearer("reader")))
    assert other.refusal is not None
    assert other.refusal.code == "forbidden"


def test_no_key_stays_in_memory(make_app: MakeApp) -> None:
    app = make_app(keys="hunter2")
    head = app.read_head(get("/v0/topics", bearer("hunter2")))
    assert head.authorization == ""
    kept = [repr(name) for name in app._heads] + [str(head.headers)]
    assert not any("hunter2" in text for text in kept)


# Who may.


@pytest.mark.parametrize(
    ("keys", "raw", "status"),
    [
        ("k", get("/v0/topics"), 401),
        ("k", get("/v0/topics", bearer("x")), 401),
        ("k", get("/v0/topics?token=k"), 401),
        ("k:w", get("/v0/topics", bearer("k")), 403),
        ("k:r:a.", get("/v0/topics/b", bearer("k")), 403),
        ("k", get("/v0/health"), 200),
        ("k", get("/openapi.json"), 200),
        ("k", get("/docs"), 200),
        ("", get("/v0/health").replace(b"localhost", b"evil.example"), 400),
        ("", post("/v0/topics/a", b"{}").replace(b"application/json", b"text/plain"), 415),
        ("", post("/v0/topics/a", b"{}").replace(b"Content-Type", b"X-Type"), 415),
        ("", get("/v0/topics"), 503),
        ("", get("/v0/ready"), 503),
        ("", get("/v0/metrics"), 200),
    ],
)
def test_a_request_is_let_in_or_told_why_not(
    make_app: MakeApp, keys: str, raw: bytes, status: int
) -> None:
    app = make_app(keys=keys, hold=False)
    connection, wire = connect(app)
    connection.data_received(raw)
    app.turn()
    (answer,) = answers(wire.sent)
    assert answer.status == status
    if status >= 400:
        assert set(msgspec.json.decode(answer.body)) == {"error", "performance"}
        assert "x-request-id" in answer.headers
        assert b"evil.example" not in answer.body


def test_probes_can_be_told_to_need_a_key(make_app: MakeApp) -> None:
    app = make_app(keys="k", hold=False, probe_auth=True)
    connection, wire = connect(app)
    connection.data_received(HEALTH + get("/v0/health", bearer("k")))
    assert [answer.status for answer in answers(wire.sent)] == [401, 200]


def test_a_key_has_so_many_requests_at_a_time(make_app: MakeApp) -> None:
    app = make_app(keys="k", max_inflight_per_key=2)
    first, _ = connect(app)
    first.data_received(get("/v0/topics", bearer("k")) * 2)
    assert app.keyring.identify("k").requests == 2
    app.hold = False
    second, wire = connect(app)
    second.data_received(get("/v0/metrics", bearer("k")))
    (refused,) = answers(wire.take())
    assert refused.status == 429
    assert msgspec.json.decode(refused.body)["error"]["detail"] == {
        "limit": "max_inflight_per_key",
        "max": 2,
    }
    app.held[0].reply(200, b"{}")
    second.data_received(get("/v0/metrics", bearer("k")))
    app.turn()
    assert answers(wire.sent)[0].status == 200


# How requests end.


def test_a_bug_answers_500_is_logged_and_harms_nobody_else(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(hold=False)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    route, _ = find_route("GET", "/v0/health")
    monkeypatch.setattr(route, "handle", broken)
    connection, wire = connect(app)
    connection.data_received(HEALTH + get("/readyz"))
    first, second = answers(wire.sent)
    assert (first.status, second.status) == (500, 503)
    assert b"secret detail" not in first.body
    assert any("ZeroDivisionError" in line for line in app.lines)


def test_logs_are_json_lines_without_query_body_or_key(make_app: MakeApp) -> None:
    app = make_app(keys="hunter2")
    connection, _ = connect(app)
    app.hold = False
    connection.data_received(get("/v0/topics?prefix=secret", bearer("hunter2")))
    connection.data_received(get("/v0/topics?token=hunter2&x=secret", bearer("hunter2")))
    assert app.lines
    for line in app.lines:
        entry = msgspec.json.decode(line)
        assert {"ts", "level", "event", "request_id", "route"} <= set(entry)
        assert "hunter2" not in line
        assert "secret" not in line


def test_a_callers_request_id_is_kept_if_it_is_a_plain_word(make_app: MakeApp) -> None:
    connection, wire = connect(make_app(hold=False))
    connection.data_received(
        get("/x", "X-Request-Id: abc-123") + get("/x", "X-Request-Id: <script>")
    )
    kept, replaced = (answer.headers["x-request-id"] for answer in answers(wire.sent))
    assert kept == "abc-123"
    assert "<" not in replaced


def test_a_slow_request_is_logged(app: HeldApp) -> None:
    connection, _ = connect(app)
    connection.data_received(HEALTH)
    app.manual_clock.advance_ms(1_001)
    app.held[0].reply(200, b"{}")
    assert [msgspec.json.decode(line)["event"] for line in app.lines] == ["slow_request"]


def test_no_request_is_slow_when_that_is_off(make_app: MakeApp) -> None:
    app = make_app(slow_request_ms=0)
    connection, _ = connect(app)
    connection.data_received(HEALTH)
    app.manual_clock.advance_ms(60_000)
    app.held[0].reply(200, b"{}")
    assert app.lines == []
