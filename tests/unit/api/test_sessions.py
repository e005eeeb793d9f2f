"""Sessions of the console: bounded, ending, and of no use to another page."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.test_app import bearer, get
from tests.unit.api.wire import HOST, HeldApp, answers, connect

from topics.api import sessions as module
from topics.api.login import safe_goal
from topics.api.sessions import (
    ATTEMPTS,
    COOKIE,
    MAX_ADDRESSES,
    SESSION_S,
    Attempts,
    Sessions,
    session_id_of,
)
from topics.descriptors import peer_of
from topics.errors import Throttled
from topics.testing.manual_clock import ManualClock

ORIGIN = "Origin: http://localhost"


def signed_in(app: HeldApp, key: str = "k") -> tuple[str, str]:
    """Return the cookie line and the token line of a new session."""
    session_id = app.sessions.start(app.keyring.identify(key))
    session = app.sessions.find(session_id)
    assert session is not None
    return f"Cookie: other=1; {COOKIE}={session_id}", f"X-Topics-CSRF: {session.csrf}"


def post(path: str, body: str, *lines: str, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\n{HOST.decode()}Content-Type: {kind}\r\n"
    lines = (*lines, f"Content-Length: {len(body)}")
    return (head + "".join(f"{line}\r\n" for line in lines) + "\r\n" + body).encode()


def status_of(app: HeldApp, raw: bytes) -> int:
    connection, wire = connect(app)
    connection.data_received(raw)
    app.turn()
    (answer,) = answers(wire.sent)
    return answer.status


def test_a_session_stands_for_its_key(make_app: MakeApp) -> None:
    app = make_app(keys="k:r:a.")
    cookie, _ = signed_in(app)
    head = app.read_head(get("/v0/topics/a.x", cookie))
    assert head.caller is app.keyring.identify("k")
    other = app.read_head(get("/v0/topics/b.x", cookie))
    assert other.refusal is not None
    assert other.refusal.code == "forbidden"


def test_a_session_ends_after_its_time(make_app: MakeApp) -> None:
    app = make_app(keys="k", hold=False)
    cookie, _ = signed_in(app)
    raw = get("/v0/metrics", cookie)
    assert status_of(app, raw) == 200
    app.manual_clock.advance_ms(SESSION_S * 1000)
    assert status_of(app, raw) == 401


def test_a_session_that_was_ended_opens_nothing_though_its_head_was_seen_before(
    make_app: MakeApp,
) -> None:
    app = make_app(keys="k", hold=False)
    cookie, _ = signed_in(app)
    raw = get("/v0/metrics", cookie)
    assert status_of(app, raw) == 200
    session = app.sessions.find(session_id_of(cookie.removeprefix("Cookie: ")))
    assert session is not None
    app.sessions.end(session)
    assert status_of(app, raw) == 401


def test_a_key_that_signs_in_too_often_ends_its_own_oldest_and_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS_PER_KEY", 3)
    clock = ManualClock()
    sessions = Sessions(clock)
    one, other = HeldAppCaller(), HeldAppCaller()
    kept = sessions.start(other)  # type: ignore[arg-type] # never looked into
    ids = [sessions.start(one) for _ in range(5)]  # type: ignore[arg-type] # as above
    assert [sessions.find(session_id) is not None for session_id in ids] == [False] * 2 + [True] * 3
    assert sessions.find(kept) is not None
    assert len(sessions) == 4
    clock.advance_ms(SESSION_S * 1000)
    sessions.start(one)  # type: ignore[arg-type] # as above
    assert len(sessions) == 2, "those that are over are not kept until there are too many"


class HeldAppCaller:
    """Somebody."""


def test_neither_cookie_nor_token_stays_in_memory(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    cookie, token = signed_in(app)
    head = app.read_head(post("/v0/topics/t", "{}", cookie, token, ORIGIN)[:-2])
    assert head.refusal is None
    assert (head.cookie, head.csrf) == ("", "")
    assert not any(secret.split("=")[-1] in str(head.headers) for secret in (cookie, token))
    assert session_id_of(cookie.removeprefix("Cookie: ")) not in repr(app.sessions._open)


# What another page could send with somebody's cookie.


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([ORIGIN, "token"], 503),
        ([ORIGIN], 403),
        (["token"], 403),
        ([ORIGIN, "X-Topics-CSRF: guess"], 403),
        (["Origin: http://localhost:81", "token"], 403),
        (["Origin: http://evil.example", "token"], 403),
        (["Origin: null", "token"], 403),
        ([ORIGIN, "token", "Sec-Fetch-Site: same-origin"], 503),
        ([ORIGIN, "token", "Sec-Fetch-Site: same-site"], 401),
        ([ORIGIN, "token", "Sec-Fetch-Site: cross-site"], 401),
    ],
    ids=str,
)
def test_a_cookie_writes_only_for_its_own_page(
    make_app: MakeApp, lines: list[str], status: int
) -> None:
    app = make_app(keys="k", hold=False)  # 503: let in, and the log is not open yet
    cookie, token = signed_in(app)
    given = [token if line == "token" else line for line in lines]
    assert (
        status_of(app, post("/v0/topics/t", '{"records":[{"data":1}]}', cookie, *given)) == status
    )


@pytest.mark.parametrize(
    ("site", "status"),
    [("same-origin", 200), ("none", 200), ("same-site", 401), ("cross-site", 401)],
)
def test_a_cookie_reads_only_for_its_own_page(make_app: MakeApp, site: str, status: int) -> None:
    app = make_app(keys="k", hold=False)
    cookie, _ = signed_in(app)
    assert status_of(app, get("/v0/metrics", cookie, f"Sec-Fetch-Site: {site}")) == status


def test_a_cookie_opens_no_websocket(make_app: MakeApp) -> None:
    app = make_app(keys="k", hold=False)
    cookie, _ = signed_in(app)
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    raw = get("/v0/ws", cookie, ORIGIN, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *upgrade)
    assert status_of(app, raw) == 403


def test_a_key_counts_more_than_a_cookie(make_app: MakeApp) -> None:
    app = make_app(keys="k,other:r")
    cookie, _ = signed_in(app)
    assert app.read_head(get("/v0/topics", cookie, bearer("other"))).caller is (
        app.keyring.identify("other")
    )
    refused = app.read_head(get("/v0/topics", cookie, bearer("wrong"))).refusal
    assert refused is not None
    assert refused.code == "unauthorized"


# Signing in.


def test_wrong_keys_are_counted_by_address_and_time_forgives_them() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    for _ in range(ATTEMPTS):
        sessions.count_failure("10.0.0.1")
    for _ in range(3):
        with pytest.raises(Throttled):
            sessions.count_failure("10.0.0.1")
    sessions.count_failure("10.0.0.2")
    clock.advance_ms(1000)
    sessions.count_failure("10.0.0.1")
    with pytest.raises(Throttled):
        sessions.count_failure("10.0.0.1")


def test_addresses_that_sent_wrong_keys_are_kept_in_constant_room() -> None:
    attempts = Attempts(ManualClock())
    for n in range(MAX_ADDRESSES + 100):
        attempts.take(f"10.0.{n // 256}.{n % 256}")
    assert len(attempts) == MAX_ADDRESSES


def test_a_right_key_is_let_in_after_any_number_of_wrong_ones(make_app: MakeApp) -> None:
    app = make_app(keys="k", hold=False)
    form = "application/x-www-form-urlencoded"

    def show(key: str) -> int:
        return status_of(app, post("/console/login", f"key={key}", ORIGIN, kind=form))

    assert [show("wrong") for _ in range(ATTEMPTS + 3)] == [401] * ATTEMPTS + [429] * 3
    assert show("k") == 303


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("192.0.2.7", 4000), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 4000, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 4000, 0, 2), "fe80::/64"),
        (("::ffff:192.0.2.7", 4000, 0, 0), "192.0.2.7"),
        ("/run/socket", ""),
        (None, ""),
    ],
)
def test_an_address_tells_one_party_from_another(name: object, address: str) -> None:
    transport = SimpleNamespace(get_extra_info=lambda _: name)
    assert peer_of(cast("asyncio.Transport", transport)) == address
    assert peer_of(None) == ""


@pytest.mark.parametrize(
    ("asked", "goal"),
    [
        ("/console/queues", "/console/queues"),
        ("/console/topics/a%20b", "/console/topics/a%20b"),
        ("", "/"),
        ("//evil.example", "/"),
        ("https://evil.example/console/", "/"),
        ("/console/\\evil.example", "/"),
        ("/console/x\r\nSet-Cookie: a=b", "/"),
        ("/console/ü", "/"),
    ],
)
def test_after_signing_in_one_stays_here(asked: str, goal: str) -> None:
    assert safe_goal(asked) == goal


def test_a_form_is_not_taken_from_another_page(make_app: MakeApp) -> None:
    app = make_app(keys="k", hold=False)
    form = "application/x-www-form-urlencoded"
    path = "/console/login"
    assert status_of(app, post(path, "key=k", ORIGIN, kind=form)) == 303
    assert status_of(app, post(path, "key=k", kind=form)) == 403
    assert status_of(app, post(path, "key=k", "Origin: http://evil.example", kind=form)) == 403
    assert status_of(app, post(path, '{"key":"k"}', ORIGIN)) == 415
    assert status_of(app, post(path, "key=wrong", ORIGIN, kind=form)) == 401
    assert status_of(app, post(path, "key=%ff", ORIGIN, kind=form)) == 400
