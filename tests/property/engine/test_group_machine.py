"""Groups over any sequence of words, growth, silence and crashes (oracle 7)."""

import os
from collections.abc import Callable
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.engine.group_oracle import GroupOracle
from tests.unit.engine.place import Place

from topics.engine.topics.registry import Registry
from topics.engine.topics.topic import Topic
from topics.errors import GenerationMismatch, TopicNotFound
from topics.model.groups import Assignor, Polled

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SESSION_MS = 1_000
GROUP = "g"

members = st.sampled_from(("a", "b", "c"))
subscriptions = st.sampled_from((("t",), ("t", "u"), ("u",)))
works = st.sampled_from(("checkpoint", "snapshot", "maintain", "sync", "sweep"))


class Consumer:
    """What one member believes."""

    def __init__(self) -> None:
        self.generation = 0
        self.held: dict[str, list[int]] = {}
        self.release: dict[str, list[int]] = {}
        self.positions: dict[str, dict[int, int]] = {}
        self.is_forgotten = False
        """The server started anew and no longer knows what it gave to this member."""


def _pairs(held: dict[str, list[int]]) -> list[tuple[str, int]]:
    return [(topic, number) for topic, numbers in held.items() for number in numbers]


def _as_method(machine: "GroupMachine") -> Callable[[Registry, str], tuple[Topic, ...]]:
    def partitions_of(registry: Registry, name: str) -> tuple[Topic, ...]:
        return machine.partitions_of(registry, name)

    return partitions_of


