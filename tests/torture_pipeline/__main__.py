"""`make torture-pipeline`: kill -9 of driver, worker and server, at random, under two streams.

    python -m tests.torture_pipeline [--cycles N] [--seed S] [--seconds N]

A feeder writes numbered records all the while. In the end every record is in the lake once, in the
copy once, and unchanged; in the lake by its own log, in its typed table, and as a Delta table.
Prints its seed first.
"""

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.pipeline.feed import Feed
from tests.torture_pipeline.names import COPY, SOURCE
from tests.torture_pipeline.processes import workers_below

from topics.pipeline.lake.log import RAW, table_dir
from topics.pipeline.lake.tables import table_files
from topics.pipeline.server import Server
from topics.testing.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
START_S, CATCH_UP_S = 180.0, 400.0
KINDS = ("driver", "worker", "server")


class Feeder(threading.Thread):
    """Writes 0, 1, 2 … in batches of fifty; a batch whose answer was lost is sent again."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._server = Server(url)
        self._done = threading.Event()
        self.written = 0

    def run(self) -> None:
        batch = 0
        while not self._done.wait(0.2):
            batch += 1
            records = [{"data": {"n": n}} for n in range(self.written, self.written + 50)]
            body = {"records": records, "producer_id": "feeder", "producer_seq": batch}
            self._server.append(SOURCE, msgspec.json.encode(body))
            self.written += 50

    def finish(self) -> int:
        self._done.set()
        self.join(120)
        assert not self.is_alive(), "the feeder hangs"
        return self.written


class Driver:
    """The process with Spark in it, started again whenever it is gone."""

    def __init__(self, url: str, folder: str) -> None:
        self._environment = {
            **os.environ,
            "TORTURE_URL": url,
            "TORTURE_FOLDER": folder,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        }
        self._child: subprocess.Popen[bytes] | None = None
        self._said = Path(folder) / "driver.log"

    def start(self, *, once: bool = False) -> None:
        environment = {**self._environment, "TORTURE_ONCE": "1" if once else "0"}
        with self._said.open("ab") as said:
            said.truncate(0)
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.torture_pipeline.driver"],
                cwd=ROOT,
                env=environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while b"running" not in self._said.read_bytes():
            assert time.monotonic() < deadline, self._said.read_text()[-2_000:]
            assert self._child.poll() is None, self._said.read_text()[-2_000:]
            time.sleep(0.1)

    def is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def kill(self) -> None:
        """Kill Python, Java and all workers: they share a process group of their own."""
        assert self._child is not None
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def kill_worker(self, chance: random.Random) -> bool:
        assert self._child is not None
        found = workers_below(self._child.pid)
        if not found:
            return False
        try:
            os.kill(chance.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def wait(self) -> None:
        assert self._child is not None
        assert self._child.wait(CATCH_UP_S) == 0, self._said.read_text()[-4_000:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture_pipeline")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="topics-torture-") as folder:
        settings = {"TOPICS_SEGMENT_MAX_EVENTS": "1000", "TOPICS_CHECKPOINT_MS": "100"}
        with ServerProcess(f"{folder}/data", settings=settings) as server:
            Feed(server.url, SOURCE).create(durability="fsync")
            Feed(server.url, COPY).create(durability="fsync")
            killed, written = torture(server, folder, chance, options.cycles, options.seconds)
            problems = compare(server.url, folder, written)
    if kills(killed) < options.cycles:
        problems.append(f"{kills(killed)} kills in {options.seconds:.0f} s: give it more --seconds")
    print(f"killed: {dict(killed)}", flush=True)
    for problem in problems:
        print(f"FAILED with seed {options.seed}: {problem}", file=sys.stderr)
    return bool(problems)


def torture(
    server: ServerProcess, folder: str, chance: random.Random, cycles: int, seconds: float
) -> tuple[Counter[str], int]:
    """Kill and start again; then let both streams read to the end. Returns what was written."""
    feeder = Feeder(server.url)
    feeder.start()
    driver = Driver(server.url, folder)
    killed: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    driver.start()
    while kills(killed) < cycles and time.monotonic() < deadline:
        time.sleep(chance.uniform(0.5, 4.0))
        kind = chance.choice(KINDS)
        if not driver.is_alive():
            killed["driver ended by itself"] += 1
            driver.start()
        elif kind == "driver":
            driver.kill()
            driver.start()
            killed[kind] += 1
        elif kind == "server":
            server.kill9()
            server.start()
            killed[kind] += 1
        elif driver.kill_worker(chance):
            killed[kind] += 1
    driver.kill()
    written = feeder.finish()
    print(f"{kills(killed)} kills, {written} records; catching up", flush=True)
    driver.start(once=True)
    driver.wait()
    return killed, written


def kills(killed: Counter[str]) -> int:
    """Count what we killed; a driver that ended after its server was killed is none of ours."""
    return sum(killed[kind] for kind in KINDS)


def compare(url: str, folder: str, written: int) -> list[str]:
    """Say what differs between the records, the lake and the copy."""
    with Feed(url, SOURCE) as feed:
        source = {record["$seq"]: record["data"]["n"] for record in feed.records()}
        copy = [record["data"]["n"] for record in feed.records(COPY)]
    problems = []
    if sorted(source.values()) != list(range(written)):
        problems.append("the source itself does not hold every number once")
    if sorted(copy) != list(range(written)):
        problems.append(f"the copy has {len(copy)} records, {len(set(copy))} of them different")
    tables = read_tables(f"{folder}/lake")
    for name, rows in tables.items():
        if sorted(rows) != sorted(source.items()):
            problems.append(f"{name} has {len(rows)} rows, {len(set(rows))} of them different")
    counts = {name: len(rows) for name, rows in tables.items()}
    print(f"{len(source)} records, {len(copy)} in the copy, rows: {counts}", flush=True)
    return problems


def read_tables(root: str) -> dict[str, list[tuple[int, int]]]:
    """Return seq and number of every row: by the log of the lake, and as others read it."""
    raw = [row for path in table_files(root, RAW) for row in read_file(path, "data")]
    typed = [row for path in table_files(root, SOURCE) for row in read_file(path, "value")]
    delta = DeltaTable(f"{root}/{table_dir(RAW)}").to_pyarrow_table(columns=["seq", "data"])
    return {
        RAW: [(row["seq"], msgspec.json.decode(row["data"])["n"]) for row in raw],
        SOURCE: [(row["seq"], row["value"]["n"]) for row in typed],
        "Delta": [(row["seq"], msgspec.json.decode(row["data"])["n"]) for row in delta.to_pylist()],
    }


def read_file(path: str, column: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(path).read(columns=["seq", column]).to_pylist()
    return rows


if __name__ == "__main__":
    sys.exit(main())
