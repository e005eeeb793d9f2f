"""kill -9 of a real server, and of the processes of its consumers, under one group (oracle 7)."""

import time
from pathlib import Path
from random import Random

import httpx
import pytest
from tests.crash.group_traffic import (
    GROUP,
    PARTITIONS,
    PLAIN,
    SPREAD,
    Consumer,
    Producer,
    Shared,
)

from topics.testing.crash_observe import Violation
from topics.testing.server_process import ServerProcess

CYCLES = 4
COMMITS_A_LIFE = 40
LIFE_S = 15.0
BUSY = {
    "TOPICS_WAL_FILE_BYTES": "65536",
    "TOPICS_CHECKPOINT_MS": "25",
    "TOPICS_SNAPSHOT_MS": "100",
    "TOPICS_SWEEP_MS": "100",
}


def wait_until(shared: Shared, what: str, holds: object) -> None:
    assert callable(holds)
    deadline_s = time.monotonic() + LIFE_S
    while not holds():
        if shared.broken:
            raise shared.broken[0]
        if time.monotonic() > deadline_s:
            raise Violation(f"not in time: {what}")
        time.sleep(0.005)


def check(shared: Shared, server: ServerProcess) -> None:
    """Hold what the server shows against what was told before it was asked."""
    with shared.lock:
        told = dict(shared.oracle.committed)
    with httpx.Client(base_url=server.url, timeout=10.0, trust_env=False) as client:
        state = client.get(f"/v0/groups/{GROUP}").raise_for_status().json()
    committed = {}
    with shared.lock:
        for found in state["partitions"]:
            place = found["topic"], found["partition"]
            shared.oracle.see(place, found["committed"], head_seq=found["head_seq"], since=told)
            committed[place] = range(1, (found["committed"] or 0) + 1)
    # Told before it was committed, but perhaps not read yet.
    wait_until(shared, "committed is processed", lambda: shared.has_processed(committed))


@pytest.mark.crash
def test_killed_servers_and_consumers_lose_no_record_and_no_progress(tmp_path: Path) -> None:
    chance = Random(1)
    shared = Shared()
    with ServerProcess(str(tmp_path / "data"), settings=BUSY) as server:
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            client.put(f"/v0/topics/{PLAIN}", json={}).raise_for_status()
            partitioned = {"partitions": PARTITIONS}
            client.put(f"/v0/topics/{SPREAD}", json=partitioned).raise_for_status()
        consumers = [Consumer(shared, server.url, f"m{n}") for n in range(3)]
        producer = Producer(shared, server.url)
        try:
            for cycle in range(CYCLES):
                wanted = shared.commits + chance.randint(10, COMMITS_A_LIFE)
                wait_until(shared, "commits", lambda wanted=wanted: shared.commits >= wanted)
                consumers.pop(chance.randrange(3)).kill9()
                server.kill9()
                server.restart()
                check(shared, server)
                consumers.append(Consumer(shared, server.url, f"m{cycle + 3}"))
            producer.stop()
            wait_until(
                shared,
                "every record is processed",
                lambda: shared.has_processed(shared.written),
            )
            check(shared, server)
        finally:
            producer.stop()
            for consumer in consumers:
                consumer.kill9()
    if shared.broken:
        raise shared.broken[0]