class GroupMachine(RuleBasedStateMachine):
    """Each rule is a word of a member, a step of background work, a wait, or a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = mock.patch.object(Registry, "partitions_of", _as_method(self))
        self.patched.start()
        self.place = Place()
        self.oracle = GroupOracle()
        self.counts = {"t": 1, "u": 1}
        self.consumers: dict[str, Consumer] = {}
        self.assignor: Assignor = "sticky"
        self.workers: dict[tuple[str, int], str] = {}
        """Who works on a partition: it was told so, and has not given it up."""
        self.heard_s: dict[str, float] = {}

    @initialize(
        shards=st.integers(1, 3), assignor=st.sampled_from(("sticky", "range", "round_robin"))
    )
    def begin(self, shards: int, assignor: Assignor) -> None:
        self.assignor = assignor
        self.place.stop(wal_shards=shards)
        for topic in self.counts:
            self.place.log.append(f"{topic}.0", [{"data": 0}])

    def partitions_of(self, registry: Registry, name: str) -> tuple[Topic, ...]:
        """Let `t` have the partitions `t.0`, `t.1` and so on."""
        if name not in self.counts:
            raise TopicNotFound(name)
        return tuple(registry.get(f"{name}.{n}") for n in range(self.counts[name]))

    def started(self) -> None:
        """Know that a start begins every session anew."""
        for name in self.heard_s:
            self._lives(name)
        for consumer in self.consumers.values():
            consumer.is_forgotten = True

    # Words.

    @rule(name=members, topics=subscriptions)
    def join(self, name: str, topics: tuple[str, ...]) -> None:
        joined = self.place.log.join(
            GROUP, member=name, topics=topics, session_ms=SESSION_MS, assignor=self.assignor
        )
        consumer = self.consumers[name] = Consumer()
        consumer.generation, consumer.held = joined.generation, joined.assigned
        consumer.positions = joined.committed
        self._works(name, joined.generation, joined.assigned)
        self._look_at(joined.committed)

    @rule(name=members, gives_up=st.booleans())
    def heartbeat(self, name: str, gives_up: bool) -> None:  # noqa: FBT001 - Hypothesis names it
        consumer = self.consumers.setdefault(name, Consumer())
        if gives_up:
            for partition in _pairs(consumer.release):
                self.workers.pop(partition, None)
        try:
            beat = self.place.log.heartbeat(
                GROUP,
                member=name,
                generation=consumer.generation,
                released=consumer.release if gives_up else None,
            )
        except GenerationMismatch as error:
            self._check_gone(name, error)
            return
        consumer.generation, consumer.release = beat.generation, beat.release
        consumer.held = {
            topic: beat.assigned.get(topic, []) + beat.release.get(topic, [])
            for topic in {*beat.assigned, *beat.release}
        }
        self._works(name, beat.generation, consumer.held)
        self._look_at(beat.committed)

    @rule(name=members)
    def leave(self, name: str) -> None:
        self._works(name, 0, {})
        self.place.log.leave(GROUP, member=name)
        self.consumers.pop(name, None)

    @rule(name=members, share=st.floats(0, 1))
    def commit(self, name: str, share: float) -> None:
        consumer = self.consumers.setdefault(name, Consumer())
        offsets = {
            topic: {n: int(share * self._head(topic, n)) for n in numbers}
            for topic, numbers in consumer.held.items()
        }
        try:
            done = self.place.log.commit(
                GROUP, offsets, member=name, generation=consumer.generation
            )
        except GenerationMismatch as error:
            self._check_stale(consumer, error)
            return
        self._lives(name)
        assert done.generation == consumer.generation, "a stale generation committed"
        self.oracle.acknowledged(done.committed)
        for topic, by_number in offsets.items():
            for number, seq in by_number.items():
                assert done.committed[topic][number] >= seq

    @rule(name=members, limit=st.integers(1, 4))
    def poll(self, name: str, limit: int) -> None:
        consumer = self.consumers.setdefault(name, Consumer())
        try:
            polled = self.place.log.poll(
                GROUP,
                member=name,
                generation=consumer.generation,
                limit=limit,
                positions=consumer.positions,
            )
        except GenerationMismatch as error:
            self._check_stale(consumer, error)
            return
        self._lives(name)
        self._check_polled(consumer, polled, limit)
        consumer.positions, consumer.is_forgotten = polled.positions, False

    # Time, growth, work, crashes.

    @rule(topic=st.sampled_from(("t", "u")), number=st.integers(0, 3), count=st.integers(1, 5))
    def append(self, topic: str, number: int, count: int) -> None:
        self.place.log.append(
            f"{topic}.{number % self.counts[topic]}", [{"data": n} for n in range(count)]
        )

    @rule(topic=st.sampled_from(("t", "u")))
    def grow(self, topic: str) -> None:
        if self.counts[topic] < 4:
            self.place.log.append(f"{topic}.{self.counts[topic]}", [{"data": 0}])
            self.counts[topic] += 1

    @rule(step_ms=st.sampled_from((1, 400, 999, 1_000)))
    def wait(self, step_ms: int) -> None:
        self.place.clock.advance_ms(step_ms)

    @rule(step_ms=st.sampled_from((-86_400_000, 86_400_000)))
    def step_the_wall_clock(self, step_ms: int) -> None:
        self.place.clock.set_ms(max(1, self.place.clock.now_ms() + step_ms))

    @rule(work=works)
    def work(self, work: str) -> None:
        getattr(self.place.log.engine, work)()

    @rule()
    def stop(self) -> None:
        self.place.stop()
        self.started()

    @rule()
    def kill(self) -> None:
        self.place.kill()
        self.started()

    @rule(seed=st.integers(0, 3))
    def cut(self, seed: int) -> None:
        self.place.cut(seed)
        self.started()

    # Always.

    @invariant()
    def holds(self) -> None:
        if GROUP not in self.place.log.groups():
            return
        state = self.place.log.group_state(GROUP)
        assert state.generation >= self.oracle.generation
        self.workers = {p: name for p, name in self.workers.items() if self._is_alive(name)}
        for member in state.members:
            held = {**member.assigned}
            for topic, numbers in member.release.items():
                held[topic] = held.get(topic, []) + numbers
            self.oracle.hear(member.member, state.generation, held)
        names = {member.member for member in state.members}
        wanted = {topic for member in state.members for topic in member.topics}
        for partition in state.partitions:
            place = partition.topic, partition.partition
            self.oracle.see(place, partition.committed, head_seq=partition.head_seq)
            assert (partition.owner in names) == (partition.topic in wanted)
            worker = self.workers.get(place)
            if worker is not None:
                assert partition.owner == worker, f"{place} was taken from {worker}"

    def teardown(self) -> None:
        self.place.log.close()
        self.patched.stop()

    # Inside.

    def _works(self, name: str, generation: int, held: dict[str, list[int]]) -> None:
        """Note what a member was told to work on."""
        if generation:
            self.oracle.hear(name, generation, held)
        self._lives(name)
        self.workers = {p: worker for p, worker in self.workers.items() if worker != name}
        self.workers |= dict.fromkeys(_pairs(held), name)

    def _lives(self, name: str) -> None:
        self.heard_s[name] = self.place.clock.monotonic_s()

    def _is_alive(self, name: str) -> bool:
        return self.heard_s[name] + SESSION_MS / 1000 > self.place.clock.monotonic_s()

    def _head(self, topic: str, number: int) -> int:
        return self.place.log.state(f"{topic}.{number}").head_seq

    def _look_at(self, committed: dict[str, dict[int, int]]) -> None:
        for topic, by_number in committed.items():
            for number, seq in by_number.items():
                self.oracle.see((topic, number), seq, head_seq=self._head(topic, number))

    def _check_gone(self, name: str, error: GenerationMismatch) -> None:
        self.consumers.pop(name, None)
        self._works(name, 0, {})
        if GROUP in self.place.log.groups():
            members = self.place.log.group_state(GROUP).members
            assert name not in [member.member for member in members]
        self.oracle.hear(name, error.generation, {}, since=0)

    def _check_stale(self, consumer: Consumer, error: GenerationMismatch) -> None:
        assert error.generation >= self.oracle.generation
        assert consumer.generation <= error.generation

    def _check_polled(self, consumer: Consumer, polled: Polled, limit: int) -> None:
        assert polled.generation == consumer.generation
        assert polled.count <= limit
        assert {t: sorted(by) for t, by in polled.positions.items()} == {
            t: sorted(numbers) for t, numbers in consumer.held.items() if numbers
        }
        for batch in polled.batches:
            start = consumer.positions.get(batch.topic, {}).get(batch.partition)
            seqs = [record.seq for record in batch.records]
            if batch.tombstone is None:
                # Without a word of ours it is at what it was given, or at what is committed.
                first = seqs[0] if start is None or consumer.is_forgotten else start + 1
                assert start is None or first <= start + 1, "passed over"
                assert seqs == list(range(first, first + len(seqs)))
            assert polled.positions[batch.topic][batch.partition] == batch.next_from_seq


GroupMachine.TestCase.settings = settings(
    max_examples=1_000 if LONG else 80,
    stateful_step_count=60 if LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestGroupMachine = GroupMachine.TestCase
