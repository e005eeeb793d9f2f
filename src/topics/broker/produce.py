"""`PRODUCE`: one record into the partition of its key.

Keeps: OK is said only when the write is as safe as the topic's class promises, whatever `acks` is;
writes of one connection reach the log in their order, those that had to wait for room too.
"""

import asyncio

from topics.broker.arguments import Produce, parse_produce
from topics.broker.desk import WRITE, Caller, Desk, Work, authorize
from topics.engine.request import Write, build_write
from topics.engine.topics.topic import Topic
from topics.errors import Throttled, TopicNotFound
from topics.kernel import fnv1a_32
from topics.model.append import Appended
from topics.storage.wal.group_commit import Commitment

PATIENCE_S = 2.0
RETRY_S = 0.005


def produce(desk: Desk, caller: Caller, args: str) -> Work:
    wanted = parse_produce(args)
    authorize(caller, WRITE, wanted.topic)
    # A stored record's key is its tag.
    write = build_write([{"data": wanted.value, "tag": wanted.key}], desk.config)
    try:
        number, topic = _place(desk, wanted)
    except TopicNotFound:
        return _create_and_submit(desk, wanted, write)
    try:
        return _submit(desk, topic, number, write)
    except Throttled:
        return _submit_when_there_is_room(desk, topic, number, write)


def _place(desk: Desk, wanted: Produce) -> tuple[int, Topic]:
    """Return the partition of a key."""
    partitions = desk.partitions(wanted.topic)
    number = fnv1a_32(wanted.key.encode()) % len(partitions)
    return number, partitions[number]


def _submit(desk: Desk, topic: Topic, number: int, write: Write) -> asyncio.Future[str]:
    """Queue the write now, so that those that come behind it share its sync."""
    waiter = desk.log.waiter_of(topic)
    _, ticket = desk.engine.submit_append(topic, write, waiter=waiter)
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell(done: Commitment) -> None:
        if told.done():  # whoever asked is gone
            return
        if done.error is not None:
            told.set_exception(done.error)
            return
        appended = done.answer
        assert isinstance(appended, Appended)
        told.set_result(f"partition={number} offset={appended.first_seq - 1}")

    waiter.tell(ticket, tell)
    return told


async def _create_and_submit(desk: Desk, wanted: Produce, write: Write) -> str:
    def make() -> None:
        # Looked at again on the thread that makes topics: another may have made it, of other shape.
        try:
            partitions = desk.engine.partitions_of(wanted.topic)
        except TopicNotFound:
            desk.log.log.create(wanted.topic, partitions=desk.config.broker_partitions)
        else:
            if not partitions:
                desk.log.log.create(wanted.topic)  # does what an earlier try left undone

    await desk.log.run(make)
    number, topic = _place(desk, wanted)
    try:
        return await _submit(desk, topic, number, write)
    except Throttled:
        return await _submit_when_there_is_room(desk, topic, number, write)


async def _submit_when_there_is_room(desk: Desk, topic: Topic, number: int, write: Write) -> str:
    """Try until the log takes it: a full one is most often full for milliseconds."""
    size = len(write.batch.frames)
    until_s = desk.clock.monotonic_s() + PATIENCE_S
    desk.waiting_bytes += size
    try:
        while desk.waiting_bytes <= desk.config.wal_queue_bytes:
            await asyncio.sleep(RETRY_S)
            try:
                told = _submit(desk, topic, number, write)
            except Throttled:
                if desk.clock.monotonic_s() > until_s:
                    raise
            else:
                return await told
    finally:
        desk.waiting_bytes -= size
    raise Throttled(int(PATIENCE_S * 1000))
