"""`POST /v0/topics/:topic/delete`: remove records for good."""

from array import array
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from topics.api.exchange import Exchange
from topics.api.settled import answer_when_settled
from topics.engine.topics.topic import Topic
from topics.model.delete import DeleteBody
from topics.model.diff import parse_match
from topics.storage.wal.frame import Delete

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE = msgspec.json.Decoder(DeleteBody).decode


def delete(app: "App", exchange: Exchange) -> Coroutine[Any, Any, None] | None:
    body = exchange.decode(_DECODE)
    match = None if body.match is None else parse_match(body.match)
    log = app.ready_log
    topic = app.engine.topic(exchange.name)
    log.waiter_of(topic).submit_gathered()  # asked for before this delete
    bound = app.engine.bound_delete(topic, before_seq=body.before_seq, match=match)
    if not log.is_quickly_collected(topic, bound):
        return _collect_and_submit(app, exchange, topic, bound)
    _submit(app, exchange, topic, bound, app.engine.collect_delete(topic, bound))
    return None


async def _collect_and_submit(app: "App", exchange: Exchange, topic: Topic, bound: Delete) -> None:
    _submit(app, exchange, topic, bound, await app.ready_log.collect_delete(topic, bound))


def _submit(
    app: "App", exchange: Exchange, topic: Topic, bound: Delete, seqs: "array[int] | None"
) -> None:
    waiter = app.ready_log.waiter_of(topic)
    shard, ticket = app.engine.submit_delete(topic, bound, seqs, waiter=waiter)
    answer_when_settled(exchange, topic, shard, ticket, waiter=waiter)
