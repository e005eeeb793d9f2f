"""Carrying worn-out jobs to their dead-letter topics, each once, across shards and crashes.

Owns the order of the moves: the numbers of one queue reach a dead-letter topic rising, because the
topic takes a lower number for a repeat. So in each partition, where it has some: a copy goes where
the key of its job says.
Keeps: the copy is synced before the job is deleted (an `ephemeral` dead-letter topic keeps what its
class keeps); a copy is made once, however often its move begins; no two shard locks are held at
once.
"""

import threading
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from topics.config import ServerConfig
from topics.engine.partitions import find_holders
from topics.engine.queues.dead import DeadDone, submit_drop
from topics.engine.queues.read import read_records
from topics.engine.queues.removal import settle_floors
from topics.engine.queues.table import LeaseTable, Move
from topics.engine.request import Write, build_write
from topics.engine.shard import Shard
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.registry import Registry
from topics.engine.topics.topic import Topic
from topics.errors import (
    Exhausted,
    RecordTooLarge,
    RequestError,
    RetryLater,
    ShardReadOnly,
    StorageError,
    TopicNotFound,
)
from topics.limits import MAX_KEY_BYTES, MAX_META_KEYS
from topics.model.append import Appended, WriteOptions
from topics.model.dead_letters import DELIVERIES, FROM, ORIGINAL_META, SRC_SEQ
from topics.model.diff import Record
from topics.model.json_text import decode_object, decode_text, decode_value, has_utf8

MOVES_MAX = 256
"""Moves of one queue that share a sync."""
META_ROOM_BYTES = 1024
"""What a copy may be larger than a record may be: the three fields that say where it comes from."""
KEY = "$key"
REFUSALS = (RequestError, RetryLater, ShardReadOnly, Exhausted)
"""The dead-letter topic takes nothing now: the job stays aside until a later try."""


