"""What a queue should do, in a few lines: one dict of jobs, no heaps, no log, nothing shared."""

from dataclasses import dataclass, field


@dataclass
class ModelJob:
    """A live record. Ready when nobody holds it and its time has come."""

    data: int
    tag: str | None = None
    claimed_before: bool = False
    deliveries: int = 0
    node: str = ""
    lease_id: str = ""
    deadline: int = 0
    ready_at: int = 0


@dataclass
class QueueModel:
    """One queue and its dead letters."""

    lease_ms: int
    max_deliveries: int
    leases_durable: bool
    cap_records: int = 0
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    dead: list[tuple[int, int, int]] = field(default_factory=list)
    """(seq in the queue, deliveries, data) of each dead letter, in order."""

    def settle(self, now_ms: int) -> None:
        for job in self.jobs.values():
            if job.node and job.deadline <= now_ms:
                job.node = job.lease_id = ""
                job.ready_at = 0

    def is_ready(self, job: ModelJob, now_ms: int) -> bool:
        return not job.node and job.ready_at <= now_ms

    def ready(self, now_ms: int) -> list[int]:
        """Return the ready jobs in the order of claims."""
        self.settle(now_ms)
        found = [seq for seq, job in self.jobs.items() if self.is_ready(job, now_ms)]
        return sorted(found, key=lambda seq: (not self.jobs[seq].claimed_before, seq))

    def in_flight(self, now_ms: int) -> int:
        self.settle(now_ms)
        return sum(bool(job.node) for job in self.jobs.values())

    def add(self, first_seq: int, data: list[int], tag: str | None) -> None:
        for i, value in enumerate(data):
            self.jobs[first_seq + i] = ModelJob(value, tag)
        while self.cap_records and len(self.jobs) > self.cap_records:
            del self.jobs[min(self.jobs)]

    def plan_claim(self, count: int, now_ms: int) -> tuple[list[int], list[int]]:
        """Return which seqs a claim gets, and which it sends to the dead letters."""
        claimed: list[int] = []
        worn_out: list[int] = []
        for seq in self.ready(now_ms):
            if len(claimed) == count:
                break
            is_worn = 0 < self.max_deliveries <= self.jobs[seq].deliveries
            (worn_out if is_worn else claimed).append(seq)
        return sorted(claimed), worn_out

    def claim(self, seq: int, *, node: str, lease_id: str, deadline: int) -> None:
        job = self.jobs[seq]
        assert not job.node, "two live leases on one job"
        job.node, job.lease_id, job.deadline = node, lease_id, deadline
        job.claimed_before = True
        job.deliveries += 1

    def bury(self, seq: int) -> None:
        job = self.jobs.pop(seq)
        self.dead.append((seq, job.deliveries, job.data))

    def held(self, seqs: list[int], lease_ids: list[str] | None, node: str) -> list[int]:
        """Return the seqs that this worker holds, ascending and each once."""
        found = set()
        for place, seq in enumerate(seqs):
            job = self.jobs.get(seq)
            named = None if lease_ids is None else lease_ids[place]
            if job is not None and job.node == node and named in (None, job.lease_id):
                found.add(seq)
        return sorted(found)

    def give_back(self, seq: int, ready_at: int) -> None:
        job = self.jobs[seq]
        job.node = job.lease_id = ""
        job.ready_at = ready_at

    def restart(self) -> None:
        """Forget what is not on the log."""
        if not self.leases_durable:
            self.jobs = {seq: ModelJob(job.data, job.tag) for seq, job in self.jobs.items()}
