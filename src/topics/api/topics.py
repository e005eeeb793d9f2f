"""`/v0/topics`: create, change, look, list, delete."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from topics.api.auth import Caller
from topics.api.exchange import Exchange
from topics.engine.listing import list_topic
from topics.errors import Forbidden, RequestError
from topics.model.routers import RouterDefinition
from topics.model.topics import TopicState

if TYPE_CHECKING:
    from topics.api.app import App

PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode


async def put_topic(app: "App", exchange: Exchange) -> None:
    changes = exchange.decode(_DECODE)
    exchange.caller.check_config(changes)
    created = await app.ready_log.put_topic(exchange.name, changes)
    reply: dict[str, object] = {"topic": exchange.name, "created": created}
    parent = app.engine.find_partitioned(exchange.name)
    if parent is not None:
        reply["partitions"] = len(parent.partitions)
    config = (parent or app.engine.topic(exchange.name)).config
    reply["config"] = exchange.caller.shown_config(config)
    exchange.reply_json(reply, status=201 if created else 200)


def get_topic(app: "App", exchange: Exchange) -> Coroutine[Any, Any, None] | None:
    touch = exchange.flag("touch", default=True)
    topics = app.engine.partitions_of(exchange.name)
    if any(map(app.engine.must_forward, topics)):
        return _get_aside(app, exchange, touch=touch)
    state = app.engine.topic_state(exchange.name, touch=touch)
    exchange.reply_json(_shown(app, exchange.caller, state))
    return None


async def _get_aside(app: "App", exchange: Exchange, *, touch: bool) -> None:
    engine, name = app.engine, exchange.name
    state = await app.ready_log.run(lambda: engine.topic_state(name, touch=touch))
    exchange.reply_json(_shown(app, exchange.caller, state))


async def delete_topic(app: "App", exchange: Exchange) -> None:
    if_empty = exchange.flag("if_empty", default=False)
    sees = exchange.caller.sees

    def check_router(router: str, definition: RouterDefinition) -> None:
        if not all(map(sees, (router, definition.source, definition.dest))):
            raise Forbidden(
                f"topic {exchange.name!r} has routers that this key may not delete, and they would "
                "go with it: ask someone whose prefixes cover them and both of their topics"
            )

    deleted, routers = await app.ready_log.drop_topic(
        exchange.name, if_empty=if_empty, check_router=check_router
    )
    exchange.reply_json({"topic": exchange.name, "deleted": deleted, "routers_removed": routers})


def list_topics(app: "App", exchange: Exchange) -> None:
    parameters = exchange.head.parameters()
    page_size = exchange.number("page_size", default=PAGE_SIZE, low=1, high=MAX_PAGE_SIZE)
    exchange.flag("touch", default=True)  # checked; a list never counts as a read
    prefixes = exchange.caller.prefixes_within(parameters.get("prefix", ""))
    cursor = parameters.get("cursor")
    after = "" if cursor is None else decode_cursor(cursor)
    names = app.engine.names(prefixes, after=after, limit=page_size + 1)
    page, next_cursor = end_page(names, page_size=page_size)
    shown = [listed for name in page if (listed := list_topic(app.engine, name))]
    reply: dict[str, object] = {"topics": shown}
    if next_cursor is not None:
        reply["next_cursor"] = next_cursor
    exchange.reply_json(reply)


def end_page(names: list[str], *, page_size: int) -> tuple[list[str], str | None]:
    """Return a page of names of which there may be one more, and the cursor behind it then."""
    page = names[:page_size]
    return page, encode_cursor(page[-1]) if len(names) > page_size else None


def encode_cursor(name: str) -> str:
    return urlsafe_b64encode(b"after:" + name.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        text = raw.decode("ascii")
    except ValueError:
        text = ""
    if not text.startswith("after:") or encode_cursor(text[6:]) != cursor:
        raise RequestError("this cursor was not given out here: start without one")
    return text[6:]


def _shown(app: "App", caller: Caller, state: TopicState) -> dict[str, object]:
    shown = msgspec.structs.asdict(state)
    shown["config"] = caller.shown_config(state.config)
    if state.queue is None:
        del shown["queue"]
    if state.partitions is None:
        del shown["partitions"]
    topics = app.engine.partitions_of(state.topic)
    shown["effective_priority"] = max(map(app.effective_priority, topics), default=0)
    return shown
