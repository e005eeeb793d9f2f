"""Queues against an independent model, over any sequence of words, work and crashes (oracle 6).

After a kill, a clean stop, or a power cut behind a sync, the queue is exactly what it was: with
durable leases down to the last lease, without them every job that is not acked is ready again.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.engine.queue_model import QueueModel
from tests.unit.engine.place import Place

from topics.model.diff import Record
from topics.model.queues import QueueState

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
LEASE_MS = 1_000

nodes = st.sampled_from(("w1", "w1", "w1", "w2"))
places = st.lists(st.integers(0, 5), min_size=1, max_size=4)
works = st.sampled_from(("checkpoint", "snapshot", "maintain", "relocate", "sync", "sweep"))


class QueueMachine(RuleBasedStateMachine):
    """Each rule is a word of a worker, a step of background work, a wait, or a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Place()
        self.numbers = iter(range(10**9))
        self.stale: list[tuple[int, str]] = []
        """Leases that were given once: most of them are over."""

    @initialize(
        durability=st.sampled_from(("disk", "fsync")),
        leases_durable=st.booleans(),
        max_deliveries=st.sampled_from((0, 1, 2)),
        cap_records=st.sampled_from((0, 0, 8)),
        shards=st.integers(1, 2),
    )
    def begin(
        self,
        durability: str,
        leases_durable: bool,  # noqa: FBT001 - Hypothesis names it
        max_deliveries: int,
        cap_records: int,
        shards: int,
    ) -> None:
        self.model = QueueModel(
            lease_ms=LEASE_MS,
            max_deliveries=max_deliveries,
            leases_durable=leases_durable,
            cap_records=cap_records,
        )
        self.synced = durability == "fsync"
        self.place.stop(wal_shards=shards)
        config: dict[str, Any] = {"durability": durability, "leases_durable": leases_durable}
        self.place.log.create(
            "jobs",
            type="queue",
            lease_ms=LEASE_MS,
            max_deliveries=max_deliveries,
            dead_letter="dead",
            cap_records=cap_records,
            **config,
        )
        self.append(4, None)

    @property
    def now_ms(self) -> int:
        return self.place.clock.now_ms()

    # Words.

    @rule(count=st.integers(1, 4), tag=st.sampled_from((None, "a", "b")))
    def append(self, count: int, tag: str | None) -> None:
        data = [next(self.numbers) for _ in range(count)]
        records = [{"data": n} | ({"tag": tag} if tag else {}) for n in data]
        appended = self.place.log.append("jobs", records)
        self.model.add(appended.first_seq, data, tag)

    @rule(node=nodes, count=st.integers(1, 5), lease_ms=st.sampled_from((None, 100, 5_000)))
    def claim(self, node: str, count: int, lease_ms: int | None) -> None:
        wanted, worn_out = self.model.plan_claim(count, self.now_ms)
        claimed = self.place.log.claim("jobs", node=node, max=count, lease_ms=lease_ms)
        assert [job.seq for job in claimed.jobs] == wanted
        for job in claimed.jobs:
            deadline = self.now_ms + (lease_ms or LEASE_MS)
            assert job.deadline == deadline
            self.model.claim(job.seq, node=node, lease_id=job.lease_id, deadline=deadline)
            assert (job.data, job.deliveries) == (
                self.model.jobs[job.seq].data,
                self.model.jobs[job.seq].deliveries,
            )
            self.stale.append((job.seq, job.lease_id))
        for seq in worn_out:
            self.model.bury(seq)
        assert claimed.ready == len(self.model.ready(self.now_ms))

    @rule(node=nodes, places=places, fenced=st.booleans())
    def ack(self, node: str, places: list[int], fenced: bool) -> None:  # noqa: FBT001 - as above
        seqs, lease_ids = self._some(places, fenced=fenced)
        self.model.settle(self.now_ms)
        wanted = self.model.held(seqs, lease_ids, node)
        acked = self.place.log.ack("jobs", seqs, node=node, lease_ids=lease_ids)
        assert (acked.acked, acked.acked_seqs) == (len(wanted), wanted)
        assert sorted(set(acked.skipped) - set(wanted)) == sorted(set(seqs) - set(wanted))
        for seq in wanted:
            del self.model.jobs[seq]
        assert acked.ready == len(self.model.ready(self.now_ms))
        assert acked.in_flight == self.model.in_flight(self.now_ms)

    @rule(
        node=nodes,
        places=places,
        fenced=st.booleans(),
        delay_ms=st.sampled_from((0, 0, 300, 3_000)),
    )
    def nack(self, node: str, places: list[int], fenced: bool, delay_ms: int) -> None:  # noqa: FBT001 - as above
        seqs, lease_ids = self._some(places, fenced=fenced)
        self.model.settle(self.now_ms)
        wanted = self.model.held(seqs, lease_ids, node)
        nacked = self.place.log.nack(
            "jobs", seqs, node=node, lease_ids=lease_ids, delay_ms=delay_ms
        )
        assert nacked.nacked_seqs == wanted
        for seq in wanted:
            self.model.give_back(seq, self.now_ms + delay_ms if delay_ms else 0)
        assert nacked.ready == len(self.model.ready(self.now_ms))

    @rule(node=nodes, places=places, fenced=st.booleans(), lease_ms=st.sampled_from((100, 4_000)))
    def extend(self, node: str, places: list[int], fenced: bool, lease_ms: int) -> None:  # noqa: FBT001 - as above
        seqs, lease_ids = self._some(places, fenced=fenced)
        self.model.settle(self.now_ms)
        wanted = self.model.held(seqs, lease_ids, node)
        extended = self.place.log.extend(
            "jobs", seqs, node=node, lease_ids=lease_ids, lease_ms=lease_ms
        )
        deadline = self.now_ms + lease_ms
        assert extended.deadlines == dict.fromkeys(wanted, deadline)
        for seq in wanted:
            self.model.jobs[seq].deadline = deadline

    @rule(node=nodes)
    def release(self, node: str) -> None:
        """Close a connection: all that this worker still holds is ready again."""
        self.model.settle(self.now_ms)
        held = [seq for seq, job in self.model.jobs.items() if job.node == node]
        engine = self.place.log.engine
        ids = [lease_id for _, lease_id in self.stale]
        assert engine.release(engine.topic("jobs"), node, ids) == len(held)
        for seq in held:
            self.model.give_back(seq, 0)

    @rule(place=st.integers(0, 9), tag=st.sampled_from((None, "a", "b")))
    def delete(self, place: int, tag: str | None) -> None:
        before_seq = self._seq(place)
        self.place.log.delete("jobs", before_seq=before_seq, match=tag)
        for seq, job in list(self.model.jobs.items()):
            if seq < before_seq and tag in (None, job.tag):
                del self.model.jobs[seq]

    # Time, work, crashes.

    @rule(step_ms=st.sampled_from((1, 99, 100, 299, 1_000, 4_000)))
    def wait(self, step_ms: int) -> None:
        self.place.clock.advance_ms(step_ms)

    @rule(work=works)
    def work(self, work: str) -> None:
        getattr(self.place.log.engine, work)()

    @rule()
    def stop(self) -> None:
        self.place.stop()
        self.model.restart()

    @rule()
    def kill(self) -> None:
        self.place.kill()
        self.model.restart()

    @rule(seed=st.integers(0, 3))
    def cut(self, seed: int) -> None:
        if not self.synced:
            self.place.log.sync()
        self.place.cut(seed)
        self.model.restart()

    # Always.

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        log, model = self.place.log, self.model
        wanted = QueueState(
            ready=len(model.ready(self.now_ms)),
            in_flight=model.in_flight(self.now_ms),
            dead_lettered=len(model.dead),
        )
        assert log.state("jobs").queue == wanted
        live = [(record.seq, record.data) for record in self._read_all("jobs")]
        assert live == [(seq, job.data) for seq, job in sorted(model.jobs.items())]
        dead = self._read_all("dead") if "dead" in log.topics() else []
        found = [
            (r.meta["$dead_letter_src_seq"], r.meta["$dead_letter_deliveries"], r.data)
            for r in dead
            if r.meta is not None
        ]
        assert found == model.dead

    def teardown(self) -> None:
        self.place.log.close()

    def _read_all(self, topic: str) -> list[Record]:
        """Read over the gaps of crashes, which end a page."""
        cursor = 0
        found: list[Record] = []
        while True:
            page = self.place.log.diff(topic, from_seq=cursor)
            found += page.records
            cursor = page.next_from_seq
            if page.caught_up:
                return found

    def _seq(self, place: int) -> int:
        seqs = sorted(self.model.jobs) or [1]
        return seqs[min(place, len(seqs) - 1)]

    def _some(self, places: list[int], *, fenced: bool) -> tuple[list[int], list[str] | None]:
        """Return seqs a worker may name, and the lease ids it believes in, stale ones too."""
        if not fenced or not self.stale:
            held = [seq for seq, job in sorted(self.model.jobs.items()) if job.node]
            seqs = [held[place % len(held)] if held else self._seq(place) for place in places]
            return seqs, None
        pairs = [self.stale[-1 - place % len(self.stale)] for place in places]
        return [seq for seq, _ in pairs], [lease_id for _, lease_id in pairs]


QueueMachine.TestCase.settings = settings(
    max_examples=1_000 if LONG else 80,
    stateful_step_count=60 if LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestQueueMachine = QueueMachine.TestCase
