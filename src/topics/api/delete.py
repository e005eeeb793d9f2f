"""`POST /v0/topics/:topic/delete`: remove records for good."""

from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.api.settled import answer_when_settled
from topics.model.delete import DeleteBody
from topics.model.diff import parse_match

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE = msgspec.json.Decoder(DeleteBody).decode


def delete(app: "App", exchange: Exchange) -> None:
    body = exchange.decode(_DECODE)
    match = None if body.match is None else parse_match(body.match)
    log = app.ready_log
    topic = app.engine.topic(exchange.name)
    waiter = log.waiter_of(topic)
    waiter.submit_gathered()  # asked for before this delete
    shard, ticket = app.engine.submit_delete(
        topic, before_seq=body.before_seq, match=match, waiter=waiter
    )
    answer_when_settled(exchange, topic, shard, ticket, waiter=waiter)
