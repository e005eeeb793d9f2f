"""`/console/login`, `/console/logout`: a key for a session, and its end."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from topics.api.exchange import Exchange
from topics.api.html import redirect, reply_page
from topics.api.origin import check_same_origin
from topics.api.sessions import COOKIE, SESSION_S
from topics.console.pages import render_login
from topics.errors import RequestError, Throttled, Unauthorized

if TYPE_CHECKING:
    from topics.api.app import App

MAX_FIELDS = 8
HOME = "/"


def show(app: "App", exchange: Exchange) -> None:
    if app.keyring.is_open:
        redirect(exchange, HOME)
        return
    goal = safe_goal(exchange.head.parameters().get("next", ""))
    reply_page(exchange, render_login(goal=goal))


def sign_in(app: "App", exchange: Exchange) -> None:
    """Compare a key; whatever is wrong, the page says it and nothing of the key."""
    check_same_origin(exchange.head.headers)
    fields = read_form(exchange)
    goal = safe_goal(fields.get("next", ""))
    try:
        caller = app.keyring.identify(fields.get("key", "").strip())
    except Unauthorized:
        _refuse(app, exchange, goal)
    else:
        session_id = app.sessions.start(caller)
        redirect(exchange, goal, headers=_cookie(exchange, session_id, max_age_s=SESSION_S))


def _refuse(app: "App", exchange: Exchange, goal: str) -> None:
    try:
        app.sessions.count_failure(exchange.channel.peer)
    except Throttled:
        page = render_login(goal=goal, problem="Too many wrong keys: wait a moment.")
        reply_page(exchange, page, status=429, headers=b"Retry-After: 1\r\n")
    else:
        page = render_login(goal=goal, problem="This key is not known here.")
        reply_page(exchange, page, status=401)


def sign_out(app: "App", exchange: Exchange) -> None:
    session = exchange.head.session
    if session is not None:
        session.check_token(read_form(exchange).get("csrf", ""))
        app.sessions.end(session)
    redirect(exchange, "/console/login", headers=_cookie(exchange, "", max_age_s=0))


def read_form(exchange: Exchange) -> Mapping[str, str]:
    try:
        text = bytes(exchange.body).decode("ascii")
        return dict(parse_qsl(text, max_num_fields=MAX_FIELDS, errors="strict"))
    except ValueError:
        raise RequestError("the body is not a form") from None


def safe_goal(path: str) -> str:
    """Return a page of the console to go on to: a link must not lead elsewhere through us."""
    is_ours = path.startswith("/console/") and "\\" not in path and path.isprintable()
    return path if is_ours and path.isascii() and " " not in path else HOME


def _cookie(exchange: Exchange, value: str, *, max_age_s: int) -> bytes:
    # Behind a proxy that ends TLS the browser must never send it in the clear. It says itself what
    # it speaks, whether or not the proxy does.
    headers = exchange.head.headers
    is_secure = headers.get("origin", "").lower().startswith("https://")
    is_secure |= headers.get("x-forwarded-proto", "").lower().startswith("https")
    secure = "; Secure" if is_secure else ""
    return (
        f"Set-Cookie: {COOKIE}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; "
        f"SameSite=Strict{secure}\r\n"
    ).encode()
