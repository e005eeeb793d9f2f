"""The whole engine against an independent oracle, over any sequence of words, work and restarts.

`HYPOTHESIS_PROFILE=long` runs it much longer.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.property.engine.side_by_side import SideBySide

from topics.testing.oracle import Once, OracleRecord
from topics.testing.strategies import NODES, batches, config_changes, matches

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
TOPICS = ("a", "b", "c")

topics = st.sampled_from(TOPICS)
windows_ms = st.sampled_from((100, 2_000, 120_000))
expiries_ms = st.sampled_from((50, 1_000, 604_800_000))
onces = st.one_of(
    st.just(Once()),
    st.just(Once()),
    st.builds(Once, key=st.sampled_from(("k1", "k2", "k3"))),
    st.builds(Once, producer=st.tuples(st.sampled_from(("p1", "p2")), st.integers(0, 6))),
    st.builds(
        Once,
        key=st.sampled_from(("k1", "k2")),
        producer=st.tuples(st.just("p1"), st.integers(0, 6)),
    ),
)
works = st.sampled_from(
    ("sync", "checkpoint", "checkpoint", "snapshot", "maintain", "relocate", "prepare_spares")
)


class EngineMachine(RuleBasedStateMachine):
    """Each rule is a word of the API, a step of background work, or a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.both = SideBySide()

    @initialize(
        shards=st.integers(1, 3),
        changes=config_changes(),
        window_ms=windows_ms,
        expiry_ms=expiries_ms,
    )
    def begin(self, shards: int, changes: dict[str, Any], window_ms: int, expiry_ms: int) -> None:
        if shards > 1:
            self.both.restart(clean=True, wal_shards=shards)
        times = {"idempotency_window_ms": window_ms, "producer_expiry_ms": expiry_ms}
        self.both.create("a", changes | times)

    # Words.

    @rule(topic=topics, changes=config_changes(), window_ms=windows_ms, expiry_ms=expiries_ms)
    def create(self, topic: str, changes: dict[str, Any], window_ms: int, expiry_ms: int) -> None:
        if topic not in self.both.oracles:
            times = {"idempotency_window_ms": window_ms, "producer_expiry_ms": expiry_ms}
            changes = changes | times
        self.both.create(topic, self.both.without_forgotten_caps(topic, changes))

    @rule(topic=topics, records=batches(), node=st.none() | st.sampled_from(NODES), once=onces)
    def append(self, topic: str, records: list[OracleRecord], node: str | None, once: Once) -> None:
        self.both.append(topic, records, node=node, once=once)

    @rule(topic=topics, records=batches(4), times=st.integers(2, 6))
    def append_many(self, topic: str, records: list[OracleRecord], times: int) -> None:
        for _ in range(times):
            self.both.append(topic, records)

    @rule(topic=topics, match=matches(), within=st.none() | st.floats(0, 1.1))
    def delete_match(self, topic: str, match: tuple[str, str], within: float | None) -> None:
        if topic in self.both.oracles:
            before_seq = None if within is None else self._bound(topic, within)
            self.both.delete(topic, before_seq=before_seq, match=match)

    @rule(topic=topics, place=st.floats(0, 1.2))
    def delete_below(self, topic: str, place: float) -> None:
        if topic in self.both.oracles:
            self.both.delete(topic, before_seq=self._bound(topic, place))

    @rule(topic=topics)
    def drop(self, topic: str) -> None:
        self.both.drop(topic)

    @rule(
        topic=topics,
        place=st.floats(0, 1.2),
        limit=st.integers(1, 12),
        nodes=st.lists(st.sampled_from(NODES), max_size=2),
        match=st.none() | matches(),
    )
    def read(
        self,
        topic: str,
        place: float,
        limit: int,
        nodes: list[str],
        match: tuple[str, str] | None,
    ) -> None:
        if topic in self.both.oracles:
            from_seq = self._seq(topic, place)
            self.both.read(topic, from_seq, limit=limit, nodes=tuple(nodes), match=match)

    @rule(topic=topics, place=st.floats(0, 1), max_batch_bytes=st.integers(1, 1_500))
    def read_bytes(self, topic: str, place: float, max_batch_bytes: int) -> None:
        if topic in self.both.oracles:
            self.both.read_bytes(topic, self._seq(topic, place), max_batch_bytes=max_batch_bytes)

    @rule()
    def look_at_everything(self) -> None:
        self.both.check_all()

    # Time and work.

    @rule(step_ms=st.sampled_from((1, 40, 60, 900, 1_100, 6_000, 70_000)))
    def wait(self, step_ms: int) -> None:
        self.both.clock.advance_ms(step_ms)

    @rule(work=works)
    def work(self, work: str) -> None:
        engine = self.both.log.engine
        getattr(engine, work)()
        self._check_floors()

    @rule()
    def sweep(self) -> None:
        self.both.sweep()
        self._check_floors()

    # Restarts.

    @precondition(lambda self: self.both.oracles)
    @rule(clean=st.booleans(), shards=st.none() | st.none() | st.integers(1, 3))
    def restart(self, *, clean: bool, shards: int | None) -> None:
        self.both.restart(clean=clean, wal_shards=shards)

    def teardown(self) -> None:
        self.both.check_all()
        self.both.restart(clean=False)
        self.both.restart(clean=True)

    def _seq(self, topic: str, place: float) -> int:
        return round(place * self.both.oracles[topic].head_seq)

    def _bound(self, topic: str, place: float) -> int:
        """Return where a delete ends: from 0, before everything, to beyond the head."""
        return round(place * (1 + self.both.oracles[topic].head_seq))

    def _check_floors(self) -> None:
        for topic in self.both.oracles:
            self.both.check_floors(topic)


EngineMachine.TestCase.settings = settings(
    max_examples=3_000 if LONG else 60,
    stateful_step_count=80 if LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestEngine = EngineMachine.TestCase
