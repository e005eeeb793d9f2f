"""One consumer group in memory: its membership, its progress, and what nobody writes down.

Everything here is guarded by the lock of the first shard, whose log has the groups' frames. What is
here may be ahead of the log: `Step` says when an answer may tell of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from topics.engine.groups.assign import Partition
from topics.engine.groups.membership import Membership
from topics.engine.topics.topic import Topic


class Place(NamedTuple):
    """A position in one life of a partition."""

    topic_id: int
    seq: int


class Session:
    """What the server knows of a living member; gone with the process, then begun anew."""

    __slots__ = ("buried", "ends_s", "reading", "turn")

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s
        self.reading: dict[Partition, Place] = {}
        """How far it was given records; what is not here starts at what is committed."""
        self.buried: dict[Partition, int] = {}
        """Positions of an earlier life whose end was told: who names them again did not hear it."""
        self.turn = 0
        """Which of its partitions is read first next time."""


class Group:
    """A group of one engine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.membership = Membership()
        self._owned: dict[str, list[Partition]] = {}
        self._owned_since: dict[Partition, int] = {}
        """The generation that brought each partition to its owner, or a later one."""
        self.committed: dict[Partition, Place] = {}
        self.sessions: dict[str, Session] = {}
        self.topics: set[str] = set()
        """Every topic that it has to do with."""
        self.seen: Mapping[str, tuple[Topic, ...]] = {}
        """The partitions as they were at the last look, by topic."""
        self.listeners: dict[Callable[[], None], None] = {}
        """Told of a new generation, with the lock held: they may only take note."""

    @property
    def generation(self) -> int:
        return self.membership.generation

    def session(self, member: str, now_s: float) -> Session:
        """Return the session of a member; one that is not known here begins now."""
        session = self.sessions.get(member)
        if session is None:
            session = self.sessions[member] = Session(0.0)
            self.renew(member, now_s)
        return session

    def renew(self, member: str, now_s: float) -> None:
        ends_s = now_s + self.membership.members[member].session_ms / 1000
        self.session(member, now_s).ends_s = ends_s

    def expired(self, now_s: float) -> list[str]:
        """Return the members that were silent for too long."""
        return [m for m in self.membership.members if self.session(m, now_s).ends_s <= now_s]

    def change(self, membership: Membership) -> None:
        """Take a new membership; who lost a partition forgets where it was in it."""
        before, since = self.membership.owners, self._owned_since
        self._owned_since = {
            partition: since.get(partition, membership.generation)
            if before.get(partition) == owner
            else membership.generation
            for partition, owner in membership.owners.items()
        }
        self.membership = membership
        self._owned = {}
        for partition in sorted(membership.owners):
            self._owned.setdefault(membership.owners[partition], []).append(partition)
        self.topics = {*membership.partitions, *(p.topic for p in self.committed)}
        for name in [name for name in self.sessions if name not in membership.members]:
            del self.sessions[name]
        for name, session in self.sessions.items():
            lost = [p for p in session.reading if membership.owners.get(p) != name]
            for partition in lost:
                del session.reading[partition]

    def owned_by(self, member: str) -> list[Partition]:
        """Return what a member has, in order."""
        return self._owned.get(member, [])

    def owned_since(self, partition: Partition) -> int:
        """Return a generation in which the owner of a partition had it, and ever since."""
        return self._owned_since.get(partition, self.generation)

    def kept_by(self, member: str) -> list[Partition]:
        """Return what a member has and may go on with."""
        return [p for p in self.owned_by(member) if self.membership.target.get(p) == member]

    def leaving(self, member: str) -> list[Partition]:
        """Return what a member has and is to give up."""
        return [p for p in self.owned_by(member) if self.membership.target.get(p) != member]

    def move(self, places: Mapping[Partition, Place]) -> None:
        """Take new positions."""
        self.committed.update(places)
        self.topics.update(partition.topic for partition in places)

    def notify(self) -> None:
        for listener in list(self.listeners):
            listener()

    def committed_seq(self, partition: Partition) -> int | None:
        """Return what is committed of a partition in its present life."""
        place = self.committed.get(partition)
        topic = self.topic_of(partition)
        return place.seq if place and topic and place.topic_id == topic.id else None

    def reading_place(self, partition: Partition, session: Session) -> Place | None:
        """Return where a member goes on; None: from the start of a partition never read."""
        return session.reading.get(partition) or self.committed.get(partition)

    def topic_of(self, partition: Partition) -> Topic | None:
        topics = self.seen.get(partition.topic, ())
        return topics[partition.number] if partition.number < len(topics) else None

    def positions(self, partitions: Iterable[Partition]) -> dict[str, dict[int, int]]:
        """Return what is committed as the wire has it, 0 where nothing is."""
        shown: dict[str, dict[int, int]] = {}
        for partition in partitions:
            seq = self.committed_seq(partition)
            shown.setdefault(partition.topic, {})[partition.number] = seq or 0
        return shown
