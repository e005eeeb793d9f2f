"""How a handle reads: waits for its topic, merges partitions; by itself, then on each face."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.client.faces import AnyLog, fresh

from topics import errors
from topics.handles import async_worker, membership, reading, worker
from topics.handles.topic import TopicHandle
from topics.model.append import Appended
from topics.model.diff import Page, Record, Tombstone
from topics.model.partitions import PartitionState
from topics.model.stream import (
    CaughtUp,
    GroupRecord,
    GroupTombstone,
    PageRequest,
    TypedJob,
    TypedRecord,
)
from topics.model.topic_config import TopicConfig
from topics.model.topics import TopicState
from topics.testing.manual_clock import ManualClock

LOOK_S = 0.01
NOT_YET = "the topic {} is not there yet: waiting for it"


class Shelf:
    """Plays a log: topics with records of given times, pages of two, and a clock by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.heads: dict[str, list[int]] = {}
        """By name: the time of each record."""
        self.lost: dict[str, Tombstone] = {}
        self.partitioned = False
        self.plan: list[Callable[[], object]] = []
        """What happens at the next pauses."""
        self.asked: list[str] = []
        self.clock_sleeps: list[float] = []
        self.away = 0

    def sleep(self, seconds: float) -> None:
        self.clock_sleeps.append(seconds)
        assert self.plan, "it waits for ever"
        self.plan.pop(0)()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    def append(
        self,
        topic: str,
        records: list[dict[str, Any]],
        *,
        idempotency_key: str | None = None,
        create: bool = True,
    ) -> Appended:
        raise NotImplementedError

    def state(self, topic: str) -> TopicState:
        self.asked.append(topic)
        if self.away:
            self.away -= 1
            raise errors.Unreachable("nobody there", sent=False)
        if not self.partitioned and topic not in self.heads:
            raise errors.TopicNotFound(topic)
        parts = [
            PartitionState(
                partition=number, topic=name, head_seq=len(times), earliest_seq=1, count=0, bytes=0
            )
            for number, (name, times) in enumerate(self.heads.items())
        ]
        return TopicState(
            topic=topic,
            type="log",
            epoch=0,
            head_seq=sum(part.head_seq for part in parts),
            earliest_seq=0,
            evict_floor=0,
            next_seq=0,
            count=0,
            bytes=0,
            config=TopicConfig(),
            last_write_ts=None,
            last_read_ts=None,
            segments=0,
            cold_segments=0,
            partitions=parts if self.partitioned else None,
        )

    def read_page(self, request: PageRequest) -> Page:
        self.asked.append(request.topic)
        if request.topic not in self.heads:
            if self.partitioned:
                raise errors.TopicPartitioned(request.topic, list(self.heads))
            raise errors.TopicNotFound(request.topic)
        times = self.heads[request.topic]
        lost = self.lost.get(request.topic) if request.from_seq == 0 else None
        begin = lost.gap_to if lost is not None else request.from_seq
        shown = range(begin + 1, min(begin + 2, len(times)) + 1)
        texts = [b'{"$seq":%d,"$ts":%d,"data":%d}' % (n, times[n - 1], n) for n in shown]
        return Page(
            topic=request.topic,
            records_json=b",".join(texts),
            count=len(texts),
            next_from_seq=max([begin, *shown]),
            head_seq=len(times),
            earliest_seq=1,
            tombstone=lost,
            records_scanned=0,
            cold_segments_read=0,
        )

    def handle(self) -> TopicHandle[Any]:
        return TopicHandle(self, "t", clock=self)


def places(items: list[Any]) -> list[tuple[int, int, int]]:
    """Return time, partition and seq of the records."""
    return [(i.ts, i.partition, i.seq) for i in items if isinstance(i, GroupRecord)]


def records_of(items: Iterable[object]) -> list[GroupRecord[Any]]:
    return [item for item in items if isinstance(item, GroupRecord)]


