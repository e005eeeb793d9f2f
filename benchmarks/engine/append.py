"""Append: 200 B records in batches of 1000 from JSON bytes, in process."""

import threading
import time

import topics
from benchmarks.engine.payloads import BATCH, body
from benchmarks.engine.places import data_dir

WARM_UP = 40
"""Batches of all threads together: more of them would leave the checkpoint work to do."""


def records_per_second(*, durability: str, threads: int, batches: int) -> float:
    """Append with so many threads to one topic each, and return the rate of all of them."""
    request = body()
    with data_dir() as path, topics.open(path) as log:
        for number in range(threads):
            log.create(f"bench-{number}", durability=durability)
            for _ in range(max(1, WARM_UP // threads)):
                log.append_json(f"bench-{number}", request)

        def work(number: int) -> None:
            for _ in range(batches // threads):
                log.append_json(f"bench-{number}", request)

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        elapsed = time.perf_counter() - started
    return (batches // threads) * threads * BATCH / elapsed


def microseconds_per_batch(log: topics.Log, topic: str, *, batches: int) -> float:
    """Return the median time of one append of 1000 records."""
    request = body()
    times = []
    for _ in range(batches):
        started = time.perf_counter()
        log.append_json(topic, request)
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2] * 1e6
