"""Who holds which job: the lease table of one queue. Pure: no disk, no clock, no lock of its own.

Every change happens under the lock of the topic's shard.
Keeps: each live record below `fresh_seq` is in the table once, those above it are not, but for
dead letters under way; only live records are in it once `settle` has run; memory follows the jobs
in flight or given back, not the length of the log.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

from topics.model.queues import Lease

JobState = Literal["taken", "leased", "acking", "returned", "delayed", "moving"]
IN_FLIGHT: tuple[JobState, ...] = ("leased", "acking")
TIMED: tuple[JobState, ...] = ("leased", "delayed")
SETTLED_MAX = 1_000
"""So many leases and delays end at a time: whoever writes waits for no more of them."""
SLACK = 64
"""Heaps may hold so many stale entries more than there are jobs."""


class Move(NamedTuple):
    """A job on its way to the dead-letter topic."""

    seq: int
    dead_letter: str
    deliveries: int
    logged: bool
    """Its frame is on the log, so that a restart goes on with it."""


class TrackedJob:
    """A job that was claimed before. `until` is a lease's deadline, or when a delay is over."""

    __slots__ = ("deliveries", "lease_id", "node", "seq", "state", "until")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.state: JobState = "taken"
        self.deliveries = 0
        self.node = ""
        self.lease_id = ""
        self.until = 0

    def lease(self) -> Lease:
        return Lease(
            seq=self.seq, lease_id=self.lease_id, deadline=self.until, deliveries=self.deliveries
        )


