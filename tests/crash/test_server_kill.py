"""kill -9 of a real server under mixed load: appends, keys, jobs, routers, a watcher."""

import time
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest
from tests.crash.server_ledger import Ledger
from tests.crash.server_traffic import Traffic, Watcher, open_client, prepare

from topics.testing.crash_observe import Violation
from topics.testing.server_process import ServerProcess

CYCLES = 5
ACKS_A_LIFE = 150
LIFE_S = 15.0
BUSY = {
    "TOPICS_WAL_FILE_BYTES": "65536",
    "TOPICS_SEGMENT_MAX_EVENTS": "100",
    "TOPICS_CHECKPOINT_MS": "25",
    "TOPICS_SNAPSHOT_MS": "100",
}


def kill_server_cycles(directory: str, *, cycles: int, seed: int) -> Generator[int, None, None]:
    """Load, kill, start, compare; yield how many writes each life acknowledged."""
    chance = Random(seed)
    ledger, watcher = Ledger(), Watcher()
    with ServerProcess(directory, settings=BUSY) as server, open_client(server.url) as client:
        prepare(client)
        for cycle in range(cycles):
            before = ledger.acks
            traffic = Traffic(server.url, ledger, watcher, seed=f"{seed}/{cycle}")
            _wait_for_acks(ledger, before + chance.randint(20, ACKS_A_LIFE), traffic)
            server.kill9()
            traffic.join()
            for jobs in ledger.jobs:
                jobs.crashed()
            server.restart()
            ledger.check(client)
            watcher.check(client)
            yield ledger.acks - before


def _wait_for_acks(ledger: Ledger, count: int, traffic: Traffic) -> None:
    deadline_s = time.monotonic() + LIFE_S
    while ledger.acks < count and not traffic.broken:
        if time.monotonic() > deadline_s:
            raise Violation(f"only {ledger.acks} of {count} writes were acknowledged in time")
        time.sleep(0.001)


@pytest.mark.crash
def test_a_killed_server_keeps_every_promise(tmp_path: Path) -> None:
    acks = list(kill_server_cycles(str(tmp_path / "data"), cycles=CYCLES, seed=1))
    assert len(acks) == CYCLES
    assert min(acks) >= 20
