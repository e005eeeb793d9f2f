"""The whole API: every route of the server is a call of the clients, or is left to others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.client.faces import AnyLog

from topics import errors
from topics.api.openapi import build_document
from topics.api.routes import ROUTES, find_route
from topics.client import AsyncTopics, Topics
from topics.client.failures import _MAKE
from topics.client.request import Request
from topics.errors import PinNotFound, TopicsError, UploadNotFound


def _watched(client: AnyLog) -> Any:  # noqa: ANN401 - an item, or one to await
    watch = client.watch(["t"])
    return anext(watch) if isinstance(watch, AsyncIterator) else next(watch)


CALLS: dict[str, Callable[[AnyLog], Any]] = {
    "GET /v0/topics": lambda c: c.topics(),
    "PUT /v0/topics/{topic}": lambda c: c.create("t"),
    "GET /v0/topics/{topic}": lambda c: c.state("t"),
    "DELETE /v0/topics/{topic}": lambda c: c.drop("t"),
    "POST /v0/topics/{topic}": lambda c: c.append("t", [{"data": 1}]),
    "POST /v0/topics/{topic}/diff": lambda c: c.diff("t"),
    "POST /v0/topics/{topic}/delete": lambda c: c.delete("t", before_seq=2),
    "POST /v0/topics/{topic}/claim": lambda c: c.claim("t", node="n"),
    "POST /v0/topics/{topic}/ack": lambda c: c.ack("t", [1], node="n"),
    "POST /v0/topics/{topic}/nack": lambda c: c.nack("t", [1], node="n"),
    "POST /v0/topics/{topic}/extend": lambda c: c.extend("t", [1], node="n", lease_ms=9),
    "POST /v0/topics/{topic}/redrive": lambda c: c.redrive("t"),
    "GET /v0/topics/{topic}/segments": lambda c: c.manifest("t", pin_ms=5),
    "GET /v0/topics/{topic}/range": lambda c: c.read_range("t", to_seq=9),
    "POST /v0/topics/{topic}/compact": lambda c: c.compact("t"),
    "POST /v0/pins/{pin}": lambda c: c.renew_pin("p", pin_ms=5),
    "DELETE /v0/pins/{pin}": lambda c: c.release_pin("p"),
    "POST /v0/uploads": lambda c: c.begin_upload("t"),
    "POST /v0/uploads/{upload}/attach": lambda c: c.attach("u", []),
    "DELETE /v0/uploads/{upload}": lambda c: c.abandon_upload("u"),
    "GET /v0/routers": lambda c: c.routers(),
    "PUT /v0/routers/{router}": lambda c: c.put_router("r", source="a", dest="b"),
    "GET /v0/routers/{router}": lambda c: c.router_state("r"),
    "DELETE /v0/routers/{router}": lambda c: c.delete_router("r"),
    "GET /v0/groups": lambda c: c.groups(),
    "GET /v0/groups/{group}": lambda c: c.group_state("g"),
    "DELETE /v0/groups/{group}": lambda c: c.drop_group("g"),
    "POST /v0/groups/{group}/join": lambda c: c.join("g", member="m", topics=["t"]),
    "POST /v0/groups/{group}/heartbeat": lambda c: c.heartbeat("g", member="m", generation=1),
    "POST /v0/groups/{group}/leave": lambda c: c.leave("g", member="m"),
    "POST /v0/groups/{group}/commit": lambda c: c.commit("g", {"t": {0: 1}}),
    "POST /v0/groups/{group}/poll": lambda c: c.poll("g", member="m", generation=1),
    "POST /v0/groups/{group}/seek": lambda c: c.seek("g", to="earliest"),
    "POST /v0/watch": _watched,
    "POST /v0/tickets": lambda c: c.ticket(),
    "POST /v0/backups/{backup}": lambda c: c.backup("b"),
    "GET /v0/metrics": lambda c: c.metrics(),
    "GET /v0/health": lambda c: c.health(),
    "GET /v0/ready": lambda c: c.ready(),
}
LEFT_OUT = {
    "GET /v0/topics/{topic}/work": "for browsers: a worker claims, and waits for jobs by a read",
    "GET /v0/watch/{wid}": "the second request of `watch`: test_watch.py reads what it brings",
    "GET /v0/ws": "for browsers: the same as a watch, and appends",
    "GET /healthz": "another name of /v0/health, for probes",
    "GET /readyz": "another name of /v0/ready, for probes",
    "GET /openapi.json": "for tools that read the API",
    "GET /docs": "for people",
}


class Seen(Exception):
    """Carries the first request that a call made."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request


def test_every_route_is_a_call_or_is_left_out_for_a_reason() -> None:
    paths: Any = build_document(ROUTES, has_keys=False)["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert CALLS.keys() | LEFT_OUT.keys() == routes
    assert not CALLS.keys() & LEFT_OUT.keys()


@pytest.mark.parametrize("label", CALLS)
def test_both_clients_ask_the_route(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(_transport: object, request: Request, _timeout_s: float) -> None:
        raise Seen(request)

    async def send_awaited(transport: object, request: Request, timeout_s: float) -> None:
        send(transport, request, timeout_s)

    async def awaited() -> None:
        async with AsyncTopics() as client:
            await CALLS[label](client)

    monkeypatch.setattr("topics.client.client.SyncTransport.send", send)
    monkeypatch.setattr("topics.client.aio.AsyncTransport.send", send_awaited)
    with Topics() as client, pytest.raises(Seen) as plain:
        CALLS[label](client)
    with pytest.raises(Seen) as second:
        asyncio.run(awaited())
    request = plain.value.request
    assert request == second.value.request
    route, _ = find_route(request.method, request.path.partition("?")[0])
    assert f"{route.method} {_braced(route.path)}" == label


def _braced(path: str) -> str:
    return "/".join(f"{{{part[1:]}}}" if part[:1] == ":" else part for part in path.split("/"))


def test_every_code_of_an_error_is_known_to_the_client() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.code for kind in kinds if issubclass(kind, TopicsError)}
    assert codes <= _MAKE.keys()
    assert {PinNotFound.code, UploadNotFound.code} == {"not_found"}
