"""`POST /v0/topics/:topic/delete`: remove records for good."""

from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.model.delete import DeleteBody, Deleted
from topics.model.diff import parse_match
from topics.storage.wal.group_commit import Commitment

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

    def answer(done: Commitment) -> None:
        if done.error is not None:
            exchange.fail(done.error)
            return
        deleted = done.answer
        assert isinstance(deleted, Deleted)
        commit = shard.commit
        exchange.reply_json(
            deleted,
            wal_append_ms=commit.last_write_s * 1000,
            fsync_ms=commit.last_sync_s * 1000 if topic.config.durable else 0.0,
        )

    waiter.tell(ticket, answer)
