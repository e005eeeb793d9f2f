"""A worker for coroutines: the same names as `topics.handles.worker`, awaited.

Owns its tasks while `run` runs.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from topics.errors import RetryLater, TopicNotFound, TopicsError
from topics.handles.absent import LOOK_S, Absence
from topics.handles.payload import Payload
from topics.handles.work_plan import (
    AWAY_S,
    LOGGER,
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
AsyncHandler = Callable[[TypedJob[T]], Awaitable[object]]


class AsyncJobSource(Protocol):
    """What a worker stands on."""

    async def state(self, topic: str) -> TopicState: ...

    async def diff(
        self, topic: str, *, from_seq: int, limit: int, max_batch_bytes: int, wait_ms: int
    ) -> Page: ...

    async def claim(self, topic: str, *, node: str, max: int, lease_ms: int | None) -> Claimed: ...  # noqa: A002 - its name on the wire

    async def ack(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: list[str]
    ) -> Acked: ...

    async def nack(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: list[str], delay_ms: int
    ) -> Nacked: ...

    async def extend(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: list[str], lease_ms: int
    ) -> Extended: ...


class AsyncWorker(Generic[T]):
    """Runs one coroutine function on the jobs of one queue."""

    def __init__(
        self,
        source: AsyncJobSource,
        queue: str,
        payload: Payload[T],
        handler: AsyncHandler[T],
        settings: WorkerSettings,
    ) -> None:
        self.queue = queue
        self.node = new_node()
        self.handler = handler
        self._source = source
        self._payload = payload
        self._settings = settings
        self._stopping = asyncio.Event()
        self._running: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen_seq = 0

    async def run(self) -> None:
        """Work until `stop`, SIGTERM or SIGINT; then finish what was begun."""
        self._stopping.clear()
        with self._signals():
            state = await self._find_queue()
            if state is not None:
                self._seen_seq = state.head_seq
                await self._run(self._settings.lease_ms or state.config.lease_ms)

    def stop(self) -> None:
        """Claim no more; `run` returns when what was begun is finished."""
        self._stopping.set()

    def __call__(self, job: TypedJob[T]) -> Awaitable[object]:
        """Run the function on a job, as if it were not decorated."""
        return self.handler(job)

    async def _find_queue(self) -> TopicState | None:
        """Wait for a queue that is not there yet; None when stopped meanwhile."""
        absence = Absence(LOGGER)
        while not self._stopping.is_set():
            try:
                return await self._source.state(self.queue)
            except TopicNotFound as missing:
                absence.say(missing)
            await self._first_of(timeout_s=LOOK_S)
        return None

    async def _run(self, lease_ms: int) -> None:
        renewer = asyncio.create_task(self._renew(lease_ms))
        try:
            while not self._stopping.is_set():
                await self._turn()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            left = [renewer, *self._tasks]  # tasks only if this one was cancelled
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    async def _turn(self) -> None:
        free = self._settings.concurrency - len(self._tasks)
        if not free:
            await self._first_of(*self._tasks)
            return
        try:
            claimed = await self._source.claim(
                self.queue, node=self.node, max=free, lease_ms=self._settings.lease_ms
            )
        except RetryLater as away:
            LOGGER.warning("the queue %s cannot be asked: %s", self.queue, away)
            await self._first_of(timeout_s=AWAY_S)
            return
        for job in claimed.jobs:
            await self._begin(job)
        if not claimed.count:
            await self._wait_for_jobs()

    async def _wait_for_jobs(self) -> None:
        """Wait for a record that was not there when we last looked; a claim follows anyway."""
        waiting = asyncio.create_task(self._look())
        try:
            await self._first_of(waiting)
        finally:
            await _end(waiting)

    async def _look(self) -> None:
        try:
            page = await self._source.diff(
                self.queue,
                from_seq=self._seen_seq,
                limit=1,
                max_batch_bytes=1,
                wait_ms=self._settings.idle_ms,
            )
        except RetryLater:
            return  # the claim that follows says it
        self._seen_seq = page.head_seq

    async def _first_of(self, *tasks: asyncio.Task[None], timeout_s: float | None = None) -> None:
        """Wait for one of the tasks, or to be stopped."""
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait(
                [*tasks, stopped], return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s
            )
        finally:
            await _end(stopped)

    async def _begin(self, job: Job) -> None:
        if self._stopping.is_set():
            await self._settle(job, self._give_back(job, delay_ms=0))
            return
        self._running[job.lease_id] = job
        task = asyncio.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, job: Job) -> None:
        try:
            await self.handler(self._payload.typed_job(self.queue, job))
        except Exception:  # noqa: BLE001 - a border: whatever a user's function raises
            delay_ms = plan_backoff(self._settings, job)
            LOGGER.exception("job %d of %s failed; again in %d ms", job.seq, self.queue, delay_ms)
            await self._settle(job, self._give_back(job, delay_ms=delay_ms))
        else:
            await self._settle(job, self._ack(job))
        finally:
            self._running.pop(job.lease_id, None)

    async def _ack(self, job: Job) -> list[int]:
        acked = await self._source.ack(
            self.queue, [job.seq], node=self.node, lease_ids=[job.lease_id]
        )
        return acked.skipped

    async def _give_back(self, job: Job, *, delay_ms: int) -> list[int]:
        nacked = await self._source.nack(
            self.queue,
            [job.seq],
            node=self.node,
            lease_ids=[job.lease_id],
            delay_ms=delay_ms,
        )
        return nacked.skipped

    async def _settle(self, job: Job, told: Awaitable[list[int]]) -> None:
        """Tell the queue; if it does not hear it, the lease ends and the job comes again."""
        try:
            skipped = await told
        except TopicsError as error:
            LOGGER.warning("job %d of %s could not be settled: %s", job.seq, self.queue, error)
            return
        if skipped:
            LOGGER.warning("the lease of job %d of %s was over", job.seq, self.queue)

    async def _renew(self, lease_ms: int) -> None:
        while True:
            await asyncio.sleep(lease_ms / 1000 / RENEWALS)
            held = list(self._running.values())
            if not held:
                continue
            try:
                await self._source.extend(
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
        loop = asyncio.get_running_loop()
        taken = []
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
                taken.append(number)
        except (ValueError, RuntimeError, NotImplementedError):
            pass  # another thread, or a system without signals
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)


async def _end(task: asyncio.Task[Any]) -> None:
    """Leave no task behind, whether it is done or not; what it raised comes out here."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
