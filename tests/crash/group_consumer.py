"""One consumer of a group, a process that is killed in the middle of anything.

`python -m tests.crash.group_consumer URL GROUP MEMBER TOPIC…` tells on stdout, a JSON line each,
and before it goes on, what it was given (`held`, `generation`), what it has processed (`worked`:
topic, partition, seqs; `generation`), what the server acknowledged (`committed`). It comes again
after every end of the server, and ends only by a kill, or by itself after a while.
"""

import json
import sys
import time
from typing import Any

import httpx

SESSION_MS = 1_000
TIMEOUT_S = 10.0
LIFE_S = 120.0
LATER = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)


class GenerationIsOver(Exception):
    """Heartbeat first; for one who is no member any more, join."""


class Consumer:
    """One member."""

    def __init__(self, url: str, group: str, member: str, topics: list[str]) -> None:
        self._url = url
        self._path = f"/v0/groups/{group}"
        self._member = member
        self._topics = topics
        self._is_member = False
        self._generation = 0
        self._positions: dict[str, dict[str, int]] = {}
        self._release: dict[str, list[int]] = {}

    def live(self) -> None:
        end_s = time.monotonic() + LIFE_S
        while time.monotonic() < end_s:
            try:
                with httpx.Client(base_url=self._url, timeout=TIMEOUT_S, trust_env=False) as client:
                    while time.monotonic() < end_s:
                        self._step(client)
            except httpx.TransportError:
                time.sleep(0.01)  # the server is dead, for now

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
        joined = self._ask(client, "join", {"topics": self._topics, "session_ms": SESSION_MS})
        if joined is not None:
            self._is_member = True
            self._positions, self._release = {}, {}
            self._hear(joined, joined["assigned"])

    def _beat(self, client: httpx.Client) -> None:
        body = {"generation": self._generation, "released": self._release}
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

    def _hear(self, reply: dict[str, Any], held: dict[str, list[int]]) -> None:
        self._generation = reply["generation"]
        tell({"held": held, "generation": self._generation})
        # What was lost and came back starts at what is committed; what was kept goes on.
        self._positions = {
            topic: {
                number: self._positions.get(topic, {}).get(number, seq)
                for number, seq in by_number.items()
            }
            for topic, by_number in reply["committed"].items()
        }

    def _work(self, client: httpx.Client) -> None:
        body = {"limit": 20, "wait_ms": 20, "positions": self._positions}
        polled = self._ask(client, "poll", {**body, "generation": self._generation})
        if polled is None:
            return
        for batch in polled["batches"]:
            if batch["tombstone"] is not None:
                tell({"broken": f"a consumer is told of a loss: {batch['tombstone']}"})
            seqs = [record["$seq"] for record in batch["records"]]
            worked = [batch["topic"], batch["partition"], seqs]
            tell({"worked": worked, "generation": self._generation})
        self._positions = polled["positions"]
        if polled["batches"]:
            body = {"generation": self._generation, "offsets": self._positions}
            done = self._ask(client, "commit", body)
            if done is not None:
                tell({"committed": done["committed"]})

    def _ask(self, client: httpx.Client, word: str, body: dict[str, Any]) -> dict[str, Any] | None:
        response = client.post(f"{self._path}/{word}", json={"member": self._member, **body})
        if response.status_code in LATER:
            return None
        if response.status_code == httpx.codes.CONFLICT:
            raise GenerationIsOver
        if response.status_code != httpx.codes.OK:
            tell({"broken": f"{word}: {response.status_code} {response.text}"})
            return None
        reply: dict[str, Any] = response.json()
        return reply


def tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _, _url, _group, _member, *_topics = sys.argv
    Consumer(_url, _group, _member, _topics).live()
