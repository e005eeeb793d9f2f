"""`POST /v0/tickets`: a one-use word that opens one stream."""

from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.model.empty import EmptyBody

if TYPE_CHECKING:
    from topics.api.app import App


_DECODE = msgspec.json.Decoder(EmptyBody).decode


def give(app: "App", exchange: Exchange) -> None:
    if exchange.body:
        exchange.decode(_DECODE)
    ticket, expires_ms = app.tickets.give(exchange.caller)
    exchange.reply_json({"ticket": ticket, "expires_ms": expires_ms}, status=201)
