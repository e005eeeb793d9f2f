"""Clients of a server that will be killed: writers, workers, a watcher; one thread each."""

import json
import threading
from collections.abc import Callable
from random import Random

import httpx
from tests.conformance.sse_client import Stream, decode_id
from tests.crash.server_ledger import CLASSES, Jobs, Ledger, Reply, now_ms, read

from topics.testing.crash_observe import Violation

TIMEOUT_S = 10.0
LEASE_MS = {True: 5_000, False: 60_000}
PATIENCE = httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE


def open_client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)


def prepare(client: httpx.Client) -> None:
    """Make the topics and the routers, once."""
    configs: dict[str, Reply] = {name: {"durability": name} for name in CLASSES}
    configs |= {"source": {"durability": "disk"}, "once": {}, "least": {}}
    configs["jobs"] = {"type": "queue"}
    configs["sure-jobs"] = {"type": "queue", "leases_durable": True, "durability": "fsync"}
    for name, config in configs.items():
        client.put(f"/v0/topics/{name}", json=config).raise_for_status()
    once = {"guarantee": "exactly_once", "filter": ["tag", "Eq", "keep"]}
    for dest, fields in (("once", once), ("least", {})):
        body = {"source": "source", "dest": dest, **fields}
        client.put(f"/v0/routers/source->{dest}", json=body).raise_for_status()


class Watcher:
    """Follows two topics through every life of the server, and wants the exact suffix each time."""

    TOPICS = ("disk", "fsync")

    def __init__(self) -> None:
        self.got: dict[str, dict[int, str]] = {topic: {} for topic in self.TOPICS}
        self._last_id: str | None = None
        self._url = ""

    def run(self, client: httpx.Client) -> None:
        with self._resume(client) as stream:
            while True:
                self._hear(stream)

    def check(self, client: httpx.Client) -> None:
        """Catch up, then compare with what is there."""
        wanted = {topic: read(client, topic) for topic in self.TOPICS}
        with self._resume(client) as stream:
            while any(len(self.got[topic]) < len(wanted[topic]) for topic in self.TOPICS):
                self._hear(stream)
        for topic, records in self.got.items():
            if other := sorted(records.items() ^ wanted[topic].items()):
                raise Violation(f"{topic}: the watcher differs from a reader in {other[:6]}")

    def _hear(self, stream: Stream) -> None:
        frame = stream.next()
        if frame.kind == "tombstone":
            raise Violation(f"a watcher is told of a loss: {frame.data}")
        if frame.kind == "record":
            body = frame.json
            topic = body["topic"]
            for record in body["records"]:
                if record["$seq"] != len(self.got[topic]) + 1:
                    raise Violation(f"{topic}: seq {record['$seq']} after {len(self.got[topic])}")
                self.got[topic][record["$seq"]] = record["data"]
        if frame.id is not None:
            self._last_id = frame.id

    def _resume(self, client: httpx.Client) -> Stream:
        if self._url:
            stream = Stream(client, self._url, last_id=self._last_id)
            if stream.response.status_code == httpx.codes.OK:
                return stream
            stream.close()
        cursor = decode_id(self._last_id) if self._last_id else {}
        topics = {topic: {"from_seq": cursor.get(topic, 0)} for topic in self.TOPICS}
        response = client.post("/v0/watch", json={"topics": topics})
        response.raise_for_status()
        self._url = response.json()["stream_url"]
        return Stream(client, self._url)


class Traffic:
    """All clients of one life; they end when the server does."""

    def __init__(self, url: str, ledger: Ledger, watcher: Watcher, *, seed: str) -> None:
        self.broken: list[Violation] = []
        self._url = url
        self._ledger = ledger
        self._chance = Random(seed)
        works: list[Callable[[httpx.Client], None]] = [watcher.run]
        works += [self._writer(topic) for topic in (*CLASSES, "source", "jobs", "sure-jobs")]
        for jobs in ledger.jobs:
            works += [self._worker(jobs, f"w{number}") for number in range(2)]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self.broken:
            raise self.broken[0]

    def _run(self, work: Callable[[httpx.Client], None]) -> None:
        try:
            with open_client(self._url) as client:
                work(client)
        except (httpx.TransportError, EOFError):
            pass  # the server is dead
        except Violation as violation:
            self.broken.append(violation)

    def _writer(self, topic: str) -> Callable[[httpx.Client], None]:
        def write_for_ever(client: httpx.Client) -> None:
            while True:
                self._write(client, topic)

        return write_for_ever

    def _write(self, client: httpx.Client, topic: str) -> None:
        """Write the next number, or again the one whose answer never came."""
        ledger = self._ledger
        number = ledger.pending.get(topic, ledger.last[topic] + 1)
        ledger.last[topic] = ledger.pending[topic] = number
        tag = "drop" if number % 3 == 0 else "keep"
        payload = f"{tag}/{number}" if topic == "source" else f"{topic}/{number}"
        ledger.submitted[topic].add(payload)
        body = {"records": [{"data": payload, "tag": tag}], "idempotency_key": f"{topic}-{number}"}
        reply = post(client, f"topics/{topic}", body)
        if reply is not None:
            ledger.answered(topic, topic, reply["first_seq"], payload)

    def _worker(self, jobs: Jobs, node: str) -> Callable[[httpx.Client], None]:
        chance = Random(self._chance.random())

        def work_for_ever(client: httpx.Client) -> None:
            for seq in [s for s, lease in list(jobs.held.items()) if lease.node == node]:
                self._finish(client, jobs, seq)
            while True:
                asked_ms = now_ms()
                body = {"node": node, "max": 3, "lease_ms": LEASE_MS[jobs.leases_durable]}
                reply = post(client, f"topics/{jobs.topic}/claim", body)
                claimed = reply["claimed"] if reply else []
                jobs.claimed(node, claimed, asked_ms=asked_ms)
                for job in claimed:
                    if chance.random() < 0.2:
                        jobs.released(job["$seq"])
                        body = {"node": node, "seqs": [job["$seq"]]}
                        post(client, f"topics/{jobs.topic}/nack", body)
                    else:
                        self._finish(client, jobs, job["$seq"])

        return work_for_ever

    def _finish(self, client: httpx.Client, jobs: Jobs, seq: int) -> None:
        lease = jobs.held[seq]
        was_asked = seq in jobs.acking  # the answer died with the server; it may have been done
        jobs.acking.add(seq)
        body = {"node": lease.node, "seqs": [seq], "lease_ids": [lease.lease_id]}
        reply = post(client, f"topics/{jobs.topic}/ack", body)
        if reply is None:
            return
        if not reply["skipped"] or (was_asked and jobs.holds(seq)):
            jobs.done(seq)
        elif jobs.holds(seq):
            raise Violation(f"{jobs.topic}: the ack of job {seq} was refused: {json.dumps(reply)}")


def post(client: httpx.Client, path: str, body: Reply) -> Reply | None:
    """Return the answer, or nothing when the server asks for patience."""
    response = client.post(f"/v0/{path}", json=body)
    if response.status_code in PATIENCE:
        return None
    if response.status_code not in {httpx.codes.OK, httpx.codes.CREATED}:
        raise Violation(f"POST {path}: {response.status_code} {response.text}")
    reply: Reply = response.json()
    return reply
