"""Which partitioned topics there are: made, grown, changed and deleted here.

Owns the map from names to them. Everything that changes it holds the lock of the registry. The
word about the parent is durable before the one about a partition: a start that finds the first
without the second does what is left (`complete`).
Reference: docs/reference/partitions.md.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from topics.clock import Clock
from topics.engine.topics.names import Names
from topics.engine.topics.partitioned import (
    Partitioned,
    check_partition_names,
    parse_partition_name,
    partition_name,
)
from topics.engine.topics.topic import Topic
from topics.errors import RequestError, TopicExistsIncompatible, TopicNotEmpty, TopicsError
from topics.limits import MAX_PARTITIONS, check_topic_name
from topics.model.topic_config import TopicConfig
from topics.model.whole_numbers import with_whole_numbers
from topics.storage.wal import frame

if TYPE_CHECKING:
    from topics.engine.topics.registry import Registry

FIELD = "partitions"


class Parents:
    """The partitioned topics of one registry."""

    def __init__(self, registry: "Registry", *, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._by_name: dict[str, Partitioned] = {}
        self.find: Callable[[str], Partitioned | None] = self._by_name.get
        """As in the registry, the map's own look-up."""
        self.names = Names(())

    # Looking: takes no lock.

    def all(self) -> list[Partitioned]:
        found = map(self.find, self.names.all())
        return [parent for parent in found if parent is not None]

    def check_free(self, name: str) -> None:
        """Refuse a name that belongs to the partitions of another topic."""
        parsed = parse_partition_name(name)
        if parsed is not None and parsed[0] in self._by_name:
            raise TopicExistsIncompatible(
                f"{name!r} is kept for a partition of {parsed[0]!r}: let that one grow, or choose "
                "another name"
            )

    # Changing.

    def create(self, name: str, config: TopicConfig, partitions: int) -> None:
        check_partition_names(name, partitions)
        self._check_room(name, config, range(partitions))
        parent = Partitioned(
            self._registry.take_id(),
            name,
            config=config,
            created_ts=self._clock.now_ms(),
            counts=(partitions,),
        )
        body = frame.TopicCreate(name, config.as_dict(), parent.created_ts, partitions)
        self._commit(parent, body)
        try:
            self._complete(parent, {})
        finally:
            # Seen when it can be written to; where that failed, too: the log has it.
            self._add(parent)

    def change(
        self, parent: Partitioned, changes: Mapping[str, Any], partitions: int | None
    ) -> None:
        """Change the config of all partitions, and add some; do what an earlier try left undone."""
        parent.config.check_same_type(changes, topic=parent.name)
        config = parent.config.merged(changes)
        wanted = parent.counts[-1] if partitions is None else partitions
        if wanted < parent.counts[-1]:
            raise TopicExistsIncompatible(
                f"topic {parent.name!r} has {parent.counts[-1]} partitions, which may grow but not "
                f"shrink to {wanted}"
            )
        check_partition_names(parent.name, wanted)
        self._check_room(parent.name, config, range(len(parent.partitions), wanted))
        if config != parent.config or wanted > parent.counts[-1]:
            self._commit(parent, frame.ConfigUpdate(config.as_dict(), wanted))
            parent.config = config
            if wanted > parent.counts[-1]:
                parent.counts = (*parent.counts, wanted)
        self._complete(parent, dict(enumerate(parent.partitions)))

    def remove(self, parent: Partitioned, *, if_empty: bool) -> list[Topic]:
        """End all partitions; none where one of them may not."""
        closed: list[Topic] = []
        try:
            for topic in parent.partitions:
                with self._registry.shard_of(topic).lock:
                    self._check_removable(parent, topic, if_empty=if_empty)
                    self._registry.note_end(topic)
                    topic.deleted = True
                closed.append(topic)
            self._commit(parent, frame.TopicDelete())
        except TopicsError:
            for topic in closed:
                topic.deleted = False
            raise
        del self._by_name[parent.name]
        self.names.remove(parent.name)
        tickets = []
        for topic in parent.partitions:
            shard = self._registry.shard_of(topic)
            with shard.lock:
                ticket = self._registry.submit(shard, topic, frame.TopicDelete())
            tickets.append((shard, ticket))
            self._registry.forget(topic)
        for shard, ticket in tickets:
            shard.commit.commit(ticket)
        return list(parent.partitions)

    def complete(self, found: Mapping[Partitioned, dict[int, Topic]]) -> None:
        """Take in what a start found, and do what a crash left undone."""
        with self._registry.lock:
            for parent, partitions in found.items():
                self._add(parent)
                self._complete(parent, partitions)

    def _add(self, parent: Partitioned) -> None:
        self._by_name[parent.name] = parent
        self.names.add(parent.name)

    def _complete(self, parent: Partitioned, known: dict[int, Topic]) -> None:
        registry = self._registry
        stale = [topic for topic in known.values() if topic.config != parent.config]
        registry.update_all(stale, parent.config)
        made: list[Topic] = []
        for number in range(parent.counts[-1]):
            if number not in known:
                name = partition_name(parent.name, number)
                topic = registry.make(name, parent.config, parent=parent, partition=number)
                made.append(topic)
        # All of them before the first wait: one sync a shard, however many there are.
        tickets = [(registry.shard_of(topic), registry.submit_create(topic)) for topic in made]
        for shard, ticket in tickets:
            shard.commit.commit(ticket)
        for topic in made:
            known[topic.partition] = topic
            registry.adopt(topic)
        parent.partitions = tuple(known[number] for number in range(parent.counts[-1]))

    def _check_room(self, name: str, config: TopicConfig, numbers: Iterable[int]) -> None:
        """Refuse partitions whose names are taken, or that are too many."""
        registry = self._registry
        names = [partition_name(name, number) for number in numbers]
        _check_dead_letter(name, config)
        for partition in names:
            if registry.find(partition) is not None or self.find(partition) is not None:
                raise TopicExistsIncompatible(
                    f"topic {partition!r} exists already, so that {name!r} cannot have a partition "
                    "of this name"
                )
        registry.check_room(len(names))
        registry.check_shards()

    def _check_removable(self, parent: Partitioned, topic: Topic, *, if_empty: bool) -> None:
        try:
            self._registry.check_removable(topic, if_empty=if_empty)
        except TopicNotEmpty:
            raise TopicNotEmpty(parent.name) from None

    def _commit(self, parent: Partitioned, body: frame.Body) -> None:
        """Make a word about the parent durable."""
        shard = self._registry.shard_of(parent)
        with shard.lock:
            shard.commit.admit(0)
            ticket = self._registry.submit(shard, parent, body)
        shard.commit.commit(ticket)


