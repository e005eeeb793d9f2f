"""`GET /v0/topics/:topic/segments` and `/v0/pins`: the files of a topic, and holding them."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from topics.api.exchange import Exchange
from topics.limits import NO_CEILING
from topics.model.segments import PinBody

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE_PIN = msgspec.json.Decoder(PinBody).decode


def list_segments(app: "App", exchange: Exchange) -> Coroutine[Any, Any, None] | None:
    # Not clamped: who was promised less than asked for must hear of it.
    pin_ms = exchange.number("pin_ms", default=0, low=1, high=NO_CEILING) or None
    if app.engine.must_forward(app.engine.topic(exchange.name)):
        return _list_aside(app, exchange, pin_ms)
    _answer(app, exchange, pin_ms)
    return None


async def _list_aside(app: "App", exchange: Exchange, pin_ms: int | None) -> None:
    engine, topic, owner = app.engine, app.engine.topic(exchange.name), exchange.caller.name
    manifest = await app.ready_log.run(lambda: engine.manifest(topic, pin_ms=pin_ms, owner=owner))
    exchange.reply_json(manifest)


def _answer(app: "App", exchange: Exchange, pin_ms: int | None) -> None:
    topic = app.engine.topic(exchange.name)
    exchange.reply_json(app.engine.manifest(topic, pin_ms=pin_ms, owner=exchange.caller.name))


def renew_pin(app: "App", exchange: Exchange) -> None:
    body = exchange.decode(_DECODE_PIN)
    pin = app.engine.pins.renew(exchange.name, owner=exchange.caller.name, pin_ms=body.pin_ms)
    exchange.reply_json({"pin": pin})


def release_pin(app: "App", exchange: Exchange) -> None:
    app.engine.pins.release(exchange.name, owner=exchange.caller.name)
    exchange.reply_json({"pin": exchange.name, "released": True})
