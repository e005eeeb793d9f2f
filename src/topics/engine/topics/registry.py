"""Which topics there are: created, changed and deleted here, each step durable before it is told.

Owns the map from names to topics and the next topic id; those with partitions are next door, in
`parents`. Its lock is held during the sync of a
control frame; writes and reads of records never take it.
Keeps: an id is never given twice; a name has one living topic.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from topics.clock import Clock
from topics.config import ServerConfig
from topics.engine.append import close_reservation
from topics.engine.request import Write
from topics.engine.shard import Shard
from topics.engine.snapshot import volatile_holes
from topics.engine.stores import Stores
from topics.engine.topics.budget import Budget
from topics.engine.topics.floors import Hole
from topics.engine.topics.former import FormerLives
from topics.engine.topics.names import Names
from topics.engine.topics.parents import Parents, check_not_partition, take_partitions
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import (
    LimitReached,
    RequestError,
    TopicExistsIncompatible,
    TopicNotEmpty,
    TopicNotFound,
    TopicPartitioned,
)
from topics.kernel import FLAG_BATCH_OPEN
from topics.limits import check_topic_name
from topics.model.topic_config import TopicConfig
from topics.storage.segments.tag_runs import TagRuns
from topics.storage.wal import frame
from topics.storage.wal.group_commit import Ticket

TOPICS_A_BREATH = 500
BREATH_S = 0.000_1


class Registry:
    """The topics of one engine."""

    def __init__(
        self,
        topics: Mapping[int, Topic],
        *,
        next_topic_id: int,
        former: FormerLives,
        shards: Sequence[Shard],
        stores: Stores,
        config: ServerConfig,
        clock: Clock,
    ) -> None:
        self.lock = threading.RLock()
        self.next_topic_id = next_topic_id
        self._former = former
        self._by_name = {topic.name: topic for topic in topics.values()}
        for topic in topics.values():
            self._tell_former(topic)
        self.find: Callable[[str], Topic | None] = self._by_name.get
        """The map's own look-up, because every write asks; `_by_name` is never another one."""
        self.names = Names(self._by_name)
        self._shards = shards
        self._stores = stores
        self._config = config
        self._clock = clock
        self.parents = Parents(self, clock=clock)
        self.budget = Budget(self.total_bytes, config.max_total_bytes, clock)
        self.on_created: Callable[[Topic], None] = _ignore
        """Told of a new topic, with the lock held: it may only take note."""

    # Looking.

    def get(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            parent = self.parents.find(name)
            if parent is not None:
                raise TopicPartitioned(name, parent.partition_names)
            raise TopicNotFound(name)
        return topic

    def partitions_of(self, name: str) -> tuple[Topic, ...]:
        """Return the partitions of a topic in order; a plain topic is its own only one."""
        parent = self.parents.find(name)
        return (self.get(name),) if parent is None else parent.partitions

    def all(self) -> list[Topic]:
        """Return the topics by name; takes no lock, which a create holds while it syncs."""
        found = map(self.find, self.names.all())
        return [topic for topic in found if topic is not None]

    def starting(self, prefix: str, limit: int) -> list[Topic]:
        """Return the first topics by name that begin so, at most `limit` of them."""
        found = map(self.find, self.names.starting(prefix, limit))
        return [topic for topic in found if topic is not None]

    def names_starting(self, prefix: str, limit: int, *, after: str) -> list[str]:
        """Return the first names that begin so and come after one, those of parents among them."""
        of_topics = self.names.starting(prefix, limit, after=after)
        of_parents = self.parents.names.starting(prefix, limit, after=after)
        return sorted(of_topics + of_parents)[:limit]

    def __len__(self) -> int:
        return len(self._by_name)

    def total_bytes(self) -> int:
        """Return what all topics hold or are about to; takes no lock."""
        return sum(t.live_bytes + t.inflight_bytes for t in list(self._by_name.values()))

    def each(self) -> Iterator[tuple[Shard, Topic]]:
        """Yield the topics, the oldest first: to sort very many by name takes long.

        Whoever waits for the interpreter gets it now and then, and not only after its 5 ms.
        """
        for number, topic in enumerate(list(self._by_name.values()), 1):
            if number % TOPICS_A_BREATH == 0:
                self._clock.sleep(BREATH_S)
            yield self.shard_of(topic), topic

    def shard_of(self, topic: Topic | Partitioned) -> Shard:
        return self._shards[topic.id % len(self._shards)]

    def expire(self, topic: Topic) -> None:
        """Apply the TTL; the shard's lock is held."""
        if topic.expire(self._clock.now_ms()):
            self.shard_of(topic).floors_due.add(topic)

    # Changing.

    def create(self, name: str, changes: Mapping[str, Any]) -> bool:
        """Create a topic or change the config of an existing one; tell whether it was created.

        `partitions` among the changes makes a partitioned topic, or lets one grow.
        """
        check_topic_name(name)
        changes, partitions = take_partitions(changes)
        with self.lock:
            existing = self._by_name.get(name)
            if existing is not None:
                check_not_partition(existing, changes, partitions)
                self._update(existing, changes)
                return False
            parent = self.parents.find(name)
            if parent is not None:
                self.parents.change(parent, changes, partitions)
                return False
            self.parents.check_free(name)
            config = TopicConfig.from_changes(changes)
            check_dead_letter(name, config)
            if partitions is not None:
                self.parents.create(name, config, partitions)
                return True
            self.check_room(1)
            self._create(name, config)
            return True

    def check_room(self, topics: int) -> None:
        """Refuse more topics than there may be."""
        limit = self._config.max_topics
        if limit and len(self._by_name) + topics > limit:
            raise LimitReached("max_topics", limit)

    def check_shards(self) -> None:
        """Refuse what goes to all shards while one of them takes no writes."""
        for shard in self._shards:
            with shard.lock:
                shard.commit.admit(0)

    def for_write(self, name: str, write: Write) -> tuple[Topic, bool]:
        """Return the topic a write goes to, and whether the write created it."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic, False
        check_topic_name(name)
        if not write.options.create:
            raise TopicNotFound(name)
        if "partitions" in write.config:
            raise RequestError("a write makes no partitioned topic: create it before, with PUT")
        with self.lock:
            created = name not in self._by_name and self.parents.find(name) is None
            if created:
                self.create(name, write.config)
            return self.get(name), created

    def check_free(self, name: str, config: TopicConfig) -> None:
        """Refuse a topic that cannot begin under this name."""
        if name in self._by_name or self.parents.find(name) is not None:
            raise TopicExistsIncompatible(f"topic {name!r} is there already", reason="exists")
        self.parents.check_free(name)
        check_dead_letter(name, config)
        self.check_room(1)

    def reserve_id(self) -> int:
        """Give an id away, durably, to a topic that may begin later or never."""
        with self.lock:
            shard = self._shards[self.next_topic_id % len(self._shards)]
            with shard.lock:
                shard.commit.admit(0)
                topic_id = self.take_id()
                body = frame.TopicCreate("", {}, self._clock.now_ms())
                encoded = frame.encode_control(body, topic_id=topic_id, ts=body.created_ts)
                ticket = shard.submit_control(encoded, needs_sync=True)
            shard.commit.commit(ticket)
            return topic_id

    def takes_writes(self, topic_id: int) -> bool:
        """Tell whether the shard of a topic to be is in service: what failed there left nothing."""
        return self._shards[topic_id % len(self._shards)].commit.log.failed is None

    def attach(
        self, topic_id: int, name: str, *, config: TopicConfig, build: Callable[[], Topic]
    ) -> Topic:
        """Let a topic begin with the segments it has, all of them synced and in place.

        `build` puts them there once nothing can refuse the topic any more.
        """
        with self.lock:
            self.check_free(name, config)
            shard = self._shards[topic_id % len(self._shards)]
            with shard.lock:
                shard.commit.admit(0)
            topic = build()
            create = frame.TopicCreate(name, topic.config.as_dict(), topic.created_ts)
            mark = frame.CheckpointMark({topic.id: topic.absorbed_seq})
            with shard.lock:
                ticket = shard.submit_batch(
                    [
                        frame.encode_control(create, topic_id=topic.id, flags=FLAG_BATCH_OPEN),
                        frame.encode_control(mark),
                    ]
                )
            shard.commit.commit(ticket)
            with shard.lock:
                self.expire(topic)
                if topic.enforce_caps():
                    shard.floors_due.add(topic)
            self.adopt(topic)
            return topic

    def remove(self, name: str, *, if_empty: bool) -> list[Topic]:
        """End a topic, durably, or all partitions of one; their files are still there.

        Return what ended: nothing where there was no such topic.
        """
        check_topic_name(name)
        with self.lock:
            parent = self.parents.find(name)
            if parent is not None:
                return self.parents.remove(parent, if_empty=if_empty)
            topic = self._by_name.get(name)
            if topic is None:
                return []
            check_not_partition(topic, None, None)
            shard = self.shard_of(topic)
            with shard.lock:
                self.check_removable(topic, if_empty=if_empty)
                self.note_end(topic)
                ticket = self.submit(
                    shard, topic, frame.TopicDelete(), abort=lambda: _revive(topic)
                )
                topic.deleted = True
            shard.commit.commit(ticket)
            self.forget(topic)
            return [topic]

    def _create(self, name: str, config: TopicConfig) -> None:
        topic = self.make(name, config)
        shard = self.shard_of(topic)
        with shard.lock:
            shard.commit.admit(0)
        shard.commit.commit(self.submit_create(topic))
        self.adopt(topic)

    def _update(self, topic: Topic, changes: Mapping[str, Any]) -> None:
        topic.config.check_same_type(changes, topic=topic.name)
        config = topic.config.merged(changes)
        check_dead_letter(topic.name, config)
        if config != topic.config:
            with self.shard_of(topic).lock:
                self.shard_of(topic).commit.admit(0)
            self.update_all([topic], config)

    # The steps, each for one topic or for all partitions of one. The lock is held.

    def take_id(self) -> int:
        self.next_topic_id += 1
        return self.next_topic_id - 1

    def make(
        self,
        name: str,
        config: TopicConfig,
        *,
        parent: Partitioned | None = None,
        partition: int = 0,
    ) -> Topic:
        """Make a topic that nobody knows yet."""
        topic_id = self.take_id()
        topic = Topic(
            topic_id,
            name,
            config=config,
            created_ts=self._clock.now_ms(),
            tags=TagRuns(self._stores.hot_disk, self._stores.maps, topic_id),
        )
        if parent is not None:
            topic.parent, topic.partition = parent, partition
        return topic

    def submit_create(self, topic: Topic) -> Ticket:
        shard = self.shard_of(topic)
        parent_id = 0 if topic.parent is None else topic.parent.id
        body = frame.TopicCreate(
            topic.name,
            topic.config.as_dict(),
            topic.created_ts,
            parent_id=parent_id,
            partition=topic.partition,
        )
        with shard.lock:
            return self.submit(shard, topic, body)

    def note_end(self, topic: Topic) -> None:
        """Note how far a life came, before it ends; the shard's lock is held."""
        self._former.note(topic.name, max(topic.head_seq, topic.next_seq - 1))

    def former_lives(self) -> FormerLives:
        """Return what is known of the topics that are gone; takes no lock."""
        seqs = self._former.seqs
        return FormerLives(seqs, rest=self._former.rest)

    def _tell_former(self, topic: Topic) -> None:
        seq = self._former.of(topic.name)
        if seq:
            topic.former_seq = seq

    def adopt(self, topic: Topic) -> None:
        """Make a topic known whose frame is durable."""
        self._tell_former(topic)
        self._by_name[topic.name] = topic
        self.names.add(topic.name)
        self.on_created(topic)

    def forget(self, topic: Topic) -> None:
        """Let go of a topic whose end is durable; whoever watches it hears so."""
        del self._by_name[topic.name]
        self.names.remove(topic.name)
        if topic.watchers:
            shard = self.shard_of(topic)
            with shard.lock:
                shard.on_published(topic)

    def check_removable(self, topic: Topic, *, if_empty: bool) -> None:
        """Refuse to end a topic that holds something; the shard's lock is held."""
        self.expire(topic)
        if if_empty and (topic.live_records or topic.inflight_records):
            raise TopicNotEmpty(topic.name)
        self.shard_of(topic).commit.admit(0)

    def update_all(self, topics: Iterable[Topic], config: TopicConfig) -> None:
        """Give topics a config, with one sync a shard."""
        tickets = [(topic, self._submit_config(topic, config)) for topic in topics]
        for topic, ticket in tickets:
            self.shard_of(topic).commit.commit(ticket)
        for topic, _ in tickets:
            shard = self.shard_of(topic)
            with shard.lock:
                self.expire(topic)
                if topic.enforce_caps():
                    shard.floors_due.add(topic)

    def _submit_config(self, topic: Topic, config: TopicConfig) -> Ticket:
        shard = self.shard_of(topic)
        with shard.lock:
            finished = shard.commit.flush()
            if config.persists and not topic.config.persists:
                self._submit_volatile_holes(shard, topic)
            if config.durability == "fsync":
                close_reservation(shard, topic)
            before = topic.config

            def abort() -> None:
                topic.config = before

            body = frame.ConfigUpdate(config.as_dict())
            ticket = self.submit(shard, topic, body, abort=abort)
            # Now, not after the sync: what is written behind the frame must follow it.
            topic.config = config
        shard.commit.wake(finished)
        return ticket

    def submit(
        self,
        shard: Shard,
        topic: Topic | Partitioned,
        body: frame.Body,
        *,
        abort: Callable[[], None] | None = None,
    ) -> Ticket:
        """Queue a control frame that must be durable before anyone hears of it."""
        shard.submit_floors()
        encoded = frame.encode_control(body, topic_id=topic.id, ts=self._clock.now_ms())
        return shard.submit_control(encoded, needs_sync=True, abort=abort)

    def _submit_volatile_holes(self, shard: Shard, topic: Topic) -> None:
        """Say on the log which seqs a restart will not find; the living engine still has them."""
        holes = volatile_holes(topic, hot_disk=self._stores.hot_disk)
        told_seq = max((r.last_seq for r in [*topic.runs, *topic.holes, *holes]), default=0)
        if told_seq < topic.head_seq:
            # Nothing is left of these, but they were handed out: the head must not go back.
            holes.append(Hole(told_seq + 1, topic.head_seq, "deleted"))
        for hole in holes:
            shard.submit_control(frame.encode_control(frame.Hole(*hole), topic_id=topic.id))


def _ignore(topic: Topic) -> None:
    """Take no note."""


def _revive(topic: Topic) -> None:
    topic.deleted = False


def check_dead_letter(name: str, config: TopicConfig) -> None:
    if config.dead_letter is not None:
        check_topic_name(config.dead_letter)
        if config.dead_letter == name:
            raise RequestError("topic config: dead_letter may not be the topic itself")