def take_partitions(changes: Mapping[str, Any]) -> tuple[Mapping[str, Any], int | None]:
    """Take `partitions` out of the changes: it is no part of the config of a topic."""
    if FIELD not in changes:
        return changes, None
    partitions = with_whole_numbers(changes[FIELD])
    if not isinstance(partitions, int) or isinstance(partitions, bool):
        raise RequestError("partitions must be a number")
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise RequestError(f"partitions must be 1 to {MAX_PARTITIONS}")
    return {name: value for name, value in changes.items() if name != FIELD}, partitions


def check_not_partition(
    topic: Topic, changes: Mapping[str, Any] | None, partitions: int | None
) -> None:
    """Refuse to change or, without changes, to end one partition; and partitions for a plain topic.

    An empty change of a partition is none.
    """
    if topic.parent is not None and (changes is None or changes or partitions is not None):
        raise TopicExistsIncompatible(
            f"topic {topic.name!r} is a partition: change or delete {topic.parent.name!r}"
        )
    if partitions is not None:
        raise TopicExistsIncompatible(
            f"topic {topic.name!r} has no partitions and cannot get any: create another one"
        )


def _check_dead_letter(name: str, config: TopicConfig) -> None:
    dead_letter = config.dead_letter
    if dead_letter is None:
        return
    check_topic_name(dead_letter)
    parsed = parse_partition_name(dead_letter)
    if name in (dead_letter, parsed and parsed[0]):
        raise RequestError("topic config: dead_letter may not be the topic itself")
