"""The map of the API on one screen."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from topics.api import (
    append,
    backups,
    compact,
    console,
    delete,
    diff,
    docs_page,
    frames,
    groups,
    health,
    login,
    metrics,
    openapi,
    queues,
    routers,
    segments,
    tickets_route,
    topics,
    uploads,
    watch,
    websocket,
    work,
)
from topics.api.exchange import Exchange
from topics.errors import MethodNotAllowed, RequestError, RouteNotFound
from topics.limits import (
    LISTED_BYTES,
    MAX_CONTROL_BODY_BYTES,
    MAX_KEYLESS_BODY_BYTES,
    MAX_LIST_BODY_BYTES,
    MAX_SEGMENTS_BODY_BYTES,
    Limits,
)

if TYPE_CHECKING:
    from topics.api.app import App

Handler = Callable[["App", Exchange], Coroutine[Any, Any, None] | None]
READ, CONSUME, WRITE, DELETE, ADMIN = (
    frozenset({scope}) for scope in ("read", "consume", "write", "delete", "admin")
)


class Route:
    """One method of one path."""

    __slots__ = (
        "body_bytes", "handle", "is_form", "is_gathered", "is_guarded", "is_keyless", "is_open",
        "is_page", "is_probe", "is_stream", "label", "may_wait", "method", "names_group",
        "names_router", "names_topic", "needs_log", "path", "scopes",
    )  # fmt: skip

    def __init__(
        self, method: str, path: str, handle: Handler, scopes: frozenset[str], *kinds: str
    ) -> None:
        self.method = method
        self.path = path
        self.handle = handle
        self.scopes = scopes
        self.label = f"{method} {path}"
        self.is_open = "open" in kinds  # needs no key
        self.is_probe = "probe" in kinds  # needs no key unless probe_auth
        self.is_stream = "stream" in kinds  # a token or ticket in the query opens it
        self.is_guarded = method != "GET" or bool({"stream", "pins"} & set(kinds))
        """Refused to pages of other origins: it changes or keeps something."""
        self.is_page = "page" in kinds  # of the console: who has no session is sent to sign in
        self.is_form = "form" in kinds  # takes the body of a form, with the token in it
        self.is_gathered = "gathered" in kinds  # done with the others of its turn, if it is plain
        self.may_wait = bool({"stream", "waits"} & set(kinds))  # slow on purpose
        self.needs_log = not {"open", "probe", "early", "page"} & set(kinds)
        self.is_keyless = bool({"open", "probe", "page"} & set(kinds))  # takes what anybody sends
        self.body_bytes = _body_bytes(kinds, is_keyless=self.is_keyless)
        self.names_topic = ":topic" in path
        self.names_router = ":router" in path
        self.names_group = ":group" in path

    def body_max(self, limits: Limits) -> int:
        """Return how large a body may be, packed or not."""
        longest = self.body_bytes
        if longest is None:
            return limits.max_body_bytes
        if longest == MAX_LIST_BODY_BYTES:
            longest = max(longest, LISTED_BYTES * limits.max_watch_topics)
        return min(longest, limits.max_body_bytes)


def _body_bytes(kinds: tuple[str, ...], *, is_keyless: bool) -> int | None:
    """Return the largest body of a route; None where records come: as large as any may be."""
    if "records" in kinds:
        return None
    if "segments" in kinds:
        return MAX_SEGMENTS_BODY_BYTES
    if "list" in kinds:
        return MAX_LIST_BODY_BYTES
    return MAX_KEYLESS_BODY_BYTES if is_keyless else MAX_CONTROL_BODY_BYTES


def _unread(app: "App", exchange: Exchange) -> None:
    raise AssertionError((app, exchange))


UNREAD = Route("?", "unread", _unread, frozenset(), "open")
"""Stands for requests that never found their route."""

ROUTES = (
    Route("GET", "/v0/topics", topics.list_topics, READ),
    Route("PUT", "/v0/topics/:topic", topics.put_topic, ADMIN),
    Route("GET", "/v0/topics/:topic", topics.get_topic, READ),
    Route("DELETE", "/v0/topics/:topic", topics.delete_topic, DELETE),
    Route("POST", "/v0/topics/:topic", append.append, WRITE, "gathered", "records"),
    Route("POST", "/v0/topics/:topic/diff", diff.read, READ, "waits"),
    Route("POST", "/v0/topics/:topic/delete", delete.delete, DELETE),
    Route("POST", "/v0/topics/:topic/claim", queues.claim, READ | WRITE, "waits"),
    Route("POST", "/v0/topics/:topic/ack", queues.ack, WRITE, "list"),
    Route("POST", "/v0/topics/:topic/nack", queues.nack, WRITE, "list"),
    Route("POST", "/v0/topics/:topic/extend", queues.extend, WRITE, "list"),
    Route("POST", "/v0/topics/:topic/redrive", queues.redrive, READ | WRITE | DELETE),
    Route("GET", "/v0/topics/:topic/work", work.stream, READ | WRITE, "stream"),
    Route("GET", "/v0/topics/:topic/segments", segments.list_segments, READ, "pins"),
    Route("GET", "/v0/topics/:topic/range", frames.read, READ),
    Route("POST", "/v0/topics/:topic/compact", compact.compact, ADMIN, "waits"),
    Route("POST", "/v0/pins/:pin", segments.renew_pin, READ),
    Route("DELETE", "/v0/pins/:pin", segments.release_pin, READ),
    Route("POST", "/v0/uploads", uploads.begin, ADMIN | WRITE),
    Route("POST", "/v0/uploads/:upload/attach", uploads.attach, ADMIN | WRITE, "waits", "segments"),
    Route("DELETE", "/v0/uploads/:upload", uploads.delete, ADMIN | WRITE),
    Route("GET", "/v0/routers", routers.list_routers, READ),
    Route("PUT", "/v0/routers/:router", routers.put_router, ADMIN),
    Route("GET", "/v0/routers/:router", routers.get_router, READ),
    Route("DELETE", "/v0/routers/:router", routers.delete_router, DELETE),
    Route("GET", "/v0/groups", groups.list_groups, READ),
    Route("GET", "/v0/groups/:group", groups.get_group, READ),
    Route("DELETE", "/v0/groups/:group", groups.delete_group, ADMIN),
    Route("POST", "/v0/groups/:group/join", groups.join, CONSUME, "list"),
    Route("POST", "/v0/groups/:group/heartbeat", groups.heartbeat, CONSUME, "list"),
    Route("POST", "/v0/groups/:group/leave", groups.leave, CONSUME),
    Route("POST", "/v0/groups/:group/commit", groups.commit, CONSUME, "list"),
    Route("POST", "/v0/groups/:group/poll", groups.poll, READ | CONSUME, "waits", "list"),
    Route("POST", "/v0/groups/:group/seek", groups.seek, ADMIN, "list"),
    Route("POST", "/v0/watch", watch.create, READ, "list"),
    Route("GET", "/v0/watch/:wid", watch.stream, READ, "stream"),
    Route("GET", "/v0/ws", websocket.upgrade, frozenset(), "stream"),
    Route("POST", "/v0/tickets", tickets_route.give, frozenset()),
    Route("POST", "/v0/backups/:backup", backups.make, ADMIN, "waits"),
    Route("GET", "/v0/metrics", metrics.show, READ, "early"),
    Route("GET", "/v0/health", health.health, frozenset(), "probe"),
    Route("GET", "/healthz", health.health, frozenset(), "probe"),
    Route("GET", "/v0/ready", health.ready, frozenset(), "probe"),
    Route("GET", "/readyz", health.ready, frozenset(), "probe"),
    Route("GET", "/openapi.json", openapi.show, frozenset(), "open"),
    Route("GET", "/docs", docs_page.show, frozenset(), "open"),
)

PAGES = (
    Route("GET", "/", console.show_overview, frozenset(), "page"),
    Route("GET", "/console", console.show_the_way, frozenset(), "open"),
    Route("GET", "/console/", console.show_the_way, frozenset(), "open"),
    Route("GET", "/console/topics/:topic", console.show_topic, frozenset(), "page"),
    *(
        Route("GET", f"/console/{page}", console.show_page, frozenset(), "page")
        for page in ("queues", "groups", "routers", "storage", "latency", "pipeline")
    ),
    Route("GET", "/console/data/:view", console.give_data, READ),
    Route("POST", "/console/resend/:topic", console.resend, READ | WRITE),
    Route("GET", "/console/static/:file", console.give_asset, frozenset(), "open"),
    Route("GET", "/console/login", login.show, frozenset(), "open"),
    Route("POST", "/console/login", login.sign_in, frozenset(), "open", "form"),
    Route("POST", "/console/logout", login.sign_out, frozenset(), "page", "form"),
)
"""The console: for people, so it is not in the OpenAPI document."""

_NAME_AT = 3  # "", "v0", "topics", NAME, …


def _shape(path: str) -> tuple[str, ...]:
    parts = path.split("/")
    if len(parts) > _NAME_AT:
        parts[_NAME_AT] = ":"
    return tuple(parts)


_BY_SHAPE: dict[tuple[str, ...], dict[str, Route]] = {}
for _route in (*ROUTES, *PAGES):
    _BY_SHAPE.setdefault(_shape(_route.path), {})[_route.method] = _route


def find_route(method: str, path: str) -> tuple[Route, str]:
    """Return the route of a request and the name in its path, decoded."""
    methods = _BY_SHAPE.get(_shape(path))
    if methods is None:
        raise RouteNotFound("there is no such route: see /openapi.json")
    route = methods.get(method)
    if route is None:
        raise MethodNotAllowed(method, tuple(sorted(methods)))
    parts = path.split("/")
    return route, _decode(parts[_NAME_AT]) if len(parts) > _NAME_AT else ""


def _decode(part: str) -> str:
    try:
        return unquote(part, errors="strict") if "%" in part else part
    except UnicodeDecodeError:
        raise RequestError("the path is not percent-encoded UTF-8") from None
