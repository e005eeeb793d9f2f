"""`POST /v0/topics/:topic/diff`: read what comes after a cursor."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from topics.api.exchange import Exchange
from topics.api.long_poll import LongPoll
from topics.engine.diff import DiffRequest
from topics.engine.request import build_diff_request
from topics.engine.topics.topic import Topic
from topics.model.diff import DiffBody, Page

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE = msgspec.json.Decoder(DiffBody).decode


def read(app: "App", exchange: Exchange) -> Coroutine[Any, Any, None] | None:
    body = exchange.decode(_DECODE)
    topic = app.engine.topic(exchange.name)
    request = build_diff_request(
        topic.config,
        app.config,
        from_seq=body.from_seq,
        from_ts=body.from_ts,
        until_ts=body.until_ts,
        limit=body.limit,
        node=body.node or (),
        match=body.match,
        include_tags=body.include_tags,
        include_meta=body.include_meta,
        max_batch_bytes=body.max_batch_bytes,
        verify=app.config.verify_reads,
    )
    if app.ready_log.may_block(topic, request.from_seq, request.from_ts):
        return _read_aside(app, exchange, topic, request, wait_ms=body.wait_ms)
    _answer_or_wait(app, exchange, topic, request, app.engine.diff(topic, request), body.wait_ms)
    return None


async def _read_aside(
    app: "App", exchange: Exchange, topic: Topic, request: DiffRequest, *, wait_ms: int
) -> None:
    """Read off the event loop: the cold tier or a router may be slow, and nobody else waits."""
    page = await app.ready_log.read_aside(topic, request)
    _answer_or_wait(app, exchange, topic, request, page, wait_ms)


def _answer_or_wait(
    app: "App", exchange: Exchange, topic: Topic, request: DiffRequest, page: Page, wait_ms: int
) -> None:
    if wait_ms and not page.is_news:
        LongPoll(app, exchange, topic, request, answer).begin(wait_ms)
    else:
        answer(app, exchange, page)


def answer(app: "App", exchange: Exchange, page: Page, *, waited_ms: float | None = None) -> None:
    """Send a page."""
    waited = b"" if waited_ms is None else b',"wait_ms":%.3f' % waited_ms
    app.metrics.records_delivered += page.count
    app.metrics.tombstones += page.tombstone is not None
    cold = b',"cold_segments_read":%d' % page.cold_segments_read if page.cold_segments_read else b""
    until = b""
    if page.until_reached is not None:
        until = b'"until_reached":%b,' % (b"true" if page.until_reached else b"false")
    exchange.reply_parts(
        (
            b'{"topic":"%b","records":[' % page.topic.encode(),
            page.records_json,
            b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"tombstone":%b,'
            b'"lag":%d,%b"performance":{"server_total_ms":%.3f,"records_scanned":%d%b%b}}'
            % (
                page.next_from_seq,
                page.head_seq,
                page.earliest_seq,
                b"true" if page.caught_up else b"false",
                b"null" if page.tombstone is None else msgspec.json.encode(page.tombstone),
                page.lag,
                until,
                exchange.elapsed_ms(),
                page.records_scanned,
                cold,
                waited,
            ),
        )
    )
