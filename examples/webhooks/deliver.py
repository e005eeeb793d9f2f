"""Deliver events to webhooks: each hook has a queue of its own, so that none waits for another.

    deliver.py NAME=URL [NAME=URL ...]

A hook NAME gets the events whose tag begins with `NAME.`. A router copies them from the topic
`events` into the queue `hooks.NAME`; a worker posts each to URL. What fails comes again, later and
later; what failed MAX_DELIVERIES times is in `hooks.dead`, and `topics queue redrive` or the
console brings it back.
"""

import argparse
import json
import threading
import urllib.error
import urllib.request
from functools import partial

import topics
from topics.handles.worker import Worker
from topics.model.stream import TypedJob

EVENTS = "events"
DEAD = "hooks.dead"
MAX_DELIVERIES = 3
TIMEOUT_S = 5.0


def set_up(client: topics.Topics, name: str) -> str:
    """Make the queue of a hook and the router into it; again is no harm."""
    queue = f"hooks.{name}"
    client.create(queue, type="queue", max_deliveries=MAX_DELIVERIES, dead_letter=DEAD)
    client.put_router(queue, source=EVENTS, dest=queue, filter=["tag", "Glob", f"{name}.*"])
    return queue


def deliver(url: str, job: TypedJob[object]) -> None:
    """Post one event; an answer that is not a success raises, and the event comes again."""
    headers = {
        "Content-Type": "application/json",
        "X-Event": job.tag or "",
        "X-Event-Id": str(job.seq),  # the same for every try: a receiver knows a repeat by it
    }
    request = urllib.request.Request(url, json.dumps(job.data).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):
        print(f"delivered {job.tag} {job.seq} at try {job.deliveries}", flush=True)


def try_to_deliver(url: str, job: TypedJob[object]) -> None:
    try:
        deliver(url, job)
    except urllib.error.URLError as error:
        print(f"failed {job.tag} {job.seq} at try {job.deliveries}: {error}", flush=True)
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description="Deliver events to webhooks.")
    parser.add_argument("hooks", nargs="+", metavar="NAME=URL")
    parser.add_argument("--backoff-ms", type=int, default=1_000, help="before the second try")
    arguments = parser.parse_args()
    with topics.Topics() as client:
        workers: list[Worker[object]] = []
        for hook in arguments.hooks:
            name, _, url = hook.partition("=")
            queue = client.queue(set_up(client, name), object)
            worker = queue.worker(concurrency=4, backoff_ms=arguments.backoff_ms, idle_ms=200)
            workers.append(worker(partial(try_to_deliver, url)))
        run(workers)


def run(workers: list[Worker[object]]) -> None:
    """Run all until Ctrl-C or SIGTERM, which the first one hears in the main thread."""
    first, *others = workers
    threads = [threading.Thread(target=worker.run) for worker in others]
    for thread in threads:
        thread.start()
    print("delivering", flush=True)
    first.run()
    for worker in others:
        worker.stop()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
