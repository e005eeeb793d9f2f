"""`GET /v0/topics/:topic/range`: a range as raw frames, for those who decode in bulk."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from topics.api.exchange import Exchange
from topics.engine.frames import FramesRequest, reaches_cold
from topics.engine.topics.topic import Topic
from topics.limits import DEFAULT_RANGE_BYTES, MAX_RANGE_BYTES
from topics.model.diff import MAX_SEQ
from topics.model.frames import MEDIA_TYPE, RangePage, encode_range

if TYPE_CHECKING:
    from topics.api.app import App

_CONTENT_TYPE = MEDIA_TYPE.encode()


def read(app: "App", exchange: Exchange) -> Coroutine[Any, Any, None] | None:
    topic = app.engine.topic(exchange.name)
    request = FramesRequest(
        from_seq=exchange.number("from_seq", default=0, low=0, high=MAX_SEQ),
        to_seq=exchange.number("to_seq", default=0, low=0, high=MAX_SEQ),
        max_bytes=exchange.number(
            "max_bytes", default=DEFAULT_RANGE_BYTES, low=1, high=MAX_RANGE_BYTES
        ),
        epoch=exchange.number("epoch", default=0, low=1, high=MAX_SEQ) or None,
    )
    if reaches_cold(topic, request.from_seq) or app.engine.must_forward(topic):
        return _read_aside(app, exchange, topic, request)
    _answer(app, exchange, app.engine.read_frames(topic, request))
    return None


async def _read_aside(app: "App", exchange: Exchange, topic: Topic, request: FramesRequest) -> None:
    """Read off the event loop: the cold tier or a router may be slow, and nobody else waits."""
    _answer(app, exchange, await app.ready_log.read_frames_aside(topic, request))


def _answer(app: "App", exchange: Exchange, page: RangePage) -> None:
    app.metrics.records_delivered += sum(part.count for part in page.head.parts)
    app.metrics.tombstones += page.head.tombstone is not None
    exchange.reply_binary(encode_range(page), content_type=_CONTENT_TYPE)
