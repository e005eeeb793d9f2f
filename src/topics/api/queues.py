"""`POST /v0/topics/:topic/{claim,ack,nack,extend}`: what workers say to a queue."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from topics.aio import AsyncLog
from topics.api.exchange import Exchange
from topics.api.settled import answer_when_settled
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.errors import TopicsError
from topics.limits import check_topic_name
from topics.model.queues import (
    AckRequest,
    Claimed,
    ClaimRequest,
    ExtendRequest,
    NackRequest,
    RedriveRequest,
)
from topics.storage.wal.group_commit import Commitment

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE_CLAIM = msgspec.json.Decoder(ClaimRequest).decode
_DECODE_ACK = msgspec.json.Decoder(AckRequest).decode
_DECODE_NACK = msgspec.json.Decoder(NackRequest).decode
_DECODE_REDRIVE = msgspec.json.Decoder(RedriveRequest).decode
_DECODE_EXTEND = msgspec.json.Decoder(ExtendRequest).decode


def claim(app: "App", exchange: Exchange) -> Coroutine[Any, Any, None] | None:
    """Claim jobs; with `claim_jitter_ms` together with whoever else comes in that time."""
    request = exchange.decode(_DECODE_CLAIM)
    log, topic = app.ready_log, app.engine.topic(exchange.name)
    if log.may_block(topic, 0):
        return _claim_aside(log, exchange, topic, request)
    log.claim_soon(topic, request, _ClaimAnswer(exchange))
    return None


async def _claim_aside(
    log: AsyncLog, exchange: Exchange, topic: Topic, request: ClaimRequest
) -> None:
    exchange.reply(200, _claimed_json(exchange, await log.claim_jobs(topic, request)))


class _ClaimAnswer:
    """A claimer who asked over HTTP."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def is_gone(self) -> bool:
        return self._exchange.answered

    def settle(self, claimed: Claimed | None, error: Exception | None) -> None:
        self._exchange.app.guard(self._exchange.channel, lambda: self._answer(claimed, error))

    def _answer(self, claimed: Claimed | None, error: Exception | None) -> None:
        exchange = self._exchange
        if isinstance(error, TopicsError):
            exchange.fail(error)
        elif error is not None:
            exchange.app.answer_bug(exchange, error)
        elif claimed is not None:
            exchange.reply(200, _claimed_json(exchange, claimed))


def _claimed_json(exchange: Exchange, claimed: Claimed) -> bytes:
    return b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d,"performance":{%b}}' % (
        exchange.name.encode(),
        claimed.claimed_json,
        claimed.count,
        claimed.ready,
        b'"server_total_ms":%.3f' % exchange.elapsed_ms(),
    )


def ack(app: "App", exchange: Exchange) -> None:
    _settle(app, exchange, exchange.decode(_DECODE_ACK), app.engine.submit_ack)


def nack(app: "App", exchange: Exchange) -> None:
    _settle(app, exchange, exchange.decode(_DECODE_NACK), app.engine.submit_nack)


def extend(app: "App", exchange: Exchange) -> None:
    _settle(app, exchange, exchange.decode(_DECODE_EXTEND), app.engine.submit_extend)


def _settle(
    app: "App",
    exchange: Exchange,
    request: AckRequest,
    submit: Callable[..., tuple[Shard, Commitment]],
) -> None:
    """Put a worker's word on its way and answer when it is as safe as the queue's class."""
    topic = app.engine.topic(exchange.name)
    waiter = app.ready_log.waiter_of(topic)
    shard, ticket = submit(topic, request, waiter=waiter)
    answer_when_settled(exchange, topic, shard, ticket, waiter=waiter)


async def redrive(app: "App", exchange: Exchange) -> None:
    """Bring dead letters back to their queues."""
    request = exchange.decode(_DECODE_REDRIVE)
    if request.to is not None:
        exchange.caller.check_name(check_topic_name(request.to))
    engine, name = app.engine, exchange.name
    topic = engine.find_partitioned(name) or engine.topic(name)
    check_name = exchange.caller.check_name
    redriven = await app.ready_log.run(
        lambda: engine.redrive(topic, to=request.to, wanted=request.max, check_name=check_name)
    )
    exchange.reply_json(redriven)
