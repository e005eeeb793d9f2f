"""`/v0/groups`: consumers that share topics, and those who look after them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.api.group_poll import GroupPoll
from topics.api.topics import MAX_PAGE_SIZE, PAGE_SIZE, decode_cursor, end_page
from topics.engine.groups.groups import Submitted
from topics.model.groups import (
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListedGroup,
    PollRequest,
    SeekRequest,
)
from topics.storage.wal.group_commit import Commitment

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE_JOIN = msgspec.json.Decoder(JoinRequest).decode
_DECODE_HEARTBEAT = msgspec.json.Decoder(HeartbeatRequest).decode
_DECODE_LEAVE = msgspec.json.Decoder(LeaveRequest).decode
_DECODE_COMMIT = msgspec.json.Decoder(CommitRequest).decode
_DECODE_POLL = msgspec.json.Decoder(PollRequest).decode
_DECODE_SEEK = msgspec.json.Decoder(SeekRequest).decode


def join(app: "App", exchange: Exchange) -> None:
    request = exchange.decode(_DECODE_JOIN)
    _check_topics(app, exchange, request.topics)
    _say(app, exchange, request, app.engine.groups.submit_join)


def heartbeat(app: "App", exchange: Exchange) -> None:
    request = exchange.decode(_DECODE_HEARTBEAT)
    _check_topics(app, exchange)
    _say(app, exchange, request, app.engine.groups.submit_heartbeat)


def leave(app: "App", exchange: Exchange) -> None:
    request = exchange.decode(_DECODE_LEAVE)
    _check_topics(app, exchange)
    _say(app, exchange, request, app.engine.groups.submit_leave)


def commit(app: "App", exchange: Exchange) -> None:
    request = exchange.decode(_DECODE_COMMIT)
    _check_topics(app, exchange, request.offsets)
    _say(app, exchange, request, app.engine.groups.submit_commit)


def poll(app: "App", exchange: Exchange) -> None:
    request = exchange.decode(_DECODE_POLL)
    _check_topics(app, exchange)
    GroupPoll(app, exchange, request).begin()


async def seek(app: "App", exchange: Exchange) -> None:
    """Move progress; off the event loop, because a time is looked up in indexes."""
    request, name, groups = exchange.decode(_DECODE_SEEK), exchange.name, app.engine.groups
    _check_topics(app, exchange, request.topics or ())
    exchange.reply_json(await app.ready_log.run(lambda: groups.seek(name, request)))


def get_group(app: "App", exchange: Exchange) -> None:
    _check_topics(app, exchange)
    waiter = app.ready_log.group_waiter
    _answer_when_safe(app, exchange, app.engine.groups.submit_look(exchange.name, waiter=waiter))


def delete_group(app: "App", exchange: Exchange) -> None:
    _check_topics(app, exchange)
    waiter = app.ready_log.group_waiter
    submitted = app.engine.groups.submit_drop(exchange.name, waiter=waiter)
    shown = {"group": exchange.name, "deleted": True}
    _answer_when_safe(app, exchange, submitted, show=lambda _: shown)


def list_groups(app: "App", exchange: Exchange) -> None:
    parameters = exchange.head.parameters()
    page_size = exchange.number("page_size", default=PAGE_SIZE, low=1, high=MAX_PAGE_SIZE)
    prefix, cursor = parameters.get("prefix", ""), parameters.get("cursor")
    groups, sees = app.engine.groups, exchange.caller.sees
    names = groups.names()
    found: dict[str, ListedGroup] = {}
    for name in names[0 if cursor is None else bisect_right(names, decode_cursor(cursor)) :]:
        listed = groups.listed(name) if name.startswith(prefix) and sees(name) else None
        if listed is not None and all(map(sees, listed.topics)):
            found[name] = listed
            if len(found) > page_size:
                break
    page, next_cursor = end_page(list(found), page_size=page_size)
    reply: dict[str, object] = {"groups": [found[name] for name in page]}
    if next_cursor is not None:
        reply["next_cursor"] = next_cursor
    exchange.reply_json(reply)


def _check_topics(app: "App", exchange: Exchange, named: Iterable[str] = ()) -> None:
    """Refuse a key that may not see every topic that is named or that the group has."""
    if exchange.caller.prefixes:
        for topic in (*named, *app.engine.groups.topics_of(exchange.name)):
            exchange.caller.check_name(topic)


def _say(app: "App", exchange: Exchange, request: object, submit: Callable[..., Submitted]) -> None:
    """Put a word on its way and answer when all that it tells is safe."""
    waiter = app.ready_log.group_waiter
    _answer_when_safe(app, exchange, submit(exchange.name, request, waiter=waiter))


def _answer_when_safe(
    app: "App",
    exchange: Exchange,
    submitted: Submitted,
    *,
    show: Callable[[object], object] = lambda answer: answer,
) -> None:
    shard, word = submitted

    def answer(done: Commitment) -> None:
        if done.error is not None:
            exchange.fail(done.error)
            return
        exchange.reply_json(
            show(done.answer),
            wal_append_ms=shard.commit.last_write_s * 1000 if done.frames else 0.0,
            fsync_ms=shard.commit.last_sync_s * 1000 if done.needs_sync else 0.0,
        )

    app.ready_log.group_waiter.tell(word, answer)
