"""`POST /v0/tickets`: a one-use word that opens one stream."""

from typing import TYPE_CHECKING

from topics.api.exchange import Exchange

if TYPE_CHECKING:
    from topics.api.app import App


def give(app: "App", exchange: Exchange) -> None:
    ticket, expires_ms = app.tickets.give(exchange.caller)
    exchange.reply_json({"ticket": ticket, "expires_ms": expires_ms}, status=201)
