"""What the clients of a killed server were told, and what must therefore be there.

A = acknowledged, S = submitted, R = readable: A ⊆ R ⊆ S; no seq names two payloads; a payload is
written once; a job is acked or still there; a destination is the filtered source, in order.
"""

import threading
import time
from collections import defaultdict
from typing import Any, NamedTuple

import httpx

from topics.testing.crash_observe import Violation

CLASSES = ("ephemeral", "memory", "disk", "fsync")
KEPT = ("disk", "fsync")
PAGE_RECORDS = 1_000
Reply = dict[str, Any]


class Lease(NamedTuple):
    """A job in the hands of a worker."""

    node: str
    lease_id: str
    deadline_ms: int


class Jobs:
    """One queue: who holds what, what is done."""

    def __init__(self, topic: str, *, leases_durable: bool) -> None:
        self.topic = topic
        self.leases_durable = leases_durable
        self.held: dict[int, Lease] = {}
        self.acking: set[int] = set()
        self.acked: set[int] = set()
        self._lock = threading.Lock()

    def claimed(self, node: str, jobs: list[Reply], *, asked_ms: int) -> None:
        with self._lock:
            for job in jobs:
                seq = job["$seq"]
                if seq in self.acked:
                    raise Violation(f"{self.topic}: job {seq} was acked and is claimed again")
                if (lease := self.held.get(seq)) and lease.deadline_ms > asked_ms + 1_000:
                    raise Violation(f"{self.topic}: job {seq} has two leases: {lease}, {job}")
                self.held[seq] = Lease(node, job["lease_id"], job["deadline"])

    def released(self, seq: int) -> None:
        with self._lock:
            self.held.pop(seq, None)

    def done(self, seq: int) -> None:
        with self._lock:
            self.held.pop(seq, None)
            self.acked.add(seq)

    def holds(self, seq: int) -> bool:
        lease = self.held.get(seq)
        return lease is not None and lease.deadline_ms > now_ms() + 1_000

    def crashed(self) -> None:
        if not self.leases_durable:
            self.held.clear()

    def check(self, live: set[int], appended: set[int]) -> None:
        if back := live & self.acked:
            raise Violation(f"{self.topic}: acked jobs are back: {sorted(back)}")
        if lost := appended - live - self.acked - self.acking:
            raise Violation(f"{self.topic}: jobs are lost: {sorted(lost)}")


class Ledger:
    """Everything that was submitted and acknowledged, life after life."""

    def __init__(self) -> None:
        self.submitted: dict[str, set[str]] = defaultdict(set)
        self.acked: dict[str, dict[int, str]] = defaultdict(dict)
        self.pending: dict[str, int] = {}
        """Per writer the number whose answer never came."""
        self.last: dict[str, int] = defaultdict(int)
        self.seen: dict[str, dict[int, str]] = defaultdict(dict)
        """Per destination what its seqs named at an earlier look."""
        self.jobs = [Jobs("jobs", leases_durable=False), Jobs("sure-jobs", leases_durable=True)]
        self.acks = 0

    def answered(self, topic: str, writer: str, seq: int, payload: str) -> None:
        before = self.acked[topic].setdefault(seq, payload)
        if before != payload and topic not in {"ephemeral", "memory"}:
            raise Violation(f"{topic}: seq {seq} was given to {before} and to {payload}")
        self.acked[topic][seq] = payload
        self.pending.pop(writer, None)
        self.acks += 1

    def check(self, client: httpx.Client) -> None:
        """Hold what is readable now against what was promised."""
        for topic in CLASSES:
            self._check_log(topic, read(client, topic))
        self._check_routers(client)
        for jobs in self.jobs:
            live = set(read(client, jobs.topic))
            jobs.check(live, set(self.acked[jobs.topic]))

    def _check_log(self, topic: str, found: dict[int, str]) -> None:
        payloads = list(found.values())
        if strange := set(payloads) - self.submitted[topic]:
            raise Violation(f"{topic}: never submitted: {sorted(strange)[:5]}")
        if topic not in KEPT:
            return
        for seq, payload in self.acked[topic].items():
            if found.get(seq) != payload:
                raise Violation(f"{topic}: seq {seq} is {found.get(seq)}, was {payload}")
        if len(set(payloads)) != len(payloads):
            raise Violation(f"{topic}: a payload was written twice")
        if sorted(found) != list(range(1, len(found) + 1)):
            raise Violation(f"{topic}: the seqs are not dense")
        _check_order(topic, payloads)

    def _check_routers(self, client: httpx.Client) -> None:
        source = list(read(client, "source").values())
        kept = [payload for payload in source if payload.startswith("keep")]
        once, least = read(client, "once"), read(client, "least")
        if list(once.values()) != kept:
            raise Violation(
                f"once: {len(once)} copies of {len(kept)} records, {_first(once, kept)}"
            )
        if list(dict.fromkeys(least.values())) != source:
            raise Violation(f"least: {len(least)} copies of {len(source)} records")
        for topic, now in (("once", once), ("least", least)):
            for seq, payload in self.seen[topic].items():
                if now.get(seq) != payload:
                    raise Violation(f"{topic}: seq {seq} was {payload}, is {now.get(seq)}")
            self.seen[topic] = now


def _first(found: dict[int, str], wanted: list[str]) -> str:
    for (seq, payload), other in zip(found.items(), wanted, strict=False):
        if payload != other:
            return f"seq {seq} is {payload}, not {other}"
    return "one is longer"


def _check_order(topic: str, payloads: list[str]) -> None:
    newest: dict[str, int] = {}
    for payload in payloads:
        writer, _, number = payload.rpartition("/")
        if int(number) <= newest.get(writer, 0):
            raise Violation(f"{topic}: {payload} is out of order")
        newest[writer] = int(number)


def read(client: httpx.Client, topic: str) -> dict[int, str]:
    """Return every record of a topic; a loss that is told of is one too many after a kill."""
    found: dict[int, str] = {}
    cursor = 0
    while True:
        body = {"from_seq": cursor, "limit": PAGE_RECORDS}
        response = client.post(f"/v0/topics/{topic}/diff", json=body)
        if response.status_code != httpx.codes.OK:
            raise Violation(f"{topic}: {response.status_code} {response.text}")
        page = response.json()
        if page["tombstone"] is not None and topic not in {"ephemeral", "memory"}:
            raise Violation(f"{topic}: a loss is announced: {page['tombstone']}")
        found |= {record["$seq"]: record["data"] for record in page["records"]}
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return found


def now_ms() -> int:
    return int(time.time() * 1000)