def test_partitions_are_merged_by_time_then_by_partition_then_by_seq() -> None:
    shelf = Shelf()
    shelf.partitioned = True
    shelf.heads = {"t-0": [1, 5, 5, 9], "t-1": [5, 5, 6], "t-2": [], "t-3": [2, 3, 4, 5, 5]}
    *items, end = shelf.handle().read()
    assert places(items) == sorted(places(items))
    assert end == CaughtUp(topic="t", from_seq=12, head_seq=12)
    records = records_of(items)
    assert len(records) == len(items) == 12
    assert {(r.topic, r.partition) for r in records} == {("t-0", 0), ("t-1", 1), ("t-3", 3)}
    assert [r.data for r in records if r.partition == 3] == [1, 2, 3, 4, 5]


def test_a_loss_is_told_before_what_comes_after_it() -> None:
    shelf = Shelf()
    shelf.partitioned = True
    shelf.heads = {"t-0": [1, 2], "t-1": [1, 1, 7]}
    lost = Tombstone(
        gap_from=1, gap_to=2, reason="cap", missed_estimate=2, earliest_seq=3, head_seq=3
    )
    shelf.lost = {"t-1": lost}
    first, *others = shelf.handle().read()
    assert isinstance(first, GroupTombstone)
    assert (first.topic, first.partition, first.gap_from, first.gap_to) == ("t-1", 1, 1, 2)
    assert places(others) == [(1, 0, 1), (2, 0, 2), (7, 1, 3)]


def test_one_may_begin_within_partitions_by_their_names() -> None:
    shelf = Shelf()
    shelf.partitioned = True
    shelf.heads = {"t-0": [1, 4, 6], "t-1": [2, 3]}
    assert places(list(shelf.handle().read(from_seq={"t-0": 2, "t-1": 1}))) == [
        (3, 1, 2),
        (6, 0, 3),
    ]
    with pytest.raises(errors.TopicPartitioned):
        list(shelf.handle().read(from_seq=3))
    shelf.partitioned, shelf.heads = False, {"t": [1]}
    with pytest.raises(errors.RequestError, match="as one number"):
        list(shelf.handle().read(from_seq={"t-0": 2}))


def test_a_tail_of_partitions_begins_now_and_meets_those_that_come_later() -> None:
    shelf = Shelf()
    shelf.partitioned = True
    shelf.heads = {"t-0": [1], "t-1": [2, 3]}
    shelf.plan = [
        lambda: shelf.heads["t-1"].append(7),
        lambda: shelf.heads.update({"t-2": [8, 9]}),
        lambda: setattr(shelf, "away", 3),
        *[lambda: None] * 3,
        lambda: shelf.heads["t-0"].append(11),
    ]
    items = shelf.handle().tail()
    assert next(items) == CaughtUp(topic="t", from_seq=3, head_seq=3)
    assert places([next(items) for _ in range(4)]) == [(7, 1, 3), (8, 2, 1), (9, 2, 2), (11, 0, 2)]
    assert shelf.plan == []
    assert shelf.asked.count("t-0") == 1, "only who has something new is read"


def test_a_topic_that_is_not_there_yet_is_waited_for_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = Shelf()
    shelf.plan = [lambda: None, lambda: None, lambda: shelf.heads.update(t=[1, 2, 3])]
    items = shelf.handle().tail()
    assert caplog.messages == [], "it waits when it is asked for an item"
    assert [item.seq for item in (next(items), next(items)) if isinstance(item, Record)] == [1, 2]
    assert caplog.messages == [NOT_YET.format("t")]
    assert shelf.clock_sleeps == [LOOK_S] * 3


def test_a_topic_that_is_waited_for_may_have_partitions() -> None:
    shelf = Shelf()

    def make() -> None:
        shelf.partitioned, shelf.heads = True, {"t-0": [1]}

    shelf.plan = [make]
    assert places([next(shelf.handle().tail(from_seq=0))]) == [(1, 0, 1)]


def test_whoever_reads_what_is_there_is_told_that_nothing_is() -> None:
    handle = Shelf().handle()
    with pytest.raises(errors.TopicNotFound):
        list(handle.read())
    with pytest.raises(errors.TopicNotFound):
        list(handle.tail(until_caught_up=True))


