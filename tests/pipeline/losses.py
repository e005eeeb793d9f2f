"""The ways to lose records: each is done to a topic, and says what readers have to be told."""

from tests.pipeline.feed import Feed, wait_until

from topics.testing.server_process import ServerProcess

RECORDS = 350
Gaps = list[tuple[int, int | None, str]]


def fill(feed: Feed, *, in_memory: bool = False) -> Feed:
    """Fill 350 records into three sealed segments, an active one, and a tail; or into memory."""
    if in_memory:
        feed.create(durability="ephemeral")
        feed.number(RECORDS)
        return feed
    feed.number(320)
    feed.wait_for_sealed(3)
    feed.number(30, start=320)
    return feed


def evict(feed: Feed, _: ServerProcess) -> Gaps:
    feed.create(cap_records=120)
    wait_until(lambda: feed.manifest()["evict_floor"] > 1, "evicted records")
    return [(1, feed.manifest()["earliest_seq"] - 1, "cap")]


def expire(feed: Feed, _: ServerProcess) -> Gaps:
    feed.create(ttl_ms=1)
    wait_until(lambda: feed.manifest()["earliest_seq"] > RECORDS, "expired records")
    return [(1, RECORDS, "ttl")]


def delete(feed: Feed, _: ServerProcess) -> Gaps:
    feed.drop()
    return [(1, RECORDS, "deleted")]


def recreate(feed: Feed, _: ServerProcess) -> Gaps:
    feed.drop()
    feed.number(400)
    return [(1, RECORDS, "recreated")]


def crash(_: Feed, server: ServerProcess) -> Gaps:
    server.kill9()
    server.start()
    return [(1, RECORDS, "crash")]


LOSSES = [evict, expire, delete, recreate, crash]
