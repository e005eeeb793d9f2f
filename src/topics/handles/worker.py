"""A worker: claims jobs, runs a function on each, acks. Reference: docs/reference/client.md.

Owns its threads while `run` runs. A job is done at least once: it is acked after the function has
returned, and given back when it raised; its lease is renewed while it runs.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Generic, Protocol, TypeVar

from topics.errors import RetryLater, TopicNotFound, TopicsError
from topics.handles.absent import LOOK_S, Absence
from topics.handles.payload import Payload
from topics.handles.work_plan import (
    AWAY_S,
    LOGGER,
    PAUSE_S,
    RENEWALS,
    WorkerSettings,
    new_node,
    plan_backoff,
)
from topics.model.diff import Page
from topics.model.queues import Acked, Claimed, Extended, Job, Nacked
from topics.model.stream import TypedJob
from topics.model.topics import TopicState

T = TypeVar("T")
Handler = Callable[[TypedJob[T]], object]


class JobSource(Protocol):
    """What a worker stands on."""

    def state(self, topic: str) -> TopicState: ...

    def diff(
        self, topic: str, *, from_seq: int, limit: int, max_batch_bytes: int, wait_ms: int
    ) -> Page: ...

    def claim(self, topic: str, *, node: str, max: int, lease_ms: int | None) -> Claimed: ...  # noqa: A002 - its name on the wire

    def ack(self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: list[str]) -> Acked: ...

    def nack(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: list[str], delay_ms: int
    ) -> Nacked: ...

    def extend(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: list[str], lease_ms: int
    ) -> Extended: ...


class Worker(Generic[T]):
    """Runs one function on the jobs of one queue."""

    def __init__(
        self,
        source: JobSource,
        queue: str,
        payload: Payload[T],
        handler: Handler[T],
        settings: WorkerSettings,
    ) -> None:
        self.queue = queue
        self.node = new_node()
        self.handler = handler
        self._source = source
        self._payload = payload
        self._settings = settings
        self._stopping = False
        self._running: dict[str, Job] = {}
        """By lease id: the jobs that this worker holds."""
        self._changed = threading.Condition()
        self._seen_seq = 0

    def run(self) -> None:
        """Work until `stop`, SIGTERM or SIGINT; then finish what was begun."""
        self._stopping = False
        with self._signals():
            state = self._find_queue()
            if state is not None:
                self._seen_seq = state.head_seq
                self._run(self._settings.lease_ms or state.config.lease_ms)

    def stop(self) -> None:
        """Claim no more; `run` returns when what was begun is finished."""
        self._stopping = True

    def __call__(self, job: TypedJob[T]) -> object:
        """Run the function on a job, as if it were not decorated."""
        return self.handler(job)

    def _find_queue(self) -> TopicState | None:
        """Wait for a queue that is not there yet; None when stopped meanwhile."""
        absence = Absence(LOGGER)
        while not self._stopping:
            try:
                return self._source.state(self.queue)
            except TopicNotFound as missing:
                absence.say(missing)
            with self._changed:
                self._changed.wait(LOOK_S)
        return None

    def _run(self, lease_ms: int) -> None:
        done = threading.Event()
        renewer = threading.Thread(target=self._renew, args=(lease_ms, done), daemon=True)
        renewer.start()
        threads = ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="topics-worker")
        try:
            with threads:  # leaving waits for what runs
                while not self._stopping:
                    self._turn(threads)
        finally:
            done.set()
            renewer.join()

    def _turn(self, threads: ThreadPoolExecutor) -> None:
        free = self._settings.concurrency - len(self._running)
        if not free:
            with self._changed:
                self._changed.wait(PAUSE_S)
            return
        try:
            claimed = self._source.claim(
                self.queue, node=self.node, max=free, lease_ms=self._settings.lease_ms
            )
            if not claimed.count:
                self._wait_for_jobs()
        except RetryLater as away:
            LOGGER.warning("the queue %s cannot be asked: %s", self.queue, away)
            with self._changed:
                self._changed.wait(AWAY_S)
            return
        self._begin(claimed.jobs, threads)

    def _wait_for_jobs(self) -> None:
        """Wait for a record that was not there when we last looked; a claim follows anyway."""
        page = self._source.diff(
            self.queue,
            from_seq=self._seen_seq,
            limit=1,
            max_batch_bytes=1,
            wait_ms=self._settings.idle_ms,
        )
        self._seen_seq = page.head_seq

    def _begin(self, jobs: list[Job], threads: ThreadPoolExecutor) -> None:
        for job in jobs:
            if self._stopping:
                self._settle(job, partial(self._give_back, job, delay_ms=0))
                continue
            with self._changed:
                self._running[job.lease_id] = job
            threads.submit(self._work, job)

    def _work(self, job: Job) -> None:
        try:
            self.handler(self._payload.typed_job(self.queue, job))
        except Exception:  # noqa: BLE001 - a border: whatever a user's function raises
            delay_ms = plan_backoff(self._settings, job)
            LOGGER.exception("job %d of %s failed; again in %d ms", job.seq, self.queue, delay_ms)
            self._settle(job, partial(self._give_back, job, delay_ms=delay_ms))
        else:
            self._settle(job, partial(self._ack, job))
        finally:
            with self._changed:
                self._running.pop(job.lease_id, None)
                self._changed.notify_all()

    def _ack(self, job: Job) -> list[int]:
        return self._source.ack(
            self.queue, [job.seq], node=self.node, lease_ids=[job.lease_id]
        ).skipped

    def _give_back(self, job: Job, *, delay_ms: int) -> list[int]:
        return self._source.nack(
            self.queue,
            [job.seq],
            node=self.node,
            lease_ids=[job.lease_id],
            delay_ms=delay_ms,
        ).skipped

    def _settle(self, job: Job, tell: Callable[[], list[int]]) -> None:
        """Tell the queue; if it does not hear it, the lease ends and the job comes again."""
        try:
            skipped = tell()
        except TopicsError as error:
            LOGGER.warning("job %d of %s could not be settled: %s", job.seq, self.queue, error)
            return
        if skipped:
            LOGGER.warning("the lease of job %d of %s was over", job.seq, self.queue)

    def _renew(self, lease_ms: int, done: threading.Event) -> None:
        while not done.wait(lease_ms / 1000 / RENEWALS):
            with self._changed:
                held = list(self._running.values())
            if not held:
                continue
            try:
                self._source.extend(
                    self.queue,
                    [job.seq for job in held],
                    node=self.node,
                    lease_ids=[job.lease_id for job in held],
                    lease_ms=lease_ms,
                )
            except TopicsError as error:
                LOGGER.warning("leases of %s could not be renewed: %s", self.queue, error)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(_number: int, _frame: FrameType | None) -> None:
            self._stopping = True

        before = {
            number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