class LeaseTable:
    """The jobs of one queue that are not simply ready for the first time."""

    def __init__(self) -> None:
        self.jobs: dict[int, TrackedJob] = {}
        self.fresh_seq = 1
        """No record at or above this was ever claimed."""
        self.moves: dict[int, Move] = {}
        """Dead letters under way by their number, which rises for the life of the queue."""
        self.next_move = 1
        self.unsynced_moves = 0
        """Dead letters whose frame is not safe yet: they are not in `moves`."""
        self.dead_lettered = 0
        self.listeners: set[Callable[[], object]] = set()
        """Called under the shard's lock when jobs may have become ready, or a worker may have a
        hand free: they only schedule."""
        self._counts: dict[JobState, int] = dict.fromkeys(JobState.__args__, 0)  # type: ignore[attr-defined] # of a Literal
        self._by_lease: dict[str, TrackedJob] = {}
        self._returned: list[int] = []
        self._timers: list[tuple[int, int]] = []
        self._seqs: list[int] = []

    # Looking.

    @property
    def in_flight(self) -> int:
        return sum(self._counts[state] for state in IN_FLIGHT)

    def ready(self, live_records: int) -> int:
        """Return how many jobs could be claimed now; `settle` has run."""
        return live_records - len(self.jobs) + self._counts["returned"]

    def held(self, seq: int, *, node: str, lease_id: str | None) -> TrackedJob | None:
        """Return a job if this worker holds it, and by this very lease where one is named."""
        job = self.jobs.get(seq)
        if job is None or job.state != "leased" or job.node != node:
            return None
        return job if lease_id is None or job.lease_id == lease_id else None

    def has(self, job: TrackedJob) -> bool:
        """Tell whether a job is still in the table: its record may be gone."""
        return self.jobs.get(job.seq) is job

    def by_lease(self, lease_id: str) -> TrackedJob | None:
        return self._by_lease.get(lease_id)

    def next_until(self) -> int | None:
        """Return when the next lease or delay ends."""
        while self._timers and not self._is_due_entry(*self._timers[0]):
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    # Time and loss.

    def is_due(self, *, now_ms: int, earliest_seq: int) -> bool:
        """Tell whether `settle` may have something to do; takes no lock."""
        return any(until <= now_ms for until, _ in self._timers[:1]) or any(
            seq < earliest_seq for seq in self._seqs[:1]
        )

    def settle(self, *, now_ms: int, earliest_seq: int) -> None:
        """Forget what is no longer live and return what is due; the one place that finds expiry.

        No more than SETTLED_MAX come back at a time.
        """
        self.forget_below(earliest_seq)
        returned = 0
        while (until := self.next_until()) is not None and until <= now_ms:
            if returned == SETTLED_MAX:
                break
            _, seq = heappop(self._timers)
            self._put(self.jobs[seq], "returned")
            returned += 1
        if returned:
            self.notify()

    def forget_below(self, earliest_seq: int) -> None:
        while self._seqs and self._seqs[0] < earliest_seq:
            self.forget([heappop(self._seqs)])

    def forget(self, seqs: Sequence[int]) -> None:
        """Drop records that were deleted or lost; the seqs ascend."""
        if len(seqs) > len(self.jobs):  # a delete of many: most of them were never claimed
            places = ((seq, bisect_left(seqs, seq)) for seq in self.jobs)
            seqs = [seq for seq, at in places if at < len(seqs) and seqs[at] == seq]
        for seq in seqs:
            job = self.jobs.pop(seq, None)
            if job is not None:
                self._counts[job.state] -= 1
                self._by_lease.pop(job.lease_id, None)

    def notify(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    # From hand to hand.

    def take_returned(self) -> TrackedJob | None:
        """Take the lowest job that came back."""
        while self._returned:
            job = self.jobs.get(heappop(self._returned))
            if job is not None and job.state == "returned":
                self._put(job, "taken")
                return job
        return None

    def take_fresh(self, seq: int) -> TrackedJob:
        self.fresh_seq = seq + 1
        return self.track(seq)

    def track(self, seq: int) -> TrackedJob:
        """Return the job of a seq, new to the table or not."""
        job = self.jobs.get(seq)
        if job is None:
            job = self.jobs[seq] = TrackedJob(seq)
            self._counts["taken"] += 1
            heappush(self._seqs, seq)
            if len(self._seqs) > 2 * len(self.jobs) + SLACK:
                self._seqs = sorted(self.jobs)
        return job

    def lease(
        self, job: TrackedJob, *, node: str, lease_id: str, deadline: int, deliveries: int
    ) -> None:
        self._by_lease.pop(job.lease_id, None)
        job.node, job.lease_id, job.deliveries = node, lease_id, deliveries
        self._put(job, "leased", until=deadline)

    def give_back(self, job: TrackedJob, *, ready_at: int = 0) -> None:
        """Make a job ready again, now or at a time."""
        self._put(job, "delayed" if ready_at else "returned", until=ready_at)

    def extend(self, job: TrackedJob, deadline: int) -> None:
        self._put(job, "leased", until=deadline)

    def begin_ack(self, job: TrackedJob) -> None:
        """Hold a job until its ack is as safe as the queue promises: it cannot expire any more."""
        self._put(job, "acking", until=job.until)

    def undo_ack(self, job: TrackedJob) -> None:
        self._put(job, "leased", until=job.until)

    def begin_move(self, job: TrackedJob) -> None:
        self._put(job, "moving")

    # Inside.

    def _put(self, job: TrackedJob, state: JobState, *, until: int = 0) -> None:
        self._counts[job.state] -= 1
        self._counts[state] += 1
        if state == "leased":
            self._by_lease[job.lease_id] = job
        elif job.state == "leased":
            del self._by_lease[job.lease_id]
        job.state, job.until = state, until
        if state == "returned":
            heappush(self._returned, job.seq)
        elif state in TIMED:
            heappush(self._timers, (until, job.seq))
        self._drop_stale_entries()

    def _is_due_entry(self, until: int, seq: int) -> bool:
        job = self.jobs.get(seq)
        return job is not None and job.until == until and job.state in TIMED

    def _drop_stale_entries(self) -> None:
        limit = 2 * len(self.jobs) + SLACK
        if len(self._timers) > limit:
            self._timers = [(j.until, j.seq) for j in self.jobs.values() if j.state in TIMED]
            heapify(self._timers)
        if len(self._returned) > limit:
            self._returned = sorted(j.seq for j in self.jobs.values() if j.state == "returned")
