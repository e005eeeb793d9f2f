"""`POST /v0/topics/:topic/compact`: give the space of dead cold records back."""

from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.model.compact import CompactBody

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE = msgspec.json.Decoder(CompactBody).decode


async def compact(app: "App", exchange: Exchange) -> None:
    body = exchange.decode(_DECODE)
    engine, topic = app.engine, app.engine.topic(exchange.name)
    exchange.reply_json(
        await app.ready_log.run_aside(
            lambda: engine.compact(
                topic, min_dead_ratio=body.min_dead_ratio, max_segments=body.max_segments
            )
        )
    )
