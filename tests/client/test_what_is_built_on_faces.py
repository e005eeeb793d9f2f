"""Producers, workers and consumers: one program, run on each face of a log by changing one line."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from tests.client.faces import DEADLINE_S, fresh

import topics
from topics.aio import AsyncLog
from topics.client import AsyncTopics, Topics
from topics.embedded import Log
from topics.errors import NotAQueue, RecordTooLarge, RequestError, TopicFull, TopicsError
from topics.model.append import Appended
from topics.model.diff import Record, Tombstone
from topics.model.stream import TypedJob
from topics.testing.server_process import ServerProcess

Face = Log | Topics
AwaitedFace = AsyncLog | AsyncTopics


class Mail(msgspec.Struct):
    """What a job carries."""

    to: str


class Person(pydantic.BaseModel):
    """A payload as pydantic has it."""

    name: str


@pytest.fixture(params=["embedded", "http"])
def face(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Face]:
    if request.param == "embedded":
        with topics.open(str(tmp_path / "data")) as log:
            yield log
        return
    with Topics(request.getfixturevalue("server").url) as client:
        yield client


Run = Callable[[Callable[[AwaitedFace], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["embedded", "http"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Return what runs a coroutine function on an awaited face, within a deadline."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[AwaitedFace]:
        if request.param == "embedded":
            async with await AsyncLog.open(str(tmp_path / "data")) as log:
                yield log
            return
        server: ServerProcess = request.getfixturevalue("server")
        async with AsyncTopics(server.url) as client:
            yield client

    def run_it(program: Callable[[AwaitedFace], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(DEADLINE_S), opened() as log:
                await program(log)
                left = asyncio.all_tasks() - {asyncio.current_task()}
                assert not left, "something still runs"

        asyncio.run(whole())

    return run_it


def test_a_producer_keeps_order_and_tells_what_fails(face: Face) -> None:
    name = fresh()
    before = threading.active_count()
    with face.producer(name, linger_ms=20, max_batch=100) as producer:
        futures = [producer.send(n, tag=f"t{n}") for n in range(500)]
    assert [future.result(0).seq for future in futures] == list(range(1, 501))
    assert [r.data for r in face.diff(name, limit=1000).records] == list(range(500))
    producer = face.producer(name, linger_ms=3_600_000)
    sent = [producer.send(data) for data in (1, "x" * 2**20, 2)]
    with pytest.raises(RecordTooLarge):
        producer.close()
    assert [future.exception(0) is None for future in sent] == [True, False, True]
    assert threading.active_count() == before


def test_a_producer_knows_what_partitions_took(face: Face) -> None:
    name = fresh()
    face.create(name, partitions=3, cap_records=1, discard="reject")
    face.append(name, [{"data": 0, "key": "user1"}])
    producer = face.producer(name, linger_ms=3_600_000)
    futures = [producer.send(Person(name=key), key=key) for key in ("user7", "user1")]
    with pytest.raises(TopicFull):
        producer.close()
    assert futures[0].result(0).topic == f"{name}-0"
    assert [r.data for r in face.diff(f"{name}-0").records] == [{"name": "user7"}]


def test_a_job_is_put_into_a_queue_that_is_made_for_it_and_never_into_a_log(face: Face) -> None:
    name, plain = fresh("q"), fresh("t")
    assert face.queue(name, Mail).put(Mail(to="a")).created
    assert face.state(name).queue is not None
    face.append(plain, [{"data": 1}])
    with pytest.raises(NotAQueue, match=plain):
        face.queue(plain).put(2)
    assert face.state(plain).head_seq == 1


def test_a_worker_works_backs_off_and_drains(face: Face) -> None:
    name = fresh("q")
    face.create(name, type="queue", lease_ms=1_000)
    queue = face.queue(name, Mail)
    queue.put(*[Mail(to=f"m{n}") for n in range(20)])
    seen: list[str] = []
    lock = threading.Lock()

    @queue.worker(concurrency=4, backoff_ms=1, idle_ms=10)
    def work(job: TypedJob[Mail]) -> None:
        if job.data.to == "m3" and job.deliveries == 1:
            raise ValueError("again, please")
        with lock:
            seen.append(job.data.to)
            if len(seen) == 20:
                work.stop()

    thread = threading.Thread(target=work.run, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert sorted(seen) == sorted(f"m{n}" for n in range(20))
    assert face.state(name).count == 0


def test_a_consumer_goes_on_where_its_group_was(face: Face) -> None:
    name, group = fresh(), fresh("g")
    face.create(name, partitions=3)
    face.append(name, [{"data": n, "key": f"user{n}"} for n in range(30)])
    done: list[int] = []
    with face.consumer(group, [name], model=int, limit=4) as consumer:
        for item in consumer:
            if isinstance(item, Record):
                done.append(item.data)
            if len(done) == 10:
                break
    assert face.group_state(group).lag_total == 20
    with face.consumer(group, [name], until_caught_up=True) as consumer:
        done += [item.data for item in consumer if isinstance(item, Record)]
    assert sorted(done) == list(range(30))
    assert face.group_state(group).lag_total == 0


def test_a_consumer_is_told_of_loss_and_wakes_for_news(face: Face) -> None:
    name, group = fresh(), fresh("g")
    face.create(name, cap_records=2)
    face.append(name, [{"data": n} for n in range(5)])
    with face.consumer(group, [name]) as consumer:
        items = [next(consumer) for _ in range(3)]
        writer = threading.Thread(target=face.append, args=(name, [{"data": "new"}]))
        writer.start()
        last = next(consumer)
        writer.join()
    assert isinstance(items[0], Tombstone)
    assert isinstance(last, Record)
    assert last.data == "new"


def test_settings_that_cannot_be_are_refused_at_once(face: Face) -> None:
    name = fresh()
    before = threading.active_count()
    for wrong in ({"linger_ms": -1}, {"max_batch": 0}, {"buffer_bytes": 0}, {"when_full": "drop"}):
        with pytest.raises(RequestError):
            face.producer(name, **wrong)
    for bad in ({"concurrency": 0}, {"lease_ms": 0}, {"backoff_ms": -1}, {"idle_ms": 0}):
        with pytest.raises(RequestError):
            face.queue(name).worker(**bad)
    with pytest.raises(RequestError, match="list of names"):
        face.consumer("g", name)
    assert threading.active_count() == before


def test_topics_are_listed_with_their_sizes(face: Face) -> None:
    prefix = fresh()
    face.create(f"{prefix}-b", partitions=2)
    face.append(f"{prefix}-a", [{"data": 1}, {"data": 2}])
    face.append(f"{prefix}-b", [{"data": 1}])
    listed = face.listed(prefix)
    shown = [(topic.topic.removeprefix(prefix), topic.count) for topic in listed]
    assert shown[:2] == [("-a", 2), ("-b", 1)]
    assert sum(count for _, count in shown[2:]) == 1
    assert [topic.partitions for topic in listed[:2]] == [msgspec.UNSET, 2]
    assert listed[0].bytes > 0


def test_an_awaited_producer_and_reader_work_on_both(run: Run) -> None:
    async def program(log: AwaitedFace) -> None:
        name = fresh()
        handle = log.topic(name, Mail)
        await handle.append(Mail(to="first"))
        async with log.producer(name, max_batch=50) as producer:
            futures = [await producer.send(Mail(to=str(n))) for n in range(200)]
        assert [future.result().seq for future in futures] == list(range(2, 202))
        found = [item async for item in handle.read()]
        assert [item.data.to for item in found if isinstance(item, Record)][:2] == ["first", "0"]
        assert len(found) == 202
        assert name in await log.topics(name)
        assert [topic.count for topic in await log.listed(name)] == [201]

    run(program)


def test_an_awaited_tail_wakes_for_news(run: Run) -> None:
    async def program(log: AwaitedFace) -> None:
        name = fresh()
        await log.create(name)
        tail = log.topic(name).tail(from_seq=0)
        assert isinstance(await anext(tail), topics.CaughtUp)
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        await log.append(name, [{"data": 7}])
        item = await waiting
        assert isinstance(item, Record)
        assert item.data == 7
        await tail.aclose()

    run(program)


def test_a_read_that_waits_ends_when_its_topic_does(run: Run) -> None:
    async def program(log: AwaitedFace) -> None:
        name = fresh()
        await log.create(name)
        waiting = asyncio.ensure_future(log.diff(name, wait_ms=20_000))
        await asyncio.sleep(0)
        await log.drop(name)
        with pytest.raises(topics.errors.TopicNotFound):
            await waiting

    run(program)


def test_an_awaited_worker_works_on_both(run: Run) -> None:
    async def program(log: AwaitedFace) -> None:
        name = fresh("q")
        await log.create(name, type="queue")
        queue = log.queue(name, int)
        await queue.put(*range(20))
        seen: list[int] = []

        @queue.worker(concurrency=8, idle_ms=10, backoff_ms=1)
        async def work(job: TypedJob[int]) -> None:
            if job.data == 3 and job.deliveries == 1:
                raise ValueError("again, please")
            seen.append(job.data)
            if len(seen) == 20:
                work.stop()

        await work.run()
        assert sorted(seen) == list(range(20))
        assert (await log.state(name)).count == 0

    run(program)


def test_an_awaited_consumer_works_on_both(run: Run) -> None:
    async def program(log: AwaitedFace) -> None:
        name, group = fresh(), fresh("g")
        await log.append(name, [{"data": n} for n in range(10)])
        async with log.consumer(group, [name], until_caught_up=True, limit=3) as consumer:
            done = [item.data async for item in consumer if isinstance(item, Record)]
        assert done == list(range(10))
        assert (await log.group_state(group)).lag_total == 0
        assert group in await log.groups()

    run(program)


def test_nothing_is_left_behind_by_a_worker_that_is_cancelled(run: Run) -> None:
    async def program(log: AwaitedFace) -> None:
        name = fresh("q")
        await log.create(name, type="queue")
        begun = asyncio.Event()

        @log.queue(name, int).worker(concurrency=2, idle_ms=20_000)
        async def work(_job: TypedJob[int]) -> None:
            begun.set()

        running = asyncio.create_task(work.run())
        await log.queue(name, int).put(1)
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(program)


def test_nobody_waits_for_an_awaited_producer_that_broke(run: Run) -> None:
    async def program(log: AwaitedFace) -> None:
        producer = log.producer(fresh(), linger_ms=3_600_000)

        async def broken(_topic: str, _body: bytes) -> Appended:
            raise ZeroDivisionError

        producer._deliver = broken
        future = await producer.send(1)
        with pytest.raises(TopicsError):
            await producer.flush()
        assert isinstance(future.exception(), TopicsError)
        with pytest.raises(ZeroDivisionError):
            await producer.close()

    run(program)
