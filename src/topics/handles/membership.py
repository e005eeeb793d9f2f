"""One member of a group, without I/O: what it owns, what it has read, done and committed.

`next_item` and its like are generators: they yield what to ask and are sent the answer, or the
error, of each. All faces drive the same ones. Keeps: what is committed was asked past by whoever
works on the items; a partition is given up only after what is done of it was committed.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from topics.clock import Clock
from topics.errors import (
    GenerationMismatch,
    GroupNotFound,
    RequestError,
    TopicNotFound,
    TopicsError,
)
from topics.handles.absent import LOOK_S, Absence, Pause
from topics.handles.payload import Payload
from topics.limits import DEFAULT_LIMIT
from topics.model.diff import Record, Tombstone
from topics.model.groups import (
    DEFAULT_SESSION_MS,
    Assigned,
    Assignor,
    Committed,
    Heartbeat,
    Joined,
    Polled,
    PolledBatch,
    Positions,
)
from topics.model.stream import GroupRecord, GroupTombstone

T = TypeVar("T")
R = TypeVar("R")
LOGGER = logging.getLogger("topics.consumer")
WAIT_MS = 5_000
COMMIT_TRIES = 5


class Ask(Struct, frozen=True):
    """One call about a group: a method of both faces, and what it is given besides the group."""

    word: str
    group: str
    fields: dict[str, Any]


Steps = Generator[Ask | Pause, Any, R]
"""A pause is answered with whether to stop."""


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """How a consumer works."""

    group: str
    member: str
    topics: tuple[str, ...]
    session_ms: int = DEFAULT_SESSION_MS
    assignor: Assignor = "sticky"
    limit: int = DEFAULT_LIMIT
    auto_commit: bool = True
    commit_ms: int = 1_000
    until_caught_up: bool = False


def names_of(topics: Sequence[str]) -> tuple[str, ...]:
    """Return names as they were given; one name alone is a sequence of letters, and refused."""
    if isinstance(topics, str):
        raise RequestError(f"topics must be a list of names: [{topics!r}]")
    return tuple(topics)


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int


class Entry(NamedTuple):
    """Something to hand out, and the position behind it; without an item only the position."""

    partition: Partition
    position: int
    item: Record | Tombstone | None


class Membership(Generic[T]):
    """Where one consumer stands."""

    def __init__(self, settings: ConsumerSettings, payload: Payload[T], clock: Clock) -> None:
        self.is_joined = False
        self.joins = 0
        self.generation = 0
        self.heartbeat_ms = settings.session_ms // 3
        self._settings = settings
        self._payload = payload
        self._clock = clock
        self._reading: dict[Partition, int] = {}
        """What we own, and how far it was read."""
        self._done: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._release: set[Partition] = set()
        self._waiting: deque[Entry] = deque()
        self._current: Entry | None = None
        self._heard: Heartbeat | None = None
        self._commit_at_s = 0.0

    @property
    def assigned(self) -> dict[str, list[int]]:
        """Topic → partitions that are ours now."""
        found: dict[str, list[int]] = {}
        for partition in sorted(self._reading):
            found.setdefault(partition.topic, []).append(partition.number)
        return found

    # For whoever says in the background that we live.

    def beat(self) -> Ask:
        return self._ask("heartbeat", generation=self.generation)

    def hear(self, outcome: Heartbeat | TopicsError, *, joins: int) -> None:
        """Take note of an answer; it counts when the next item is asked for."""
        if joins != self.joins:
            return  # it speaks of an earlier membership
        if isinstance(outcome, Heartbeat):
            self._heard = outcome
        elif isinstance(outcome, GenerationMismatch | GroupNotFound):
            self.is_joined = False

    # For whoever works.

    def next_item(self) -> Steps[GroupRecord[T] | GroupTombstone | None]:
        """Say that the item before is done, and return the next; None when there is no more."""
        self.finish_current()
        while True:
            if not (yield from self._catch_up()):
                return None  # stopped while it waited
            entry = self._pop()
            if entry is not None:
                return self._shown(entry)
            got_some = yield from self._poll()
            if self._settings.until_caught_up and self.is_joined and not got_some:
                yield from self.commit_done()
                return None

    def finish_current(self) -> None:
        if self._current is not None:
            self._note_done(self._current)
            self._current = None

    def commit(self) -> Steps[None]:
        """Commit everything that was handed out; raise if it is no longer ours to commit."""
        self.finish_current()
        joins = self.joins
        yield from self.commit_done()
        if not self.is_joined or self.joins != joins:
            raise GenerationMismatch(
                f"{self._settings.member} is no member of the group any more", self.generation
            )

    def commit_done(self) -> Steps[None]:
        """Commit what is done; what was lost to others meanwhile they will do again."""
        self._commit_at_s = self._clock.monotonic_s() + self._settings.commit_ms / 1000
        for _ in range(COMMIT_TRIES):
            due = {p: seq for p, seq in self._done.items() if self._committed.get(p) != seq}
            if not due or not self.is_joined:
                return
            outcome: Committed | TopicsError = yield self._ask(
                "commit", offsets=_positions(due.items()), generation=self.generation
            )
            if isinstance(outcome, Committed):
                self._committed.update(due)
                return
            yield from self._recover(outcome)

    def leave(self) -> Steps[None]:
        """Commit, if that goes by itself, and go."""
        if self.is_joined:
            if self._settings.auto_commit:
                yield from self.commit_done()
            self.is_joined = False
            yield self._ask("leave")

    # Inside.

    def _ask(self, word: str, **fields: Any) -> Ask:  # noqa: ANN401 - of any call
        settings = self._settings
        return Ask(word, settings.group, {"member": settings.member, **fields})

    def _catch_up(self) -> Steps[bool]:
        """Bring the membership up to now: join, take what was heard, give up, commit."""
        if not self.is_joined and not (yield from self._join()):
            return False
        heard, self._heard = self._heard, None
        if heard is not None:
            self._apply_beat(heard)
        while self._release:
            yield from self._give_up()
        if self._settings.auto_commit and self._clock.monotonic_s() >= self._commit_at_s:
            yield from self.commit_done()
        return True

    def _join(self) -> Steps[bool]:
        """Become a member; wait for topics that are not there yet, unless told to stop."""
        settings = self._settings
        absence = Absence(LOGGER)
        while True:
            outcome: Joined | TopicsError = yield self._ask(
                "join",
                topics=settings.topics,
                session_ms=settings.session_ms,
                assignor=settings.assignor,
            )
            if not isinstance(outcome, TopicsError):
                break
            if not isinstance(outcome, TopicNotFound) or settings.until_caught_up:
                raise outcome
            absence.say(outcome)
            if (yield Pause(LOOK_S)):
                return False
        self.joins += 1
        self.generation = 0
        self._heard = None
        self._own(outcome.generation, {}, {}, {})  # others may have had it meanwhile
        self._own(outcome.generation, outcome.assigned, {}, outcome.committed)
        self.heartbeat_ms = outcome.heartbeat_ms
        self.is_joined = True
        return True

    def _give_up(self) -> Steps[None]:
        """Commit what is done of what somebody else shall have, and hand it over."""
        released = self._release
        self._waiting = deque(e for e in self._waiting if e.partition not in released)
        yield from self.commit_done()
        if not self.is_joined:
            return
        outcome: Heartbeat | TopicsError = yield self._ask(
            "heartbeat", generation=self.generation, released=_numbers(released)
        )
        self._release = set()
        if isinstance(outcome, Heartbeat):
            for partition in released:
                self._forget(partition)
            self._apply_beat(outcome)
        else:
            self._lose(outcome)

    def _poll(self) -> Steps[bool]:
        """Read on; tell whether something came."""
        outcome: Polled | TopicsError = yield self._ask(
            "poll",
            generation=self.generation,
            limit=self._settings.limit,
            positions=_positions(self._reading.items()),
            wait_ms=self._wait_ms(),
        )
        if not isinstance(outcome, Polled):
            yield from self._recover(outcome)
            return True  # it is not known
        for batch in outcome.batches:
            self._take(batch)
        return bool(outcome.batches)

    def _wait_ms(self) -> int:
        if self._settings.until_caught_up:
            return 0
        if self._settings.auto_commit and self._done != self._committed:
            left_s = self._commit_at_s - self._clock.monotonic_s()
            return max(1, min(WAIT_MS, int(left_s * 1000)))
        return WAIT_MS

    def _recover(self, error: TopicsError) -> Steps[None]:
        """Learn the new generation; raise what has nothing to do with it."""
        if isinstance(error, GroupNotFound):
            self.is_joined = False
            return
        if not isinstance(error, GenerationMismatch):
            raise error
        outcome: Heartbeat | TopicsError = yield self.beat()
        if isinstance(outcome, Heartbeat):
            self._apply_beat(outcome)
        else:
            self._lose(outcome)

    def _lose(self, error: TopicsError) -> None:
        if not isinstance(error, GenerationMismatch | GroupNotFound):
            raise error
        self.is_joined = False

    def _apply_beat(self, beat: Heartbeat) -> None:
        if beat.generation >= self.generation:  # an older one was overtaken
            self._own(beat.generation, beat.assigned, beat.release, beat.committed)
            self.heartbeat_ms = beat.heartbeat_ms

    def _own(
        self, generation: int, assigned: Assigned, release: Assigned, committed: Positions
    ) -> None:
        self.generation = generation
        self._release = _partitions(release)
        owned = _partitions(assigned) | self._release
        for partition in set(self._reading) - owned:
            self._forget(partition)
        for partition in owned - set(self._reading):
            start = committed.get(partition.topic, {}).get(partition.number, 0)
            self._reading[partition] = self._done[partition] = self._committed[partition] = start

    def _forget(self, partition: Partition) -> None:
        for table in (self._reading, self._done, self._committed):
            table.pop(partition, None)
        self._waiting = deque(e for e in self._waiting if e.partition != partition)
        if self._current is not None and self._current.partition == partition:
            self._current = None

    def _take(self, batch: PolledBatch) -> None:
        partition = Partition(batch.topic, batch.partition)
        if partition not in self._reading:
            return
        lost, read = batch.tombstone, self._reading[partition]
        if batch.page.head_seq < read or (lost is not None and lost.reason == "recreated"):
            read = 0  # another life of the topic, or an older one
        if lost is not None:
            behind = 0 if lost.reason == "recreated" else lost.behind
            if behind > read or not read:
                self._waiting.append(Entry(partition, behind, lost))
        for record in batch.records:
            if record.seq > read:  # a server that was restarted begins at what is committed
                self._waiting.append(Entry(partition, record.seq, record))
        read = max(batch.next_from_seq, read)
        self._waiting.append(Entry(partition, read, None))  # what was skipped
        self._reading[partition] = read

    def _pop(self) -> Entry | None:
        while self._waiting:
            entry = self._waiting.popleft()
            if entry.item is not None:
                self._current = entry
                return entry
            self._note_done(entry)
        return None

    def _note_done(self, entry: Entry) -> None:
        if entry.partition in self._done:
            self._done[entry.partition] = entry.position

    def _shown(self, entry: Entry) -> GroupRecord[T] | GroupTombstone:
        topic, number = entry.partition
        item = entry.item
        if isinstance(item, Tombstone):
            return GroupTombstone(**msgspec.structs.asdict(item), topic=topic, partition=number)
        assert item is not None
        typed = self._payload.typed(topic, item)
        return GroupRecord(**msgspec.structs.asdict(typed), topic=topic, partition=number)


def _positions(items: Iterable[tuple[Partition, int]]) -> Positions:
    found: Positions = {}
    for partition, seq in items:
        found.setdefault(partition.topic, {})[partition.number] = seq
    return found


def _numbers(partitions: set[Partition]) -> Assigned:
    found: Assigned = {}
    for partition in sorted(partitions):
        found.setdefault(partition.topic, []).append(partition.number)
    return found


def _partitions(assigned: Assigned) -> set[Partition]:
    return {Partition(topic, number) for topic, numbers in assigned.items() for number in numbers}
