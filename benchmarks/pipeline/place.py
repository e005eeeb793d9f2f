"""The data of one run: the same records as JSON lines, as a topic and as Parquet."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from topics.pipeline.jobs.bulk_load import LoadOptions, bulk_load
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.load_input import LoadInput
from topics.testing.server_process import ServerProcess

RECORD_BYTES = 200
SCHEMA = "id bigint, user string, kind string, price double, items array<int>, note string"
KINDS = ("view", "cart", "order", "return")
SEED = 20_261_115


def write_lines(path: Path, count: int) -> None:
    """Write records of about 200 bytes, in files of 250,000."""
    chance = random.Random(SEED)
    path.mkdir(parents=True)
    note = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=10_000))
    for first in range(0, count, 250_000):
        lines = []
        for n in range(first, min(first + 250_000, count)):
            record = {
                "id": n,
                "user": f"user-{n * 7919 % 100_003:06}",
                "kind": KINDS[n % 4],
                "price": n % 10_000 / 100,
                "items": [n % 7, n % 11, n % 13],
                "note": "",
            }
            room = RECORD_BYTES - len(json.dumps(record))
            at = n * 31 % (len(note) - RECORD_BYTES)
            lines.append(json.dumps(record | {"note": note[at : at + room]}))
        (path / f"{first:09}.jsonl").write_text("\n".join(lines) + "\n")


class Bench:
    """One Spark, one server, one folder."""

    def __init__(self, spark: SparkSession, server: ServerProcess, folder: Path) -> None:
        self.spark = spark
        self.server = server
        self.folder = folder

    def lines(self, name: str) -> DataFrame:
        return self.spark.read.schema(SCHEMA).json(str(self.folder / name))

    def topic(self, name: str, schema: str | None = None) -> DataFrame:
        """Read a topic; with a schema only these columns, which Spark does not prune by itself."""
        given = {"url": self.server.url, "topic": name}
        reader = self.spark.read.format("topics").options(**given)
        return (reader if schema is None else reader.schema(schema)).load()

    def load(self, lines: str, topic: str) -> float:
        """Load lines into a new topic; return the seconds."""
        options = LoadOptions(
            url=self.server.url,
            topic=topic,
            input=LoadInput(format="jsonl", path=str(self.folder / lines)),
        )
        started = time.perf_counter()
        with JobRun("bulk-load") as run:
            bulk_load(self.spark, options, run)
        return time.perf_counter() - started


def scan(frame: DataFrame) -> None:
    """Make Spark read every column, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def best_s(work: Callable[[], object], *, tries: int = 3) -> float:
    """Return the seconds of the best try; the first one warms up."""
    found = []
    for _ in range(tries):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)