class DeadLetters:
    """The mover of one engine."""

    def __init__(
        self,
        registry: Registry,
        shards: Sequence[Shard],
        config: ServerConfig,
        *,
        append: Callable[[Topic, Write], Appended],
        append_partitioned: Callable[[Partitioned, Write], Appended],
    ) -> None:
        self._registry = registry
        self._shards = shards
        self._config = config
        self._limits = msgspec.structs.replace(
            config,
            max_meta_bytes=config.max_meta_bytes + META_ROOM_BYTES,
            max_record_bytes=config.max_record_bytes + META_ROOM_BYTES,
        )
        self._append = append
        self._append_partitioned = append_partitioned
        self._lock = threading.Lock()
        self.last_error: StorageError | None = None
        """What kept the jobs of a queue from being moved, at the last try."""

    @property
    def due(self) -> bool:
        """Whether any queue has jobs set aside; takes no lock."""
        return any(shard.moves_due for shard in self._shards)

    def move_all(self) -> int:
        """Move what can be moved now; return how many jobs left their queues.

        What cannot be read or written is tried again the next time, and kept in `last_error`.
        """
        moved = 0
        failure: StorageError | None = None
        with self._lock:
            for shard in self._shards:
                if shard.commit.log.failed is not None:
                    continue
                with shard.lock:
                    due = sorted(shard.moves_due, key=lambda topic: topic.id)
                for topic in due:
                    try:
                        moved += self._move_of(shard, topic)
                    except StorageError as error:
                        # One damaged job holds back its own queue, not the rest of the server.
                        failure = failure or error
            self.last_error = failure
        return moved

    def _move_of(self, shard: Shard, topic: Topic) -> int:
        table = topic.queue
        assert table is not None
        if table.unsynced_moves:
            shard.commit.sync_once()
        moved = 0
        while table.moves:
            done = self._move_some(shard, topic, table)
            moved += done
            if not done:
                break
        with shard.lock:
            if not table.moves and not table.unsynced_moves:
                shard.moves_due.discard(topic)
        return moved

    def _move_some(self, shard: Shard, topic: Topic, table: LeaseTable) -> int:
        numbers, copied = self._copy_some(shard, topic, table)
        if not numbers:
            return 0
        self._sync(copied)
        try:
            self._finish(shard, topic, table, numbers, moved=len(copied))
        except REFUSALS:
            return 0
        return len(numbers)

    def _copy_some(
        self, shard: Shard, topic: Topic, table: LeaseTable
    ) -> tuple[list[int], list[Topic]]:
        """Copy jobs in the order of their numbers; return those, and the topics that have them."""
        with shard.lock:
            moves = sorted(table.moves.items())[:MOVES_MAX]
        numbers: list[int] = []
        copied: list[Topic] = []
        for number, move in moves:
            try:
                found = self._copy(topic, number, move)
            except RecordTooLarge:
                if numbers:
                    break  # those before it are finished first; then it is met again
                self._drop(shard, topic, table, number, move)
                continue
            except REFUSALS:
                break
            except StorageError:
                if not numbers:
                    raise
                break  # those before it are finished first; then it is met again
            numbers.append(number)
            copied += found
        return numbers, copied

    def _drop(self, shard: Shard, topic: Topic, table: LeaseTable, number: int, move: Move) -> None:
        """Leave a job in its queue that the dead-letter topic can never take."""
        with shard.lock:
            ticket = submit_drop(shard, topic, table, number=number, move=move)
        shard.commit.commit(ticket)

    def _finish(
        self, shard: Shard, topic: Topic, table: LeaseTable, numbers: list[int], *, moved: int
    ) -> None:
        """Delete jobs whose copies are safe."""
        with shard.lock:
            if topic.deleted:
                raise TopicNotFound(topic.name)
            shard.commit.admit(0)
            finished = settle_floors(shard, topic)
            ticket = DeadDone(shard, topic, table, numbers=numbers, moved=moved)
            shard.commit.submit(ticket)
        shard.commit.wake(finished)
        shard.commit.commit(ticket)

    def _copy(self, topic: Topic, number: int, move: Move) -> list[Topic]:
        """Append the copy of a job; return the topic that has it, none where the job is gone."""
        options = WriteOptions()
        if move.logged:
            options = WriteOptions(producer_id=f"$dead_letter:{topic.id}", producer_seq=number)
        records = read_records(topic, [move.seq], verify=self._config.verify_reads)
        if move.seq not in records:
            return self._found_before(move, options)
        parent = self._registry.parents.find(move.dead_letter)
        write = self._build_copy(topic, records[move.seq], move, options, keyed=parent is not None)
        if parent is not None:
            placements = self._append_partitioned(parent, write).placements
            return [parent.partitions[placement.partition] for placement in placements]
        dead_letter, _ = self._registry.for_write(move.dead_letter, write)
        self._append(dead_letter, write)
        return [dead_letter]

    def _found_before(self, move: Move, options: WriteOptions) -> list[Topic]:
        """Find the copy of a job whose deletion outlived a crash, and the word of it did not."""
        if not options.repeatable:
            return []
        parent = self._registry.parents.find(move.dead_letter)
        if parent is not None:
            return find_holders(parent, options, shard_of=self._registry.shard_of)[:1]
        dead_letter = self._registry.find(move.dead_letter)
        if dead_letter is None:
            return []
        with self._registry.shard_of(dead_letter).lock:
            known = dead_letter.idempotency.find(options, now_ms=0, config=dead_letter.config)
        return [] if known is None else [dead_letter]

    def _build_copy(
        self,
        topic: Topic,
        record_json: bytes,
        move: Move,
        options: WriteOptions,
        *,
        keyed: bool,
    ) -> Write:
        record = decode_text(record_json, Record)
        meta = build_meta(record, move, queue=topic.name)
        fields: dict[str, object] = {"data": record.data_json, "meta": meta}
        key = find_key(record) if keyed else None
        if key is not None:
            meta.pop(KEY, None)  # the partition puts it back, in front
            fields["key"] = key
        fields |= {"node": record.node} if record.node is not None else {}
        fields |= {"tag": record.tag} if record.tag is not None else {}
        write = build_write([fields], self._limits, keyed=keyed, dead_letters=True)
        config = {"durability": topic.config.durability}
        return msgspec.structs.replace(write, options=options, config=config)

    def _sync(self, topics: list[Topic]) -> None:
        """Make copies durable that their own class does not: the jobs are about to go for good."""
        unsynced = [t for t in topics if t.config.persists and not t.config.durable]
        for shard in {self._registry.shard_of(topic) for topic in unsynced}:
            shard.commit.sync_once()
            shard.commit.log.check_writable()


def find_key(record: Record) -> Raw | None:
    """Return the key that a partition kept beside the tag, as it is spelled; else the tag is it."""
    kept = decode_object(record.meta_json).get(KEY)
    key = None if kept is None else decode_value(kept)
    if record.tag is None or not isinstance(key, str) or key == record.tag or not has_utf8(key):
        return None
    return kept if len(key.encode()) <= MAX_KEY_BYTES else None


def build_meta(record: Record, move: Move, *, queue: str) -> dict[str, object]:
    """Return the meta of a copy: the job's own, byte for byte, and where it comes from."""
    origin = {FROM: queue, DELIVERIES: move.deliveries, SRC_SEQ: move.seq}
    kept = decode_object(record.meta_json)
    for name in origin:
        kept.pop(name, None)  # of an earlier dead-letter topic
    if len(kept) + len(origin) > MAX_META_KEYS or not all(map(has_utf8, kept)):
        return {**origin, ORIGINAL_META: record.meta_json}
    return {**kept, **origin}