def test_the_partitions_of_each_face_are_one_stream(log: AnyLog) -> None:
    name = fresh()
    log.create(name, partitions=3)
    keys = [f"user{n % 7}" for n in range(40)]
    log.append(name, [{"data": n, "key": key} for n, key in enumerate(keys)])
    *records, end = log.topic(name).read(limit=5)
    assert sorted(record.data for record in records) == list(range(40))
    assert places(records) == sorted(places(records))
    assert (end.topic, end.from_seq, end.head_seq) == (name, 40, 40)
    for key in set(keys):
        mine = [record.data for record in records if record.tag == key]
        assert mine == sorted(mine)
    (tagged, *_, _) = log.topic(name).read(match="user3")
    assert isinstance(tagged, TypedRecord)
    assert tagged.tag == "user3"


@contextmanager
def at_first_word(logger: str, act: Callable[[], object]) -> Iterator[list[str]]:
    """Do something as soon as somebody says that he waits."""
    said: list[str] = []

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            if len(said) == 1:
                act()

    handler = Hears()
    logging.getLogger(logger).addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger(logger).removeHandler(handler)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reading, membership, worker, async_worker):
        monkeypatch.setattr(module, "LOOK_S", LOOK_S)


def writes(log: AnyLog, name: str, **config: object) -> Callable[[], object]:
    """Return what makes a topic with one record, on the loop of a face that has one."""

    def act() -> object:
        log.create(name, **config)
        return log.append(name, [{"data": 7}])

    async def awaited() -> None:
        await log._inner.create(name, **config)
        await log._inner.append(name, [{"data": 7}])

    return (lambda: asyncio.ensure_future(awaited())) if hasattr(log, "_inner") else act


def test_a_tail_waits_for_its_topic_on_each_face(log: AnyLog) -> None:
    name = fresh()
    with at_first_word("topics.reader", writes(log, name)) as said:
        items = log.topic(name).tail()
        assert next(item.data for item in items if isinstance(item, Record)) == 7
    assert said == [NOT_YET.format(name)]


def test_a_consumer_waits_for_its_topics_on_each_face(log: AnyLog) -> None:
    here, name = fresh(), fresh()
    log.create(here)
    consumer = log.consumer(fresh("g"), [here, name]) if not hasattr(log, "_inner") else None
    with at_first_word("topics.consumer", writes(log, name)) as said:
        if consumer is not None:
            with consumer:
                assert next(consumer).data == 7
        else:
            assert log._run(_first_of_consumer, log._inner, [here, name]) == 7
    assert said == [NOT_YET.format(name)]


async def _first_of_consumer(log: AnyLog, names: list[str]) -> object:
    async with log.consumer(fresh("g"), names) as consumer:
        return (await anext(consumer)).data


def test_a_worker_waits_for_its_queue_on_each_face(log: AnyLog) -> None:
    name = fresh("q")
    done: list[object] = []
    with at_first_word("topics.worker", writes(log, name, type="queue")) as said:
        if hasattr(log, "_inner"):
            log._run(_first_of_worker, log._inner, name, done)
        else:

            def work(job: TypedJob[int]) -> None:
                done.append(job.data)
                working.stop()

            working = log.queue(name).worker(idle_ms=10)(work)
            working.run()
    assert done == [7]
    assert said == [NOT_YET.format(name)]


async def _first_of_worker(log: AnyLog, name: str, done: list[object]) -> None:
    async def work(job: TypedJob[int]) -> None:
        done.append(job.data)
        working.stop()

    working = log.queue(name).worker(idle_ms=10)(work)
    await working.run()


def test_a_worker_that_waits_can_be_stopped(log: AnyLog) -> None:
    if hasattr(log, "_inner"):
        log._run(_stopped_worker, log._inner)
        return
    work = log.queue(fresh("q")).worker()(print)
    with at_first_word("topics.worker", work.stop) as said:
        work.run()
    assert len(said) == 1


async def _stopped_worker(log: AnyLog) -> None:
    work = log.queue(fresh("q")).worker()(print)
    with at_first_word("topics.worker", work.stop) as said:
        await work.run()
    assert len(said) == 1
