"""A group on a server that will be killed: consumers in processes of their own, and a producer.

A consumer that is killed says nothing any more: no leave, no release. What it had polled and not
committed must come to somebody else.
"""

import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.property.engine.group_oracle import GroupOracle

from topics.testing.crash_observe import Violation

GROUP = "g"
PARTITIONS = 4
PLAIN, SPREAD = "plain", "spread"
TOPICS = (PLAIN, SPREAD)
TIMEOUT_S = 10.0
ROOT = Path(__file__).parents[2]
Place = tuple[str, int]


class Shared:
    """What all consumers together told."""

    def __init__(self) -> None:
        self.oracle = GroupOracle()
        self.lock = threading.Lock()
        self.processed: dict[Place, set[int]] = defaultdict(set)
        self.written: dict[Place, set[int]] = defaultdict(set)
        self.workers: dict[tuple[int, Place], str] = {}
        """Who worked on a partition in a generation."""
        self.commits = 0
        self.broken: list[BaseException] = []

    def take(self, member: str, told: dict[str, Any]) -> None:
        """Hold one line of a consumer against all others; in any order between consumers."""
        with self.lock:
            if "broken" in told:
                raise Violation(f"{member}: {told['broken']}")
            if "committed" in told:
                self.commits += 1
                self.oracle.acknowledged(told["committed"], since={})
                return
            generation = told["generation"]
            if "held" in told:
                self.oracle.hear(member, generation, told["held"], since=0)
                return
            topic, partition, seqs = told["worked"]
            place = topic, partition
            worker = self.workers.setdefault((generation, place), member)
            assert worker == member, f"{place}: {worker} and {member} worked in {generation}"
            self.processed[place] |= set(seqs)

    def has_processed(self, seqs: Mapping[Place, Collection[int]]) -> bool:
        """Tell whether each of these is known to have been processed, by whomever."""
        with self.lock:
            return all(self.processed[place].issuperset(seqs[place]) for place in list(seqs))


class Consumer:
    """One member in its own process."""

    def __init__(self, shared: Shared, url: str, member: str) -> None:
        self._shared = shared
        self.member = member
        command = [sys.executable, "-m", "tests.crash.group_consumer", url, GROUP, member, *TOPICS]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def kill9(self) -> None:
        """End it in the middle of whatever it does; what it has told is taken in."""
        self._child.kill()
        self._child.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    return  # it was killed in the middle of a word
                try:
                    self._shared.take(self.member, json.loads(line))
                except (Violation, AssertionError) as error:
                    self._shared.broken.append(error)


class Producer:
    """Writes to all topics, in its own thread."""

    def __init__(self, shared: Shared, url: str) -> None:
        self._shared = shared
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._stopped.is_set():
            try:
                with httpx.Client(base_url=self._url, timeout=TIMEOUT_S, trust_env=False) as client:
                    number = 0
                    while not self._stopped.is_set():
                        number += 1
                        for topic in TOPICS:
                            self._write(client, topic, number)
            except httpx.TransportError:
                self._stopped.wait(0.01)

    def _write(self, client: httpx.Client, topic: str, number: int) -> None:
        records = [{"data": n, "key": f"{number}/{n}"} for n in range(3)]
        response = client.post(f"/v0/topics/{topic}", json={"records": records})
        if response.status_code != httpx.codes.OK:
            return
        seqs = response.json()["seqs"]
        with self._shared.lock:
            for partition, seq in seqs if topic == SPREAD else [(0, seq) for seq in seqs]:
                self._shared.written[topic, partition].add(seq)
