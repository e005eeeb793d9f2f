"""Pages of other hosts write nothing and open no stream; their own clients and pages go on."""

from typing import Any

import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.test_app import bearer
from tests.unit.api.test_sessions import signed_in
from tests.unit.api.wire import HOST

from topics.api.origin import OriginRule
from topics.api.routes import PAGES, ROUTES, Route
from topics.errors import ConfigError, Forbidden

EVIL = "Origin: http://evil.example"
CROSS = "Sec-Fetch-Site: cross-site"
GUARDED = [route for route in (*ROUTES, *PAGES) if route.method != "GET"] + [
    route for route in ROUTES if route.path in ("/v0/watch/:wid", "/v0/ws")
    or route.path.endswith(("/work", "/segments"))
]  # fmt: skip
FREE = [route for route in (*ROUTES, *PAGES) if route not in GUARDED]


def raw(route: Route, *lines: str) -> bytes:
    kind = "application/x-www-form-urlencoded" if route.is_form else "application/json"
    path = "/".join("a" if part[:1] == ":" else part for part in route.path.split("/"))
    head = f"{route.method} {path} HTTP/1.1\r\n{HOST.decode()}Content-Type: {kind}\r\n"
    return (head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


def is_refused(app: Any, route: Route, *lines: str) -> bool:  # noqa: ANN401 - an App
    refusal = app.read_head(raw(route, *lines)).refusal
    return isinstance(refusal, Forbidden) and "TOPICS_ALLOWED_ORIGINS" in str(refusal)


@pytest.mark.parametrize("keys", ["", "k"])
@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.label)
def test_a_foreign_page_neither_writes_nor_streams(
    make_app: MakeApp, route: Route, keys: str
) -> None:
    app = make_app(keys=keys)
    shown = (bearer("k"),) if keys else ()
    for lines in ([EVIL], [CROSS], [EVIL, CROSS], ["Origin: null"], ["Sec-Fetch-Site: x"]):
        assert is_refused(app, route, *lines, *shown), lines
    for lines in ([], ["Sec-Fetch-Site: none"], ["Origin: http://localhost:81", CROSS]):
        assert not is_refused(app, route, *lines, *shown), lines


@pytest.mark.parametrize("route", FREE, ids=lambda route: route.label)
def test_what_only_reads_asks_for_no_origin(make_app: MakeApp, route: Route) -> None:
    """The browser itself keeps the answer from a page of another origin."""
    assert not is_refused(make_app(), route, EVIL, CROSS)


def test_a_ticket_that_a_foreign_page_shows_is_still_good(make_app: MakeApp) -> None:
    app = make_app(keys="k")
    ticket, _ = app.tickets.give(app.keyring.identify("k"))
    for lines, refused in (([EVIL], True), ([], False)):
        head = "".join(f"{line}\r\n" for line in [HOST.decode().strip(), *lines])
        read = app.read_head(f"GET /v0/ws?ticket={ticket} HTTP/1.1\r\n{head}\r\n".encode())
        assert isinstance(read.refusal, Forbidden) is refused


def test_a_foreign_head_is_judged_though_the_same_without_origin_was_remembered(
    make_app: MakeApp,
) -> None:
    app = make_app()
    route = next(route for route in ROUTES if route.label == "POST /v0/topics/:topic")
    assert app.read_head(raw(route)) is app.read_head(raw(route))
    for _ in range(2):
        assert is_refused(app, route, EVIL)


def test_a_page_of_another_port_opens_no_stream_with_the_cookie_of_the_console(
    make_app: MakeApp,
) -> None:
    """Ports share their cookies, and without TLS a browser does not say whose page it is."""
    app = make_app(keys="k")
    cookie, _ = signed_in(app)
    route = next(route for route in ROUTES if route.path.endswith("/work"))
    for origin, good in (("http://localhost:81", False), ("http://localhost", True)):
        head = app.read_head(raw(route, cookie, f"Origin: {origin}"))
        assert (head.refusal is None) is good


@pytest.mark.parametrize(
    ("headers", "settings"),
    [
        ({"host": "log.lan:4000"}, {}),
        ({"host": "log.lan:4000", "origin": "http://log.lan:8080"}, {}),
        ({"host": "LOG.lan", "origin": "https://log.LAN"}, {}),
        ({"host": "log.lan:4000", "origin": "http://[::1]:8080"}, {}),
        ({"host": "[::2]:4000", "origin": "http://[::2]:4000"}, {}),
        ({"host": "inner", "origin": "https://log.lan"}, {"hosts": "inner, Log.lan"}),
        ({"host": "inner", "origin": "https://log.lan", "sec-fetch-site": "same-origin"}, {}),
        ({"host": "log.lan", "origin": "https://app.lan"}, {"allowed": "https://App.lan"}),
        ({"host": "log.lan", "origin": "http://app:1"}, {"allowed": "https://x, http://app:1"}),
        ({"host": "log.lan", "origin": "null"}, {"allowed": "null"}),
        ({"host": "log.lan", "origin": "http://evil.example"}, {"allowed": "*"}),
        ({"host": "log.lan", "sec-fetch-site": "cross-site"}, {"allowed": "*"}),
    ],
)
def test_own_pages_and_listed_ones_go_on(headers: dict[str, str], settings: dict[str, str]) -> None:
    OriginRule(settings.get("allowed"), hosts=settings.get("hosts")).check(headers)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "file://", "", "http://log.lan.evil.example", "http://[",
     "https://app.lan:444", "http://app.lan", "https://app.lan.evil.example"],
)  # fmt: skip
def test_others_are_refused(origin: str) -> None:
    rule = OriginRule("https://app.lan", hosts="*")
    with pytest.raises(Forbidden, match="TOPICS_ALLOWED_ORIGINS"):
        rule.check({"host": "log.lan:4000", "origin": origin})


@pytest.mark.parametrize(
    "text",
    ["app.example", "https://", "https://app.example/", "https://app.example/x", "http://a:x",
     "https://a, b", "http://a:80", "https://a:443", "*.example", "https://["],
)  # fmt: skip
def test_an_origin_that_could_never_match_stops_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_ALLOWED_ORIGINS"):
        OriginRule(text)
