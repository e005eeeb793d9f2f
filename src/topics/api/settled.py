"""The answer to a change of a topic: given when it is as safe as the topic's class promises."""

from topics.aio import ShardWaiter
from topics.api.exchange import Exchange
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.storage.wal.group_commit import Commitment


def answer_when_settled(
    exchange: Exchange, topic: Topic, shard: Shard, ticket: Commitment, *, waiter: ShardWaiter
) -> None:
    """Answer with what the ticket answers, and how long the log took for it."""

    def answer(done: Commitment) -> None:
        exchange.app.guard(exchange.channel, lambda: tell(done))

    def tell(done: Commitment) -> None:
        if done.error is not None:
            exchange.fail(done.error)
            return
        commit = shard.commit
        exchange.reply_json(
            done.answer,
            wal_append_ms=commit.last_write_s * 1000,
            fsync_ms=commit.last_sync_s * 1000 if topic.config.durable else 0.0,
        )

    waiter.tell(ticket, answer)
