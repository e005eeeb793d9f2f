"""The whole hostile set beside the probe; by itself it prints the table.

.venv/bin/python -m tests.load.hostile [PART OF A ROW'S NAME …]
"""

import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

from tests.load.hostile_requests import KEYS, ROWS, Attack, Server, prepare
from tests.load.stall import Stall, StallProbe

from topics.testing.server_process import ServerProcess

REST_S = 1.0
"""What a request left behind for later may stall the others, too."""


def run_rows(data_dir: str, *, only: Sequence[str] = ()) -> Iterator[tuple[str, Stall]]:
    """Do one after the other to one server, and say what it did to everybody else."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ServerProcess(data_dir, keys=KEYS) as process:
        server = Server(process.port)
        with StallProbe(process) as probe:
            yield "a million records and 100,000 topics are made", measure(probe, prepare, server)
        with StallProbe(process) as probe:
            yield "nothing at all", measure(probe, lambda _: time.sleep(REST_S), server)
            for name, attack in ROWS.items():
                if not only or any(part in name for part in only):
                    yield name, measure(probe, attack, server)


def measure(probe: StallProbe, attack: Attack, server: Server) -> Stall:
    probe.begin()
    attacker = threading.Thread(target=_attack, args=(attack, server))
    attacker.start()
    attacker.join()
    time.sleep(REST_S)
    return probe.end()


def _attack(attack: Attack, server: Server) -> None:
    """Attack as from another machine: with what the server and the probe leave of this one."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # of this thread and its own
    attack(server)


def format_row(name: str, stall: Stall) -> str:
    return f"{stall.worst_ms:9.1f} ms {stall.grown_bytes / 2**20:8.0f} MiB  {name}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        for row_name, row_stall in run_rows(f"{directory}/data", only=sys.argv[1:]):
            print(format_row(row_name, row_stall), flush=True)
