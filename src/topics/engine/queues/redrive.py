"""Bringing dead letters back to their queues, in the order of the dead-letter topic, each once.

    read the first letters of one queue → append them there, synced → delete them here → the next

Keeps: without `to`, a letter goes to no queue but one whose dead-letter topic this is: its meta
alone is not believed. What left the dead-letter topic is always its beginning. So the number of a
letter is at or below the last one that a queue took exactly when its copy is there, or safe in the
queue of another letter, and a redrive that a crash cut short can be asked for again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from topics.engine.diff import DiffRequest
from topics.engine.queues.dead_letters import META_ROOM_BYTES, REFUSALS
from topics.engine.request import Write, build_write
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import NotAQueue, RequestError, TopicExistsIncompatible, TopicsError
from topics.model.append import WriteOptions
from topics.model.dead_letters import DELIVERIES, FROM, ORIGINAL_META, SRC_SEQ
from topics.model.diff import Record
from topics.model.json_text import decode_object
from topics.model.queues import Redriven, Stopped

if TYPE_CHECKING:
    from topics.engine.engine import Engine

REDRIVE_MAX = 1_000
"""Letters of one call: a queue that syncs every write takes a while for them."""
RUN_MAX = 64
"""Letters that share a sync; a queue remembers so many writes of one producer by their seqs."""
CheckName = Callable[[str], None]


def redrive(
    engine: "Engine",
    topic: Topic | Partitioned,
    *,
    to: str | None,
    wanted: int,
    check_name: CheckName,
) -> Redriven:
    """Move up to `wanted` letters; stop at the first that its queue does not take.

    Those of a partitioned topic partition by partition.
    """
    if topic.config.type == "queue":
        raise TopicExistsIncompatible(f"{topic.name!r} is a queue itself: claim its jobs instead")
    wanted = min(wanted, REDRIVE_MAX)
    moved: Counter[str] = Counter()
    stopped: TopicsError | None = None
    parts = topic.partitions if isinstance(topic, Partitioned) else (topic,)
    for part in parts:
        stopped = _redrive_part(engine, part, moved, to=to, wanted=wanted, check_name=check_name)
        if stopped is not None:
            break
    if stopped is not None and not moved:
        raise stopped
    return Redriven(
        topic=topic.name,
        moved=moved.total(),
        queues=dict(moved),
        left=sum(part.live_records for part in parts),
        stopped=None if stopped is None else Stopped(code=stopped.code, message=str(stopped)),
    )


def _redrive_part(
    engine: "Engine",
    topic: Topic,
    moved: Counter[str],
    *,
    to: str | None,
    wanted: int,
    check_name: CheckName,
) -> TopicsError | None:
    """Move the letters of one topic until so many are `moved` in all; return what stopped it."""
    while (left := wanted - moved.total()) > 0:
        letters = _first_letters(engine, topic, limit=min(left, RUN_MAX))
        if not letters:
            break
        try:
            queue, run = _first_run(engine, topic, letters, to=to, check_name=check_name)
        except RequestError as error:
            return error
        count, stopped = _copy(engine, topic, queue, run)
        if count:
            engine.delete_records(topic, before_seq=run[count - 1].seq + 1)
            moved[queue.name] += count
        if stopped is not None:
            return stopped
    return None


def _first_letters(engine: "Engine", topic: Topic, *, limit: int) -> list[Record]:
    request = DiffRequest(limit=limit, include_tags=True, verify=engine.config.verify_reads)
    return engine.diff(topic, request).records


def _first_run(
    engine: "Engine",
    topic: Topic,
    letters: Sequence[Record],
    *,
    to: str | None,
    check_name: CheckName,
) -> tuple[Topic, list[Record]]:
    """Return the queue of the first letter, and the letters in a row that belong to it."""
    name = to or _origin(letters[0])
    check_name(name)
    queue = engine.topic(name)
    if queue.queue is None:
        raise NotAQueue(name)
    names = (topic.name, topic.name if topic.parent is None else topic.parent.name)
    if to is None and queue.config.dead_letter not in names:
        raise TopicExistsIncompatible(
            f"record {letters[0].seq} of {topic.name!r} says that it comes from {name!r}, but that "
            f"queue does not have {names[1]!r} as its dead_letter: name a queue in `to`"
        )
    run: list[Record] = []
    for letter in letters:
        if to is None and (letter.meta or {}).get(FROM) != name:
            break
        run.append(letter)
    return queue, run


def _origin(letter: Record) -> str:
    name = (letter.meta or {}).get(FROM)
    if not isinstance(name, str):
        raise TopicExistsIncompatible(
            f"record {letter.seq} does not say which queue it comes from: name one in `to`"
        )
    return name


def _copy(
    engine: "Engine", topic: Topic, queue: Topic, run: Sequence[Record]
) -> tuple[int, TopicsError | None]:
    """Append letters to their queue; return how many are safe there, and why not all."""
    tickets = []
    stopped: TopicsError | None = None
    shard = engine.shard_of(queue)
    for letter in run:
        try:
            tickets.append(engine.submit_append(queue, _build(engine, topic, letter))[1])
        except REFUSALS as error:
            stopped = error
            break
    for ticket in tickets:
        shard.commit.commit(ticket)
    if tickets and queue.config.persists and not queue.config.durable:
        shard.commit.sync_once()  # the letters are about to go for good
        shard.commit.log.check_writable()
    return len(tickets), stopped


def _build(engine: "Engine", topic: Topic, letter: Record) -> Write:
    fields: dict[str, object] = {"data": letter.data_json}
    meta = restore_meta(letter)
    fields |= {"meta": meta} if meta is not None else {}
    fields |= {"node": letter.node} if letter.node is not None else {}
    fields |= {"tag": letter.tag} if letter.tag is not None else {}
    config = engine.config
    limits = msgspec.structs.replace(
        config,
        max_meta_bytes=config.max_meta_bytes + META_ROOM_BYTES,
        max_record_bytes=config.max_record_bytes + META_ROOM_BYTES,
    )
    write = build_write([fields], limits, dead_letters=True)
    # Not a client's own: no client may name a producer that begins with $.
    options = WriteOptions(producer_id=f"$redrive:{topic.id}", producer_seq=letter.seq)
    return msgspec.structs.replace(write, options=options)


def restore_meta(letter: Record) -> object:
    """Return the meta that the job had before it died, byte for byte; None where it had none."""
    kept = decode_object(letter.meta_json)
    if ORIGINAL_META in kept:
        return kept[ORIGINAL_META]
    for name in (FROM, DELIVERIES, SRC_SEQ):
        kept.pop(name, None)
    return kept or None
