"""Many topics over one connection: what a watch brings, and what it refuses."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, assert_never, assert_type

import pytest
from tests.client.faces import DEADLINE_S, AnyLog, fresh, open_awaited

from topics.client import AsyncTopics, Topics
from topics.errors import Closed, Forbidden, LimitReached, RequestError, TopicNotFound, Unauthorized
from topics.model.diff import Record, Tombstone
from topics.model.stream import (
    CaughtUp,
    TopicDeleted,
    WatchedRecord,
    WatchedTombstone,
    WatchItem,
)
from topics.testing.server_process import ServerProcess

KEYS = "all-of-it,team:rwa:team-"
SETTINGS = {"TOPICS_MAX_WATCH_TOPICS": "4"}


@pytest.fixture(scope="module")
def writer(server: ServerProcess) -> Iterator[Topics]:
    with Topics(server.url, token="all-of-it") as client:
        yield client


@pytest.fixture(params=["plain", "awaited"])
def reader(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[AnyLog]:
    """Speak to either client; their answers must be the same."""
    if request.param == "plain":
        with Topics(server.url, token="all-of-it") as client:
            yield client
        return
    with asyncio.Runner() as runner:
        awaited = open_awaited(runner, server.url, token="all-of-it")
        yield awaited
        awaited.close()


def told(item: WatchItem) -> tuple[Any, ...]:
    """Look at every kind of item; a kind that is forgotten is an error of types."""
    match item:
        case Record():
            assert_type(item, WatchedRecord)
            return item.topic, item.seq, item.data
        case Tombstone():
            assert_type(item, WatchedTombstone)
            return item.topic, "lost", item.gap_from, item.gap_to, item.missed_estimate
        case CaughtUp():
            return item.topic, "caught up", item.head_seq
        case TopicDeleted():
            return item.topic, "deleted", item.head_seq
        case _:
            assert_never(item)


def seen(items: Iterator[WatchItem], count: int) -> list[tuple[Any, ...]]:
    return [told(item) for item in islice(items, count)]


def records(items: Iterator[WatchItem], count: int) -> list[tuple[Any, ...]]:
    """Return records alone: when a new topic is caught up depends on who is quicker."""
    return [told(item) for item in islice((i for i in items if isinstance(i, Record)), count)]


def numbers(*values: int) -> list[dict[str, Any]]:
    return [{"data": value} for value in values]


def test_each_topic_comes_from_its_own_place_and_says_its_name(
    reader: AnyLog, writer: Topics
) -> None:
    one, two = fresh(), fresh()
    writer.append(one, numbers(1, 2, 3))
    writer.append(two, numbers(4))
    items = list(reader.watch({one: 1, two: 0}, until_caught_up=True))
    assert sorted(map(told, items), key=str) == sorted(
        [(one, 2, 2), (one, 3, 3), (one, "caught up", 3), (two, 1, 4), (two, "caught up", 1)],
        key=str,
    )


def test_a_watch_goes_on_live(reader: AnyLog, writer: Topics) -> None:
    one, two = fresh(), fresh()
    writer.append(one, numbers(1))
    writer.append(two, numbers(2))
    items = iter(reader.watch({one: 0, two: None}))
    assert {row[0] for row in seen(items, 3)} == {one, two}
    writer.append(two, numbers(3))
    assert seen(items, 1) == [(two, 2, 3)]
    writer.append(one, numbers(4))
    assert seen(items, 1) == [(one, 2, 4)]


def test_a_pattern_follows_a_topic_that_is_made_later(reader: AnyLog, writer: Topics) -> None:
    prefix = fresh("log") + "."
    writer.append(prefix + "old", numbers(1))
    items = iter(reader.watch([prefix + "*"]))
    assert seen(items, 1) == [(prefix + "old", "caught up", 1)]
    writer.append(prefix + "new", numbers(2, 3))
    assert records(items, 2) == [(prefix + "new", 1, 2), (prefix + "new", 2, 3)]


def test_loss_is_a_tombstone(reader: AnyLog, writer: Topics) -> None:
    name = fresh()
    writer.create(name, cap_records=1)
    writer.append(name, numbers(1, 2, 3))
    found = list(reader.watch({name: 0}, until_caught_up=True))
    assert [told(item) for item in found] == [
        (name, "lost", 1, 2, 2),
        (name, 3, 3),
        (name, "caught up", 3),
    ]
    assert found[0].reason == "from_seq_too_old"


def test_filters_are_those_of_a_read(reader: AnyLog, writer: Topics) -> None:
    name = fresh()
    writer.append(name, [{"data": 1, "tag": "a"}, {"data": 2, "tag": "b"}])
    writer.append(name, [{"data": 3, "tag": "a", "meta": {"k": 1}}], node="me")
    tagged = list(reader.watch({name: 0}, match="a", until_caught_up=True))
    assert [told(item) for item in tagged] == [(name, 1, 1), (name, 3, 3), (name, "caught up", 3)]
    assert (tagged[1].tag, tagged[1].meta, tagged[1].node) == ("a", {"k": 1}, "me")
    others = list(reader.watch({name: 0}, node="me", limit=1, until_caught_up=True))
    assert [told(item) for item in others] == [(name, 1, 1), (name, 2, 2), (name, "caught up", 3)]


def test_the_partitions_of_a_topic_are_watched_by_its_name(reader: AnyLog, writer: Topics) -> None:
    name = fresh()
    writer.create(name, partitions=2)
    writer.append(name, [{"data": n, "key": str(n)} for n in range(8)])
    items = list(reader.watch({name: 0}, until_caught_up=True))
    assert sorted(item.data for item in items if isinstance(item, Record)) == list(range(8))
    assert len({item.topic for item in items}) == 2


def test_a_deleted_topic_is_told_and_its_next_life_is_followed(
    reader: AnyLog, writer: Topics
) -> None:
    name = fresh()
    writer.append(name, numbers(1, 2))
    items = iter(reader.watch({name: 0}))
    assert len(seen(items, 3)) == 3
    writer.drop(name)
    assert seen(items, 1) == [(name, "deleted", 2)]
    writer.append(name, numbers(3))
    assert records(items, 1) == [(name, 1, 3)]


def test_a_name_in_place_of_a_list_is_refused(reader: AnyLog) -> None:
    with pytest.raises(RequestError, match=r"\['orders'\]"):
        reader.watch("orders")


@pytest.mark.parametrize("topics", [[], ["a*b"], ["*a"], {"a*": -1}, {"b" * 256: 0}])
def test_what_the_server_does_not_watch_is_refused(reader: AnyLog, topics: Any) -> None:  # noqa: ANN401
    with pytest.raises(RequestError):
        next(iter(reader.watch(topics)))


def test_a_topic_that_does_not_exist_is_named(reader: AnyLog) -> None:
    with pytest.raises(TopicNotFound) as caught:
        next(iter(reader.watch(["missing"])))
    assert caught.value.topic == "missing"


def test_more_topics_than_the_server_allows_end_the_watch(reader: AnyLog, writer: Topics) -> None:
    prefix = fresh("many") + "."
    for number in range(4):
        writer.append(f"{prefix}{number}", numbers(number))
    items = iter(reader.watch([prefix + "*"]))
    assert len(seen(items, 4)) == 4
    writer.append(prefix + "4", numbers(4))
    with pytest.raises(LimitReached) as caught:
        next(items)
    assert (caught.value.limit, caught.value.maximum) == ("max_watch_topics", 4)
    with pytest.raises(StopIteration):
        next(items)


def test_a_key_watches_only_what_it_may(server: ServerProcess, writer: Topics) -> None:
    writer.append("team-a", numbers(1))
    writer.append("other", numbers(1))
    with Topics(server.url, token="nobody") as client, pytest.raises(Unauthorized):
        client.watch(["team-a"])
    with Topics(server.url, token="team") as client:
        for topics in (["other"], ["*"], ["te*"]):
            with pytest.raises(Forbidden):
                client.watch(topics)
        assert len(list(client.watch({"team-*": 0}, until_caught_up=True))) == 2


def streams(writer: Topics) -> int:
    found = re.search(r"^topics_sse_connections (\d+)", writer.metrics(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def until_no_stream(writer: Topics) -> None:
    """Wait until the server has seen the end of every connection."""
    end_s = time.monotonic() + DEADLINE_S
    while streams(writer):
        assert time.monotonic() < end_s, "a connection was left behind"


def test_closing_from_another_thread_ends_the_loop_at_once(writer: Topics) -> None:
    name = fresh()
    writer.append(name, numbers(1))
    watch = writer.watch({name: 0}, heartbeat_ms=60_000)  # no heartbeat wakes it
    assert len(seen(watch, 2)) == 2
    assert streams(writer) == 1
    ended: list[WatchItem] = []
    waiter = threading.Thread(target=lambda: ended.extend(watch))
    waiter.start()
    start_s = time.monotonic()
    watch.close()
    waiter.join(DEADLINE_S)
    assert not waiter.is_alive()
    assert time.monotonic() - start_s < DEADLINE_S
    assert ended == []
    until_no_stream(writer)
    assert list(watch) == []


def test_closing_the_client_ends_its_watches(server: ServerProcess, writer: Topics) -> None:
    name = fresh()
    writer.append(name, numbers(1))
    client = Topics(server.url, token="all-of-it")
    watch = client.watch({name: 0})
    assert len(seen(watch, 2)) == 2
    threading.Timer(0.05, client.close).start()
    with pytest.raises(Closed):
        next(watch)
    until_no_stream(writer)


def test_closing_an_awaited_client_ends_its_watches(server: ServerProcess, writer: Topics) -> None:
    name = fresh()
    writer.append(name, numbers(1))

    async def read() -> None:
        client = AsyncTopics(server.url, token="all-of-it")
        watch = client.watch({name: 0}, heartbeat_ms=60_000)
        for _ in range(2):
            await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await client.close()
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(Closed):
                await waiting

    asyncio.run(read())
    until_no_stream(writer)


def test_a_watch_that_is_left_in_the_middle_leaves_no_connection(writer: Topics) -> None:
    name = fresh()
    writer.append(name, numbers(1))
    assert len(seen(writer.watch({name: 0}), 1)) == 1
    until_no_stream(writer)


def test_a_cancelled_task_leaves_nothing_and_the_next_one_goes_on(
    server: ServerProcess, writer: Topics
) -> None:
    name = fresh()
    writer.append(name, numbers(1))

    async def read() -> list[tuple[Any, ...]]:
        async with AsyncTopics(server.url, token="all-of-it") as client:
            watch = client.watch({name: 0})
            found = [told(await anext(watch)), told(await anext(watch))]
            task = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)  # it waits for what comes
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(until_no_stream, writer)
            await asyncio.to_thread(writer.append, name, numbers(2))
            async with asyncio.timeout(DEADLINE_S):
                found.append(told(await anext(watch)))
            await watch.close()
            assert [item async for item in watch] == []
            return found

    assert asyncio.run(read()) == [(name, 1, 1), (name, "caught up", 1), (name, 2, 2)]
    until_no_stream(writer)


def test_closing_from_another_task_ends_the_loop_at_once(
    server: ServerProcess, writer: Topics
) -> None:
    name = fresh()
    writer.append(name, numbers(1))

    async def read() -> None:
        client = AsyncTopics(server.url, token="all-of-it")
        async with client, client.watch({name: 0}) as watch, asyncio.timeout(DEADLINE_S):
            for _ in range(2):
                await anext(watch)
            waiting = asyncio.ensure_future(_collect(watch))
            await asyncio.sleep(0)
            await watch.close()
            assert await waiting == []

    asyncio.run(read())
    until_no_stream(writer)


async def _collect(watch: Any) -> list[WatchItem]:  # noqa: ANN401 - any that is awaited
    return [item async for item in watch]
