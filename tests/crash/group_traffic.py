"""Consumers of a group on a server that will be killed, each a thread that may be killed too.

A consumer that is killed says nothing any more: no leave, no release. What it had polled and not
committed must come to somebody else.
"""

import threading
from collections.abc import Callable
from typing import Any

import httpx
from tests.property.engine.group_oracle import GroupOracle

from topics.testing.crash_observe import Violation

GROUP = "g"
TOPICS = ("a", "b", "c", "d")
SESSION_MS = 1_000
PATIENCE = httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE
TIMEOUT_S = 10.0
Reply = dict[str, object]


class Shared:
    """What all consumers together know."""

    def __init__(self) -> None:
        self.oracle = GroupOracle()
        self.lock = threading.Lock()
        self.processed: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        self.written: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        self.commits = 0
        self.broken: list[BaseException] = []

    def run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (Violation, AssertionError, KeyError) as error:
            self.broken.append(error)


class GenerationIsOver(Exception):
    """Heartbeat first; for one who is no member any more, join."""


class Consumer:
    """One member in its own thread; it comes again after every end of the server."""

    def __init__(self, shared: Shared, url: str, member: str) -> None:
        self._shared = shared
        self._url = url
        self.member = member
        self._killed = threading.Event()
        self._generation = 0
        self._positions: dict[str, dict[str, int]] = {}
        self._release: dict[str, list[int]] = {}
        self._is_member = False
        self._thread = threading.Thread(target=shared.run, args=(self._live,))
        self._thread.start()

    def kill(self) -> None:
        """Let it do nothing any more, whatever it was doing."""
        self._killed.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._killed.is_set():
            try:
                with httpx.Client(base_url=self._url, timeout=TIMEOUT_S, trust_env=False) as client:
                    while not self._killed.is_set():
                        self._step(client)
            except httpx.TransportError:
                self._killed.wait(0.01)  # the server is dead, for now

    def _step(self, client: httpx.Client) -> None:
        try:
            if self._is_member:
                self._beat(client)
                self._work(client)
            else:
                self._join(client)
        except GenerationIsOver:
            self._generation = 0

    def _join(self, client: httpx.Client) -> None:
        body = {"member": self.member, "topics": TOPICS, "session_ms": SESSION_MS}
        joined = self._ask(client, "join", body)
        if joined is not None:
            self._is_member = True
            self._positions, self._release = {}, {}
            self._hear(joined, joined["assigned"])

    def _beat(self, client: httpx.Client) -> None:
        body = {"member": self.member, "generation": self._generation, "released": self._release}
        try:
            beat = self._ask(client, "heartbeat", body)
        except GenerationIsOver:
            self._is_member = False
            raise
        if beat is not None:
            held = {**beat["assigned"]}
            for topic, numbers in beat["release"].items():
                held[topic] = held.get(topic, []) + numbers
            self._hear(beat, held)
            self._release = beat["release"]

    def _hear(self, reply: Any, held: Any) -> None:  # noqa: ANN401 - any JSON
        self._generation = reply["generation"]
        with self._shared.lock:
            self._shared.oracle.hear(self.member, self._generation, held, since=reply["since"])
        # What was lost and came back starts at what is committed; what was kept goes on.
        self._positions = {
            topic: {number: self._positions.get(topic, {}).get(number, seq)}
            for topic, by_number in reply["committed"].items()
            for number, seq in by_number.items()
        }

    def _work(self, client: httpx.Client) -> None:
        body = {
            "member": self.member,
            "generation": self._generation,
            "limit": 20,
            "wait_ms": 20,
            "positions": self._positions,
        }
        polled = self._ask(client, "poll", body)
        if polled is None or self._killed.is_set():
            return
        with self._shared.lock:
            for batch in polled["batches"]:
                if batch["tombstone"] is not None:
                    raise Violation(f"a consumer is told of a loss: {batch['tombstone']}")
                seqs = {record["$seq"] for record in batch["records"]}
                self._shared.processed[batch["topic"]] |= seqs
        self._positions = polled["positions"]
        if polled["batches"]:
            body = {"member": self.member, "generation": self._generation}
            with self._shared.lock:
                told = dict(self._shared.oracle.committed)
            done = self._ask(client, "commit", {**body, "offsets": self._positions})
            if done is not None:
                with self._shared.lock:
                    self._shared.commits += 1
                    self._shared.oracle.acknowledged(done["committed"], since=told)

    def _ask(self, client: httpx.Client, word: str, body: Reply) -> Any:  # noqa: ANN401 - any JSON
        """Return the answer with the newest generation from before the question, as `since`."""
        since = self._shared.oracle.generation
        response = client.post(f"/v0/groups/{GROUP}/{word}", json=body)
        if response.status_code in PATIENCE:
            return None
        reply: dict[str, object] = response.json()
        if response.status_code == httpx.codes.CONFLICT:
            raise GenerationIsOver
        if response.status_code != httpx.codes.OK:
            raise Violation(f"{word}: {response.status_code} {response.text}")
        return {**reply, "since": since}


class Producer:
    """Writes to all topics, in its own thread."""

    def __init__(self, shared: Shared, url: str) -> None:
        self._shared = shared
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=shared.run, args=(self._live,))
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._stopped.is_set():
            try:
                with httpx.Client(base_url=self._url, timeout=TIMEOUT_S, trust_env=False) as client:
                    while not self._stopped.is_set():
                        for topic in TOPICS:
                            self._write(client, topic)
            except httpx.TransportError:
                self._stopped.wait(0.01)

    def _write(self, client: httpx.Client, topic: str) -> None:
        body = {"records": [{"data": n} for n in range(3)]}
        response = client.post(f"/v0/topics/{topic}", json=body)
        if response.status_code in {httpx.codes.OK, httpx.codes.CREATED}:
            self._shared.written[topic] |= set(response.json()["seqs"])
