"""`topics bench`: a short self-test of a server, with a topic of its own that it removes again."""

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import typer
from msgspec import Struct

from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.output import print_rows, say
from topics.clock import Clock, SystemClock

if TYPE_CHECKING:
    from topics.client import Topics

WRITTEN_MAX: Final = 256 * 1024 * 1024
"""Bytes of data that one phase writes at most, however fast the server is."""
PHASE_S_MAX: Final = 60.0
PAGE_RECORDS: Final = 1_000
COLUMNS: Final = (
    "phase", "requests", "records", "seconds", "records_per_s", "p50_ms", "p99_ms", "max_ms",
)  # fmt: skip
Durability = Literal["ephemeral", "memory", "disk", "fsync"]
Work = Callable[[], int]
"""One request; it returns how many records it carried, 0 when there is nothing left."""


class Phase(Struct, frozen=True):
    """What one phase came to: the latency of each request, and how long it all took."""

    name: str
    records: int
    seconds: float
    latencies_ms: list[float]

    def row(self, size: int) -> dict[str, object]:
        spent = sorted(self.latencies_ms)
        return {
            "phase": self.name,
            "requests": len(spent),
            "records": self.records,
            "record_bytes": size,
            "seconds": round(self.seconds, 2),
            "records_per_s": round(self.records / max(self.seconds, 1e-9)),
            "p50_ms": percentile(spent, 0.50),
            "p99_ms": percentile(spent, 0.99),
            "max_ms": percentile(spent, 1.0),
        }


def percentile(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3)


def run_bench(
    *,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=PHASE_S_MAX, help="of each of three phases")
    ] = 2.0,
    size: Annotated[
        int, typer.Option("--size", min=1, max=65_536, help="bytes of data of a record")
    ] = 100,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=10_000, help="records of one batch")
    ] = 100,
    threads: Annotated[
        int, typer.Option("--threads", min=1, max=64, help="requests under way at once")
    ] = 4,
    durability: Annotated[
        Durability, typer.Option("--durability", help="class of the topic it makes")
    ] = "fsync",
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Measure a server for a few seconds: append one by one, in batches, then read.

    It says what one Python client reaches from here, network included, and is
    no limit of the server; what is read is not decoded. It writes at most
    256 MiB a phase into a topic of its own, and removes that.
    """
    record = {"data": "x" * (size - 2) if size > 2 else 1}
    clock = SystemClock()
    with connect(url, context) as client, _own_topic(client, durability) as topic:
        say(f"{client.url}, class {durability}, {threads} threads, records of {size} bytes")

        def append(count: int) -> Work:
            records = [record] * count
            body = msgspec.json.encode({"records": records})
            return lambda: client.append_json(topic, body).count

        most = WRITTEN_MAX // size
        phases = [
            ("append one by one", append(1), most),
            (f"append {batch} at once", append(batch), most),
            (f"read up to {PAGE_RECORDS} at once", _reader(client, topic), 10 * most),
        ]
        rows = []
        for name, work, most_records in phases:
            runner = Runner(clock, seconds=seconds, threads=threads, most_records=most_records)
            rows.append(runner.run(name, work).row(size))
    print_rows(rows, COLUMNS, as_json=as_json)


class Runner:
    """Does one thing again and again on some threads, for a while."""

    def __init__(self, clock: Clock, *, seconds: float, threads: int, most_records: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._threads = threads
        self._most_records = most_records

    def run(self, name: str, work: Work) -> Phase:
        latencies: list[float] = []
        lock = threading.Lock()
        records = 0
        over = threading.Event()
        start_s = self._clock.monotonic_s()

        def go(_number: int) -> None:
            nonlocal records
            end_s = start_s + self._seconds
            while (before_s := self._clock.monotonic_s()) < end_s and not over.is_set():
                count = work()
                spent_ms = (self._clock.monotonic_s() - before_s) * 1_000
                with lock:
                    latencies.append(spent_ms)
                    records += count
                    if not count or records >= self._most_records:
                        return

        with ThreadPoolExecutor(self._threads) as pool:
            try:
                list(pool.map(go, range(self._threads)))
            finally:
                over.set()  # after Ctrl-C the pool waits for the threads
        return Phase(name, records, self._clock.monotonic_s() - start_s, latencies)


def _reader(client: "Topics", topic: str) -> Work:
    """Return what reads the topic from its begin to its end, and then again."""
    places = threading.local()

    def read() -> int:
        page = client.diff(topic, from_seq=getattr(places, "from_seq", 0), limit=PAGE_RECORDS)
        places.from_seq = 0 if page.caught_up else page.next_from_seq
        return page.count

    return read


@contextmanager
def _own_topic(client: "Topics", durability: Durability) -> Iterator[str]:
    topic = f"bench-{secrets.token_hex(6)}"
    client.create(topic, durability=durability)
    try:
        yield topic
    finally:
        client.drop(topic)
