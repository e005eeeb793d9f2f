"""Claiming jobs: those that came back first, then fresh ones, each into one pair of hands.

    pick → set worn-out jobs aside for the dead letters → deal → lease → queue on the shard

Runs under the shard's lock. What a claim took is taken at once; its answer waits for the log only
where leases are durable.
Keeps: no job has two live leases; a claim that fails gives its jobs back undelivered.
"""

import secrets
from collections.abc import Sequence

from topics.engine.queues.dead import submit_dead
from topics.engine.queues.deal import plan_deal
from topics.engine.queues.events import has_durable_leases, lease_frame
from topics.engine.queues.read import read_records, stored_bytes
from topics.engine.queues.table import LeaseTable, TrackedJob
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.limits import MAX_BATCH_BYTES
from topics.model.queues import Claimed, ClaimRequest, Lease
from topics.storage.wal.group_commit import Commitment, Waiter

LEASE_ID_BYTES = 16
WORN_OUT_MAX = 1_000
"""One claim sets no more jobs aside."""


class Claim(Commitment):
    """One claim on its way, and what it will answer."""

    __slots__ = ("_claimed_json", "_leases", "_ready", "_table", "_topic", "sets_aside")

    def __init__(
        self,
        topic: Topic,
        table: LeaseTable,
        leases: list[Lease],
        *,
        frames: list[bytes],
        needs_sync: bool,
        waiter: Waiter | None,
    ) -> None:
        super().__init__(frames, frames=len(frames), needs_sync=needs_sync, waiter=waiter)
        self._topic = topic
        self._table = table
        self._leases = leases
        self._ready = 0
        self._claimed_json = b""
        self.sets_aside = False
        """Jobs go to the dead letters with it: it is answered when they are there."""

    def read(self, *, verify: bool) -> None:
        """Get the records, off the lock; what was deleted since is no job any more."""
        records = read_records(self._topic, [lease.seq for lease in self._leases], verify=verify)
        self._leases = [lease for lease in self._leases if lease.seq in records]
        self._claimed_json = b",".join(
            b'{"lease_id":"%b","deadline":%d,"deliveries":%d,%b'
            % (lease.lease_id.encode(), lease.deadline, lease.deliveries, records[lease.seq][1:])
            for lease in self._leases
        )

    @property
    def lease_ids(self) -> list[str]:
        return [lease.lease_id for lease in self._leases]

    @property
    def answer(self) -> object:
        return self.claimed

    @property
    def claimed(self) -> Claimed:
        return Claimed(
            claimed_json=self._claimed_json,
            leases=self._leases,
            count=len(self._leases),
            ready=self._ready,
        )

    def publish(self) -> None:
        self._table.forget_below(self._topic.floors.earliest_seq)
        self._ready = self._table.ready(self._topic.live_records)

    def undo_deliveries(self) -> None:
        """Take the deliveries back of jobs that nobody will see; the shard's lock is held."""
        for lease in self._leases:
            job = self._table.by_lease(lease.lease_id)
            if job is not None:
                job.deliveries -= 1

    def abort(self) -> None:
        self.undo_deliveries()
        for lease in self._leases:
            job = self._table.by_lease(lease.lease_id)
            if job is not None:
                self._table.give_back(job)
        self._table.notify()


def submit_claims(
    shard: Shard,
    topic: Topic,
    table: LeaseTable,
    requests: Sequence[ClaimRequest],
    *,
    now_ms: int,
    waiter: Waiter | None = None,
) -> list[Claim]:
    """Serve several claims from one pass; the table is settled, the requests are checked."""
    taken: list[TrackedJob] = []
    try:
        picked, worn_out = _pick(topic, table, requests, taken=taken)
    except BaseException:
        for job in taken:
            if job.state == "taken":
                table.give_back(job)
        raise
    shares = plan_deal(len(picked), [request.max for request in requests])
    claims = []
    at = 0
    for request, share in zip(requests, shares, strict=True):
        jobs = picked[at : at + share]
        at += share
        claims.append(_lease(topic, table, request, jobs, now_ms=now_ms, waiter=waiter))
    if worn_out:
        submit_dead(shard, topic, table, worn_out)
    for claim in claims:
        claim.sets_aside = bool(worn_out)
        shard.commit.submit(claim)
    return claims


def _pick(
    topic: Topic,
    table: LeaseTable,
    requests: Sequence[ClaimRequest],
    *,
    taken: list[TrackedJob],
) -> tuple[list[TrackedJob], list[TrackedJob]]:
    """Take jobs in the order of claims, and apart from them those delivered too often.

    Each is noted in `taken` at once, so that a failure on the way loses none.
    """
    wanted = sum(request.max for request in requests)
    room_bytes = MAX_BATCH_BYTES * len(requests)
    picked: list[TrackedJob] = []
    worn_out: list[TrackedJob] = []
    while len(picked) < wanted and len(worn_out) < WORN_OUT_MAX:
        job = table.take_returned() or _take_fresh(topic, table)
        if job is None:
            break
        taken.append(job)
        if _is_worn_out(topic, job):
            worn_out.append(job)
            continue
        room_bytes -= stored_bytes(topic, job.seq)
        if picked and room_bytes < 0:
            table.give_back(job)
            break
        picked.append(job)
    return picked, worn_out


def _take_fresh(topic: Topic, table: LeaseTable) -> TrackedJob | None:
    seq = topic.first_live_from(max(table.fresh_seq, topic.floors.earliest_seq))
    while seq in table.jobs:  # a dead letter that a restart found under way
        seq = topic.first_live_from(seq + 1)
    return table.take_fresh(seq) if seq <= topic.head_seq else None


def _is_worn_out(topic: Topic, job: TrackedJob) -> bool:
    """Tell whether one more delivery is too many; without a dead-letter topic none ever is."""
    config = topic.config
    return config.dead_letter is not None and 0 < config.max_deliveries <= job.deliveries


def _lease(
    topic: Topic,
    table: LeaseTable,
    request: ClaimRequest,
    jobs: list[TrackedJob],
    *,
    now_ms: int,
    waiter: Waiter | None,
) -> Claim:
    lease_ms = topic.config.lease_ms if request.lease_ms is None else request.lease_ms
    jobs.sort(key=lambda job: job.seq)
    for job in jobs:
        table.lease(
            job,
            node=request.node,
            lease_id="lease_" + secrets.token_hex(LEASE_ID_BYTES),
            deadline=now_ms + lease_ms,
            deliveries=job.deliveries + 1,
        )
    leases = [job.lease() for job in jobs]
    frames = []
    if leases and has_durable_leases(topic):
        frames = [lease_frame(topic, "claim", jobs, node=request.node, deadline=now_ms + lease_ms)]
    needs_sync = bool(frames) and topic.config.durable
    return Claim(topic, table, leases, frames=frames, needs_sync=needs_sync, waiter=waiter)
