"""Workers: every job is done, failures come back, leases hold, a stop finishes what was begun."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.client.faces import DEADLINE_S, fresh

from topics.client import AsyncTopics, Topics
from topics.handles.work_plan import WorkerSettings, plan_backoff
from topics.handles.worker import Worker
from topics.model.queues import Job
from topics.model.stream import TypedJob
from topics.testing.server_process import ServerProcess

DRAINS = """
import os, sys
from topics import Topics
client = Topics(sys.argv[1])
@client.queue(sys.argv[2]).worker(concurrency=2)
def work(job):
    os.write(1, b"begun %d\\n" % job.data)  # one call a line: two threads write
    sys.stdin.readline()
    os.write(1, b"done %d\\n" % job.data)
work.run()
os.write(1, b"drained\\n")
"""


class Mail(msgspec.Struct):
    """A job."""

    to: str


def run_until(worker: Worker[Any], done: Callable[[], bool]) -> None:
    """Run a worker on a thread until something is true."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        deadline = threading.Event()
        for _ in range(int(DEADLINE_S * 100)):
            if done() or deadline.wait(0.01):
                break
        assert done(), "it did not happen in time"
    finally:
        worker.stop()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()


def is_empty(client: Topics, queue: str) -> bool:
    state = client.state(queue)
    return state.count == 0


def test_every_job_is_worked_on_by_many_hands(client: Topics) -> None:
    queue = fresh("q")
    client.create(queue, type="queue")
    client.queue(queue, Mail).put(*[Mail(to=f"m{n}") for n in range(50)])
    together = threading.Barrier(4)
    seen: list[str] = []
    hands: set[int] = set()

    @client.queue(queue, Mail).worker(concurrency=4, idle_ms=100)
    def send(job: TypedJob[Mail]) -> None:
        if threading.get_ident() not in hands:
            hands.add(threading.get_ident())
            together.wait(DEADLINE_S)
        seen.append(job.data.to)

    run_until(send, lambda: is_empty(client, queue))
    assert sorted(seen) == sorted(f"m{n}" for n in range(50))


def test_a_job_that_comes_later_wakes_an_idle_worker(client: Topics) -> None:
    queue = fresh("q")
    client.create(queue, type="queue")
    got = threading.Event()
    worker = client.queue(queue).worker(idle_ms=30_000)(lambda _job: got.set())
    thread = threading.Thread(target=worker.run)
    thread.start()
    client.queue(queue).put(1)
    assert got.wait(DEADLINE_S)
    worker.stop()
    client.queue(queue).put(2)  # wakes it from its wait
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_a_job_that_fails_comes_again_later(client: Topics) -> None:
    queue = fresh("q")
    client.create(queue, type="queue")
    client.queue(queue).put("x")
    deliveries: list[int] = []

    @client.queue(queue).worker(backoff_ms=1, idle_ms=10)
    def work(job: TypedJob[str]) -> None:
        deliveries.append(job.deliveries)
        if len(deliveries) < 3:
            raise RuntimeError("not yet")

    run_until(work, lambda: is_empty(client, queue))
    assert deliveries == [1, 2, 3]


def test_a_payload_of_another_type_is_given_back(client: Topics) -> None:
    queue, dead = fresh("q"), fresh("dead")
    client.create(queue, type="queue", max_deliveries=2, dead_letter=dead)
    client.queue(queue).put({"wrong": 1})
    worker = client.queue(queue, Mail).worker(backoff_ms=1, idle_ms=10)(lambda _job: None)
    run_until(worker, lambda: client.topics(dead) == [dead] and client.state(dead).count == 1)


def test_a_lease_is_renewed_while_the_work_goes_on(client: Topics) -> None:
    queue = fresh("q")
    client.create(queue, type="queue")
    client.queue(queue).put(1)
    calls = []
    thief = Topics(client.url)

    @client.queue(queue).worker(lease_ms=300, idle_ms=10)
    def slow(job: TypedJob[int]) -> None:
        calls.append(job.seq)
        over = threading.Event()
        for _ in range(10):  # three leases long
            over.wait(0.1)
            assert thief.claim(queue, node="thief").count == 0

    run_until(slow, lambda: is_empty(client, queue))
    thief.close()
    assert calls == [1]


def test_an_awaited_worker_works_and_drains(server: ServerProcess) -> None:
    async def run() -> list[int]:
        queue = fresh("q")
        seen: list[int] = []
        async with AsyncTopics(server.url) as client:
            await client.create(queue, type="queue")
            await client.queue(queue).put(*range(20))

            @client.queue(queue).worker(concurrency=8, idle_ms=50, backoff_ms=1)
            async def work(job: TypedJob[int]) -> None:
                await asyncio.sleep(0.001)
                if job.data == 3 and job.deliveries == 1:
                    raise RuntimeError("once")
                seen.append(job.data)
                if len(seen) == 20:
                    work.stop()

            async with asyncio.timeout(DEADLINE_S):
                await work.run()
            assert (await client.state(queue)).count == 0
        return seen

    assert sorted(asyncio.run(run())) == list(range(20))


def test_sigterm_finishes_what_was_begun_and_leaves_the_rest(
    client: Topics, server: ServerProcess
) -> None:
    queue = fresh("q")
    client.create(queue, type="queue")
    client.queue(queue).put(*range(5))
    source = str(Path(__file__).parents[2] / "src")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", DRAINS, server.url, queue],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as child:
        try:
            assert child.stdout is not None
            assert [child.stdout.readline().split()[0] for _ in range(2)] == ["begun", "begun"]
            child.send_signal(signal.SIGTERM)
            rest, _ = child.communicate("\n\n", timeout=DEADLINE_S)
        finally:
            child.kill()
    assert child.returncode == 0
    assert sorted(rest.splitlines()) == ["done 0", "done 1", "drained"]
    left = client.state(queue)
    assert left.count == 3
    assert left.queue is not None
    assert left.queue.in_flight == 0


@pytest.mark.parametrize(
    ("deliveries", "ms"), [(1, 100), (2, 200), (4, 800), (9, 1000), (99, 1000)]
)
def test_a_failed_job_waits_ever_longer_up_to_a_bound(deliveries: int, ms: int) -> None:
    settings = WorkerSettings(backoff_ms=100, backoff_max_ms=1000)
    job = Job(
        seq=1, ts=1, data_json=msgspec.Raw(b"1"), lease_id="l", deadline=1, deliveries=deliveries
    )
    assert plan_backoff(settings, job) == ms
