"""Consumers share topics: nothing is skipped, done work is not done again without need."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.client.faces import DEADLINE_S, fresh

from topics.client import AsyncTopics, Topics
from topics.errors import GenerationMismatch
from topics.handles.consumer import Consumer
from topics.model.diff import Record, Tombstone
from topics.model.stream import GroupRecord
from topics.testing.server_process import ServerProcess


class Order(msgspec.Struct):
    """A payload."""

    id: int


def fill(client: Topics, topics: list[str], records: int) -> set[tuple[str, int]]:
    """Write numbers to topics; return what must be seen."""
    for topic in topics:
        client.append(topic, [{"data": n} for n in range(records)])
    return {(topic, n) for topic in topics for n in range(records)}


def test_a_group_goes_on_where_it_was(client: Topics) -> None:
    topic, group = fresh(), fresh("g")
    client.append(topic, [{"data": {"id": n}, "tag": "t"} for n in range(10)])
    with client.consumer(group, [topic], model=Order) as first:
        for item in first:
            assert isinstance(item, GroupRecord)
            assert (item.topic, item.partition, item.tag) == (topic, 0, "t")
            if item.data.id == 3:
                break
    assert client.group_state(group).partitions[0].committed == 4
    with client.consumer(group, [topic], model=Order, until_caught_up=True) as second:
        ids = [item.data.id for item in second if isinstance(item, Record)]
    assert ids == [4, 5, 6, 7, 8, 9]
    assert client.group_state(group).lag_total == 0
    assert client.group_state(group).state == "empty"


def test_what_a_loop_body_failed_on_comes_again(client: Topics) -> None:
    topic, group = fresh(), fresh("g")
    fill(client, [topic], 5)

    def fail_at(consumer: Consumer[Any], seq: int) -> None:
        with consumer:
            for item in consumer:
                if isinstance(item, Record) and item.seq == seq:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at(client.consumer(group, [topic]), 3)
    assert client.group_state(group).partitions[0].committed == 2


def test_commits_may_be_the_users(client: Topics) -> None:
    topic, group = fresh(), fresh("g")
    fill(client, [topic], 4)
    with client.consumer(group, [topic], auto_commit=False) as consumer:
        next(consumer)
        next(consumer)
        consumer.commit()
        next(consumer)
    assert client.group_state(group).partitions[0].committed == 2


def test_a_commit_of_somebody_who_was_thrown_out_is_refused(client: Topics) -> None:
    topic, group = fresh(), fresh("g")
    fill(client, [topic], 4)
    with client.consumer(group, [topic], auto_commit=False) as consumer:
        next(consumer)
        client.leave(group, member=consumer.member)
        with pytest.raises(GenerationMismatch):
            consumer.commit()
        assert [p.committed for p in client.group_state(group).partitions] == []


def test_loss_is_told_with_its_place(client: Topics) -> None:
    topic, group = fresh(), fresh("g")
    client.create(topic, cap_records=2)
    fill(client, [topic], 5)
    with client.consumer(group, [topic], until_caught_up=True) as consumer:
        lost, *records = list(consumer)
    assert isinstance(lost, Tombstone)
    assert (lost.topic, lost.partition, lost.gap_to) == (topic, 0, 3)
    assert [record.data for record in records if isinstance(record, Record)] == [3, 4]
    assert client.group_state(group).partitions[0].committed == 5


def test_partitions_are_read_as_one_topic(client: Topics) -> None:
    topic, group = fresh(), fresh("g")
    client.create(topic, partitions=4)
    client.append(topic, [{"data": n, "key": f"user{n % 9}"} for n in range(100)])
    by_partition: dict[int, list[int]] = {}
    with client.consumer(group, [topic], until_caught_up=True, limit=11) as consumer:
        for item in consumer:
            assert isinstance(item, GroupRecord)
            assert item.topic == topic
            by_partition.setdefault(item.partition, []).append(item.data)
        assert consumer.assigned == {topic: [0, 1, 2, 3]}
    assert sorted(chain.from_iterable(by_partition.values())) == list(range(100))
    for data in by_partition.values():
        assert data == sorted(data)
    assert client.group_state(group).lag_total == 0


class Crew:
    """Consumers on threads of their own; counts what they did."""

    def __init__(self, url: str, group: str, topics: list[str], *, session_ms: int) -> None:
        self._url, self._group, self._topics = url, group, topics
        self._session_ms = session_ms
        self.seen: Counter[tuple[str, int]] = Counter()
        self.by_member: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._clients: list[Topics] = []
        self._consumers: list[Consumer[Any]] = []
        self._threads: list[threading.Thread] = []

    def hire(self) -> Consumer[Any]:
        client = Topics(self._url)
        self._clients.append(client)
        consumer = client.consumer(self._group, self._topics, session_ms=self._session_ms, limit=5)
        thread = threading.Thread(target=self._work, args=(consumer,), daemon=True)
        self._consumers.append(consumer)
        self._threads.append(thread)
        thread.start()
        return consumer

    def _work(self, consumer: Consumer[Any]) -> None:
        with consumer:
            for item in consumer:
                assert isinstance(item, GroupRecord)
                with self._changed:
                    self.seen[item.topic, item.data] += 1
                    self.by_member[consumer.member] += 1
                    self._changed.notify_all()

    def wait_for(self, wanted: set[tuple[str, int]]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: wanted <= self.seen.keys(), DEADLINE_S)

    def wait_until_all_work(self) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: len(self.by_member) == len(self._consumers), DEADLINE_S
            )

    def send_home(self) -> None:
        for consumer in self._consumers:
            consumer.stop()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        for client in self._clients:
            client.close()


def test_members_come_and_go_and_everything_is_done(client: Topics) -> None:
    topics = [fresh("p") for _ in range(4)]
    group = fresh("g")
    wanted = fill(client, topics, 20)
    crew = Crew(client.url, group, topics, session_ms=3_000)
    first = crew.hire()
    crew.wait_for(wanted)
    second = crew.hire()
    deadline = threading.Event()
    for _ in range(int(DEADLINE_S * 20)):
        client_state = client.group_state(group)
        if client_state.state == "stable" and len(client_state.members) == 2:
            break
        deadline.wait(0.05)
    shares = sorted(len(m.assigned) for m in client.group_state(group).members)
    assert shares == [2, 2], "the first one gave half of them up"
    for topic in topics:
        client.append(topic, [{"data": n} for n in range(20, 40)])
    crew.wait_for({(topic, n) for topic in topics for n in range(40)})
    assert crew.by_member[second.member] == 40
    second.stop()
    for topic in topics:
        client.append(topic, [{"data": n} for n in range(40, 50)])
    crew.wait_for({(topic, n) for topic in topics for n in range(50)})
    crew.send_home()
    for topic in topics:
        client.append(topic, [{"data": 50}])  # wakes those who wait
    crew.join()
    assert set(crew.seen.values()) <= {1, 2}
    assert sum(count == 1 for count in crew.seen.values()) >= 190, "handed over after a commit"
    assert first.assigned is not None


def test_a_slow_worker_stays_a_member(client: Topics) -> None:
    topic, group = fresh(), fresh("g")
    fill(client, [topic], 3)
    with client.consumer(group, [topic], session_ms=1_000, until_caught_up=True) as consumer:
        data = []
        for item in consumer:
            assert isinstance(item, Record)
            data.append(item.data)
            if item.seq == 1:
                threading.Event().wait(2.5)  # longer than two sessions
    assert data == [0, 1, 2]
    assert consumer._membership.joins == 1


def test_an_awaited_consumer_works_too(server: ServerProcess, client: Topics) -> None:
    topics = [fresh("p"), fresh("p")]
    group = fresh("g")
    wanted = fill(client, topics, 30)

    async def run() -> set[tuple[str, int]]:
        async with (
            AsyncTopics(server.url) as other,
            other.consumer(group, topics, until_caught_up=True, limit=7) as consumer,
        ):
            seen = set()
            async for item in consumer:
                assert isinstance(item, GroupRecord)
                seen.add((item.topic, item.data))
            await consumer.commit()
            return seen

    assert asyncio.run(run()) == wanted
    assert client.group_state(group).lag_total == 0


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(str(tmp_path / "data")) as process:
        yield process


@pytest.mark.crash
def test_kills_of_the_server_skip_nothing(mortal: ServerProcess) -> None:
    topics = ["a", "b", "c"]
    with Topics(mortal.url) as client:
        for topic in topics:
            client.create(topic, durability="fsync")
        crew = Crew(mortal.url, "g", topics, session_ms=2_000)
        crew.hire()
        crew.hire()
        for life in range(3):
            for topic in topics:
                records = [{"data": n} for n in range(life * 20, life * 20 + 20)]
                client.append(topic, records, idempotency_key=f"{topic}{life}")
            mortal.kill9()
            mortal.start()
        crew.wait_for({(topic, n) for topic in topics for n in range(60)})
        crew.send_home()
        for topic in topics:
            client.append(topic, [{"data": 60}], idempotency_key=f"{topic}-end")
        crew.join()
        assert client.group_state("g").lag_total <= 3
