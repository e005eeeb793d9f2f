"""`/v0/watch`: make a watch, then stream it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from topics.api.auth import Caller
from topics.api.exchange import Exchange
from topics.api.saved_watches import SavedWatch
from topics.api.sse import SSE, check_accepts
from topics.api.watch_room import WatchShare
from topics.engine.diff import DiffRequest
from topics.engine.seek import seq_at
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.engine.watch.feed import Options
from topics.engine.watch.frames import Format
from topics.engine.watch.patterns import topics_of
from topics.engine.watch.place import Place
from topics.engine.watch.watcher import UNBOUNDED, Share, Watcher
from topics.errors import Forbidden, LimitReached, RequestError, TopicNotFound, TopicsError
from topics.limits import DEFAULT_LIMIT, MAX_BATCH_BYTES, check_topic_name
from topics.model.diff import parse_match
from topics.model.watch import (
    WATCH_BATCH_BYTES,
    WILDCARD,
    WatchBody,
    WatchOptions,
    WatchStart,
)

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE = msgspec.json.Decoder(WatchBody).decode
MAX_FILTER_BYTES = 64 * 1024
"""Of what a watch filters by: it is kept as long as the watch lives."""


def create(app: "App", exchange: Exchange) -> None:
    body = exchange.decode(_DECODE)
    lenient = exchange.flag("lenient", default=False)
    caller = exchange.caller
    app.watches.check_room(caller)
    share = WatchShare(app.watches.room, caller)
    try:
        share.take_watch(body)
        share.check()  # before the work, which a long filter makes
        watcher = build_watcher(
            app, caller, body.topics, body, lenient=lenient, frame_format=SSE, share=share
        )
        session = app.watches.add(caller, watcher, body, share=share)
    except TopicsError:
        share.end()
        raise
    exchange.reply_json(
        {
            "wid": session.wid,
            "stream_url": f"/v0/watch/{session.wid}",
            "session_ttl_ms": app.config.session_ttl_ms,
            "topics": describe_places(watcher),
        }
    )


def stream(app: "App", exchange: Exchange) -> None:
    session = app.watches.get(exchange.name, exchange.caller)
    check_accepts(exchange)
    session.connect(exchange, exchange.head.headers.get("last-event-id"))


def build_watcher(
    app: "App",
    caller: Caller,
    starts: Mapping[str, WatchStart],
    options: WatchOptions,
    *,
    lenient: bool,
    frame_format: Format,
    share: Share = UNBOUNDED,
) -> Watcher:
    """Make a watcher that stands where it should start; every name is checked against the key."""
    limit = app.config.max_watch_topics
    if not 1 <= len(starts) <= limit:
        raise RequestError(f"topics must name 1 to {limit} topics or patterns")
    for name in starts:
        _check_name(caller, name)
    if len(msgspec.json.encode((options.node, options.match))) > MAX_FILTER_BYTES:
        raise RequestError(f"node and match of a watch may have {MAX_FILTER_BYTES} bytes together")
    patterns = {name: start for name, start in starts.items() if name.endswith(WILDCARD)}
    watcher = _new_watcher(app, starts, options, frame_format=frame_format, share=share)
    _add_patterns(app, watcher, patterns)
    for name, start in starts.items():
        if name not in patterns:
            _add_named(app, watcher, name, start, lenient=lenient)
    if len(watcher.places) > limit:
        raise LimitReached("max_watch_topics", limit)
    return watcher


def restore_watcher(
    app: "App", caller: Caller, body: WatchBody, saved: SavedWatch, *, share: Share = UNBOUNDED
) -> Watcher:
    """Make a watcher that stands where it stood; every name is checked again."""
    for name in body.topics:
        _check_name(caller, name)
    watcher = _new_watcher(app, body.topics, body, frame_format=SSE, share=share)
    for kept in saved.places:
        place = Place(
            kept.name,
            app.engine.find_topic(kept.name),
            kept.seq,
            asked=kept.asked,
            by_pattern=kept.by_pattern,
        )
        place.life, place.first_life = kept.life, kept.first_life
        watcher.put(place)
    return watcher


def _new_watcher(
    app: "App",
    starts: Mapping[str, WatchStart],
    options: WatchOptions,
    *,
    frame_format: Format,
    share: Share,
) -> Watcher:
    what = _options(app, options)
    return Watcher(
        app.live.feed,
        what,
        frame_format=frame_format,
        # What waits and one more frame are within the bound, unless a single record is larger.
        buffer_bytes=app.config.stream_buffer_bytes - what.request.max_batch_bytes,
        max_places=app.config.max_watch_topics,
        patterns=tuple(name[:-1] for name in starts if name.endswith(WILDCARD)),
        names=[name for name in starts if not name.endswith(WILDCARD)],
        windows={name: start.window for name, start in starts.items()},
        share=share,
    )


def describe_places(watcher: Watcher) -> dict[str, dict[str, int]]:
    """Return where a watcher stands, and how far its topics go."""
    return {
        name: {
            "from_seq": place.seq,
            "head_seq": place.topic.head_seq,
            "earliest_seq": place.topic.floors.earliest_seq,
        }
        for name, place in watcher.places.items()
        if place.topic is not None
    }


def _check_name(caller: Caller, name: str) -> None:
    if not name.endswith(WILDCARD):
        caller.check_name(check_topic_name(name))
        return
    prefix = name[:-1]
    if prefix:
        check_topic_name(prefix)
    if not caller.sees_pattern(prefix):
        raise Forbidden("this key may not see every name of this pattern")


def _add_patterns(app: "App", watcher: Watcher, patterns: dict[str, WatchStart]) -> None:
    """Add the topics there are; of several patterns that a name has the last one counts."""
    limit = app.config.max_watch_topics
    found = list(topics_of(app.engine, watcher.patterns, limit + 1))
    if len(found) > limit:
        raise LimitReached("max_watch_topics", limit)
    for topic in found:
        pattern = watcher.pattern_of(topic.name)
        assert pattern is not None
        start = patterns[pattern + WILDCARD]
        watcher.add(topic, _start_seq(topic, start), by_pattern=True)


def _add_named(
    app: "App", watcher: Watcher, name: str, start: WatchStart, *, lenient: bool
) -> None:
    topic, parent = app.engine.find_topic(name), app.engine.find_partitioned(name)
    if topic is not None:
        watcher.add(topic, _start_seq(topic, start))
    elif parent is not None:
        _add_partitions(watcher, parent, start)
    elif not lenient:
        raise TopicNotFound(name)


def _add_partitions(watcher: Watcher, parent: Partitioned, start: WatchStart) -> None:
    if start.from_seq and not start.tail:
        raise RequestError(
            f"topic {parent.name!r} has partitions and no seqs of its own: start at 0 or at the "
            "tail, or name the partitions"
        )
    for topic in parent.partitions:
        if topic.name not in watcher.places:
            watcher.add(topic, _start_seq(topic, start), by_pattern=True)


def _start_seq(topic: Topic, start: WatchStart) -> int:
    if start.tail:
        return topic.head_seq
    return max(start.from_seq, seq_at(topic, start.from_ts) - 1 if start.from_ts else 0)


def _options(app: "App", body: WatchOptions) -> Options:
    nodes = (body.node,) if isinstance(body.node, str) else tuple(body.node or ())
    frame_bytes = min(body.max_batch_bytes or WATCH_BATCH_BYTES, MAX_BATCH_BYTES)
    return Options(
        DiffRequest(
            limit=min(body.limit or DEFAULT_LIMIT, app.config.max_limit),
            nodes=tuple(node.encode() for node in nodes),
            match=None if body.match is None else parse_match(body.match),
            include_tags=body.include_tags,
            include_meta=body.include_meta,
            include_data=body.include_data,
            max_batch_bytes=min(frame_bytes, app.config.stream_buffer_bytes // 2),
            verify=app.config.verify_reads,
        )
    )
