"""What a worker does with the jobs it holds: ack, nack, extend, and give back on leaving.

Runs under the shard's lock, on a settled table. An ack counts when it is as safe as the queue's
class; the others are so at once, and on the log only where leases are durable: the worst that a
lost one does is to make a job ready too early or too late.
"""

from collections.abc import Callable, Sequence
from itertools import repeat

from topics.engine.queues.events import (
    ack_frame,
    has_durable_leases,
    has_durable_records,
    lease_frame,
)
from topics.engine.queues.removal import Removal
from topics.engine.queues.table import LeaseTable, TrackedJob
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.model.queues import Acked, AckRequest, Extended, ExtendRequest, Nacked, NackRequest
from topics.storage.wal.group_commit import Commitment, Waiter


class Ack(Removal):
    """One ack on its way, and what it will answer. Acks that follow each other end together."""

    __slots__ = ("_company", "_jobs", "_skipped", "_table", "acked")

    def __init__(
        self,
        shard: Shard,
        topic: Topic,
        table: LeaseTable,
        request: AckRequest,
        *,
        waiter: Waiter | None,
    ) -> None:
        self._table = table
        self._jobs, self._skipped = _held(table, request, each=table.begin_ack)
        seqs = [job.seq for job in self._jobs]
        frames = []
        if seqs and has_durable_records(topic):
            frames = [ack_frame(topic, seqs, node=request.node)]
        super().__init__(shard, topic, seqs, frames=frames, waiter=waiter)
        self._company: list[Ack] = []
        self.acked: Acked | None = None

    @property
    def answer(self) -> object:
        return self.acked

    def company(self, tickets: Sequence[Commitment], behind: int) -> Sequence[Commitment]:
        self._company = []
        for at in range(behind, len(tickets)):
            ticket = tickets[at]
            if (
                not isinstance(ticket, Ack)
                or ticket.topic is not self.topic
                or ticket.needs_sync != self.needs_sync
            ):
                break
            self._company.append(ticket)
        return self._company

    def publish(self) -> None:
        acks, self._company = [self, *self._company], []
        self.remove(acks)
        ready, in_flight = _counts(self.topic, self._table)
        for ack in acks:
            ack.conclude(ready=ready, in_flight=in_flight)
        if any(ack.seqs for ack in acks):
            self._table.notify()

    def conclude(self, *, ready: int, in_flight: int) -> None:
        self.acked = Acked(
            acked=len(self.seqs),
            acked_seqs=self.seqs,
            skipped=self._skipped,
            ready=ready,
            in_flight=in_flight,
        )

    def abort(self) -> None:
        super().abort()
        for job in self._jobs:
            if job.state == "acking" and self._table.has(job):
                self._table.undo_ack(job)


class LeaseChange(Commitment):
    """A change of leases that has happened; `build` makes its answer when it is published."""

    __slots__ = ("_build", "_value")

    def __init__(
        self,
        frames: list[bytes],
        build: Callable[[], object],
        *,
        needs_sync: bool,
        waiter: Waiter | None,
    ) -> None:
        super().__init__(frames, frames=len(frames), needs_sync=needs_sync, waiter=waiter)
        self._build = build
        self._value: object = None

    @property
    def answer(self) -> object:
        return self._value

    def publish(self) -> None:
        self._value = self._build()

    def abort(self) -> None:
        """Leave the change: the log is behind, which costs a delivery at worst."""


def submit_ack(
    shard: Shard,
    topic: Topic,
    table: LeaseTable,
    request: AckRequest,
    *,
    waiter: Waiter | None = None,
) -> Ack:
    ticket = Ack(shard, topic, table, request, waiter=waiter)
    shard.commit.submit(ticket)
    return ticket


def submit_nack(
    shard: Shard,
    topic: Topic,
    table: LeaseTable,
    request: NackRequest,
    *,
    now_ms: int,
    waiter: Waiter | None = None,
) -> LeaseChange:
    ready_at = now_ms + request.delay_ms if request.delay_ms else 0
    jobs, skipped = _held(table, request, each=lambda job: table.give_back(job, ready_at=ready_at))
    if jobs:
        table.notify()

    def build() -> Nacked:
        ready, in_flight = _counts(topic, table)
        seqs = [job.seq for job in jobs]
        return Nacked(
            nacked=len(seqs), nacked_seqs=seqs, skipped=skipped, ready=ready, in_flight=in_flight
        )

    return _submit(shard, topic, "nack", jobs, build, request.node, ready_at, waiter)


def submit_extend(
    shard: Shard,
    topic: Topic,
    table: LeaseTable,
    request: ExtendRequest,
    *,
    now_ms: int,
    waiter: Waiter | None = None,
) -> LeaseChange:
    deadline = now_ms + request.lease_ms
    jobs, skipped = _held(table, request, each=lambda job: table.extend(job, deadline))

    def build() -> Extended:
        deadlines = {job.seq: deadline for job in jobs}
        return Extended(extended=len(jobs), skipped=skipped, deadlines=deadlines)

    return _submit(shard, topic, "extend", jobs, build, request.node, deadline, waiter)


def submit_release(
    shard: Shard,
    topic: Topic,
    table: LeaseTable,
    lease_ids: Sequence[str],
    *,
    node: str,
    waiter: Waiter | None = None,
) -> LeaseChange:
    """Make ready at once what a worker that left still held; its deliveries count."""
    found = map(table.by_lease, lease_ids)
    jobs = sorted((job for job in found if job and job.node == node), key=lambda job: job.seq)
    for job in jobs:
        table.give_back(job)
    if jobs:
        table.notify()
    return _submit(shard, topic, "release", jobs, lambda: len(jobs), node, 0, waiter)


def _held(
    table: LeaseTable, request: AckRequest, *, each: Callable[[TrackedJob], None]
) -> tuple[list[TrackedJob], list[int]]:
    """Do something to each job that the worker holds; return them, and the seqs it does not."""
    jobs: list[TrackedJob] = []
    skipped: list[int] = []
    done: set[int] = set()
    lease_ids = repeat(None) if request.lease_ids is None else request.lease_ids
    for seq, lease_id in zip(request.seqs, lease_ids, strict=False):
        job = None if seq in done else table.held(seq, node=request.node, lease_id=lease_id)
        if job is None:
            skipped.append(seq)
            continue
        done.add(seq)
        each(job)
        jobs.append(job)
    return sorted(jobs, key=lambda job: job.seq), skipped


def _submit(
    shard: Shard,
    topic: Topic,
    event: str,
    jobs: list[TrackedJob],
    build: Callable[[], object],
    node: str,
    deadline: int,
    waiter: Waiter | None,
) -> LeaseChange:
    frames = []
    if jobs and has_durable_leases(topic):
        frames = [lease_frame(topic, event, jobs, node=node, deadline=deadline)]
    needs_sync = bool(frames) and topic.config.durable
    ticket = LeaseChange(frames, build, needs_sync=needs_sync, waiter=waiter)
    shard.commit.submit(ticket)
    return ticket


def _counts(topic: Topic, table: LeaseTable) -> tuple[int, int]:
    table.forget_below(topic.floors.earliest_seq)
    return table.ready(topic.live_records), table.in_flight
