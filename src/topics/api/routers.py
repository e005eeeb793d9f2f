"""`/v0/routers`: copies from one topic to another."""

from typing import TYPE_CHECKING, Any

import msgspec

from topics.api.exchange import Exchange
from topics.api.topics import MAX_PAGE_SIZE, PAGE_SIZE, decode_cursor, end_page
from topics.model.routers import RouterDefinition, RouterState

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE = msgspec.json.Decoder(dict[str, Any]).decode


async def put_router(app: "App", exchange: Exchange) -> None:
    name = exchange.name
    fields = exchange.decode(_DECODE)
    for side in ("source", "dest"):
        if isinstance(fields.get(side), str):
            exchange.caller.check_name(fields[side])
    engine = app.engine
    _check_existing(app, exchange)
    definition, created = await app.ready_log.run(lambda: engine.put_router(name, fields))
    shown = {"router": name, **definition.as_dict(), "created": created}
    exchange.reply_json(shown, status=201 if created else 200)


async def get_router(app: "App", exchange: Exchange) -> None:
    name, engine = exchange.name, app.engine
    state = await app.ready_log.run(lambda: engine.router_state(name))
    _check_ends(exchange, state)
    exchange.reply_json(_shown(state))


async def delete_router(app: "App", exchange: Exchange) -> None:
    name, engine = exchange.name, app.engine
    _check_existing(app, exchange)
    deleted = await app.ready_log.run(lambda: engine.delete_router(name))
    exchange.reply_json({"router": name, "deleted": deleted})


def list_routers(app: "App", exchange: Exchange) -> None:
    parameters = exchange.head.parameters()
    page_size = exchange.number("page_size", default=PAGE_SIZE, low=1, high=MAX_PAGE_SIZE)
    cursor = parameters.get("cursor")

    def is_wanted(name: str, definition: RouterDefinition) -> bool:
        return (
            name.startswith(parameters.get("prefix", ""))
            and parameters.get("source", definition.source) == definition.source
            and parameters.get("dest", definition.dest) == definition.dest
            and exchange.caller.sees_router(name, definition)
        )

    after = "" if cursor is None else decode_cursor(cursor)
    found = app.engine.some_routers(is_wanted, after=after, limit=page_size + 1)
    _, next_cursor = end_page([state.router for state in found], page_size=page_size)
    reply: dict[str, object] = {"routers": [_shown(state) for state in found[:page_size]]}
    if next_cursor is not None:
        reply["next_cursor"] = next_cursor
    exchange.reply_json(reply)


def _check_existing(app: "App", exchange: Exchange) -> None:
    """Refuse to touch a router between topics that the key may not use."""
    state = app.engine.find_router(exchange.name)
    if state is not None:
        _check_ends(exchange, state)


def _check_ends(exchange: Exchange, state: RouterState) -> None:
    for topic in (state.definition.source, state.definition.dest):
        exchange.caller.check_name(topic)


def _shown(state: RouterState) -> dict[str, object]:
    return {
        "router": state.router,
        **state.definition.as_dict(),
        "forwarded_total": state.forwarded_total,
        "lag": state.lag,
    }
