"""Group commit: many writers, one write, one sync.

    submit (shard lock held) → flush: one write for all that waits → publish what needs no sync
                             → sync_once: one fdatasync, off the lock → publish the rest in
                               order → wake its writers

Owns the queue in front of one WAL shard, the order of publication and the waiting writers.
Keeps: the tickets of a topic are published in the order they were submitted; a ticket that needs a
sync is published only after a sync that began after its write; after a failure nothing is
published any more and every waiting ticket gets the error.

A lone writer syncs at once on its own thread. Whoever comes while a sync runs queues and waits, so
under load the natural window is the sync itself. If one waits, he leads the next sync; for several
the shard's own thread leads, again and again as long as somebody waits: nobody has to be woken
between two syncs. A queue that fills up, or `pressure` (0..1) from above, widens the window on
purpose.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from topics.clock import Clock
from topics.errors import (
    Closed,
    DiskFailed,
    ShardReadOnly,
    StorageError,
    Throttled,
    TopicsError,
)
from topics.storage.disk.disk import Buffer
from topics.storage.wal.log import Position, WalLog

PRESSURE_WIDENS_ABOVE = 0.4
RETRY_AFTER_MS = 100
QUICK_SYNC_S = 0.001
QUICK_SYNCS_MIN = 8
_NOWHERE = Position(0, 0)


class Waiter(Protocol):
    """Someone other than a blocked thread who wants to know that tickets are done."""

    def wake(self, tickets: list["Commitment"]) -> None:
        """Take done tickets; called from any thread, without the shard's lock."""


class Commitment:
    """One batch on its way to the disk, and how its writer hears of it."""

    __slots__ = (
        "buffers",
        "done",
        "error",
        "frames",
        "future",
        "needs_sync",
        "position",
        "signal",
        "size",
        "waiter",
    )

    def __init__(
        self, buffers: Sequence[Buffer], *, frames: int, needs_sync: bool, waiter: Waiter | None
    ) -> None:
        self.buffers = buffers
        self.size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        self.frames = frames
        self.needs_sync = needs_sync
        self.waiter = waiter
        self.future: object = None
        """Whatever the waiter keeps with it."""
        self.position = _NOWHERE
        self.signal: threading.Lock | None = None
        """Released for a thread that waits: the ticket is done, or its writer should lead."""
        self.done = False
        self.error: TopicsError | None = None

    def publish(self) -> None:
        """Make the batch visible; the shard's lock is held."""

    def company(self, tickets: Sequence["Commitment"], behind: int) -> Sequence["Commitment"]:  # noqa: ARG002 - most are published alone
        """Return which of the tickets from `behind` on it publishes with itself."""
        return ()

    def abort(self) -> None:
        """Give back what the batch took; the shard's lock is held, the last batch comes first."""

    @property
    def answer(self) -> object:
        """Return what the writer is told once the batch is done."""
        return None

    def result(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise self.error


class Ticket(Commitment):
    """A batch whose publication is a plain call."""

    __slots__ = ("_abort", "_publish")

    def __init__(
        self,
        buffers: Sequence[Buffer],
        *,
        frames: int,
        needs_sync: bool,
        publish: Callable[[], None],
        abort: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(buffers, frames=frames, needs_sync=needs_sync, waiter=None)
        self._publish = publish
        self._abort = abort

    def publish(self) -> None:
        self._publish()

    def abort(self) -> None:
        if self._abort is not None:
            self._abort()


def plan_commit_window_us(*, waiting: int, pressure: float, min_us: int, max_us: int) -> int:
    """Return how long a sync waits for company: never for a lone writer, never without pressure."""
    if waiting < 2 or pressure <= PRESSURE_WIDENS_ABOVE:
        return 0
    share = (pressure - PRESSURE_WIDENS_ABOVE) / (1 - PRESSURE_WIDENS_ABOVE)
    return min_us + int(share * (max_us - min_us))


class GroupCommit:
    """The queue, the lock and the sync of one shard."""

    def __init__(
        self, log: WalLog, *, clock: Clock, queue_bytes: int, window_us: tuple[int, int]
    ) -> None:
        self.log = log
        self.lock = threading.Lock()
        self.pressure = 0.0
        self._clock = clock
        self._queue_bytes = queue_bytes
        self._window_us = window_us
        self._pending: list[Commitment] = []
        self._pending_bytes = 0
        self.queue_depth = 0
        """Submitted and not done, also in the middle of a write: exact without the lock."""
        self._awaiting: deque[Commitment] = deque()
        self._awaiting_bytes = 0
        self._sync_lock = threading.Lock()
        self.on_sync_due: Callable[[], None] | None = None
        """Has the shard's own thread sync soon, where there is one."""
        self.on_submitted: Callable[[], None] | None = None
        """Called once, with the lock held, for the next ticket: that thread looked away."""
        self._closing = False
        self.queue_depth_peak = 0
        self.submit_full = 0
        self.at_risk_records = 0
        """Published before any sync covered them: what a power cut now would take."""
        self.last_write_s = 0.0
        """How long the last write took."""
        self.last_sync_s = 0.0
        self._quick_syncs = 0
        """How many syncs in a row were quick."""

    # With the lock held.

    def submit(self, ticket: Commitment) -> None:
        """Queue a batch; its seqs are taken, so after this it is written or aborted."""
        self._pending.append(ticket)
        self._pending_bytes += ticket.size
        self.queue_depth += 1
        self.queue_depth_peak = max(self.queue_depth_peak, self.queue_depth)
        on_submitted = self.on_submitted
        if on_submitted is not None:  # some only submit, and leave the writing to that thread
            self.on_submitted = None
            on_submitted()

    def admit(self, size: int) -> None:
        """Refuse a batch that the queue has no room for, before it takes any seq."""
        if self._closing:
            raise Closed("the log is closed")
        if self.log.failed is not None:
            self.log.check_writable()
        waiting = self._pending_bytes + self._awaiting_bytes
        if waiting and waiting + size > self._queue_bytes:
            self.submit_full += 1
            raise Throttled(RETRY_AFTER_MS)

    def flush(self) -> list[Commitment]:
        """Write all that is queued, also by publishing; return the tickets that are done."""
        finished: list[Commitment] = []
        while self._pending:
            finished += self._flush_once()
        return finished

    def _flush_once(self) -> list[Commitment]:
        batch, self._pending = self._pending, []
        size, self._pending_bytes = self._pending_bytes, 0
        # Only whoever answers others tells them how long the write took.
        started_s = 0.0 if batch[-1].waiter is None else self._clock.monotonic_s()
        try:
            if size:
                if len(batch) == 1:  # measured: half a µs of the 14 of a lone write
                    self.log.write(batch[0].buffers, frames=batch[0].frames, size=size)
                else:
                    self.log.write(
                        [buffer for ticket in batch for buffer in ticket.buffers],
                        frames=sum([ticket.frames for ticket in batch]),
                        size=size,
                    )
        except (DiskFailed, ShardReadOnly) as error:
            # A disk that is full before a new file is needed leaves the log as it was, and only
            # this batch is refused. After any other failure no sync will ever come.
            waiting = [] if self.log.failed is None else self._drain_awaiting()
            return self._fail([*waiting, *batch], error)
        if started_s:
            self.last_write_s = self._clock.monotonic_s() - started_s
        self.log.counters.batch_tickets.observe(len(batch))
        return self._publish_written(batch, size)

    def oldest_unpublished(self) -> Position:
        """Return a place before which everything written is published."""
        return self._awaiting[0].position if self._awaiting else self.log.position

    @property
    def awaiting(self) -> Iterable[Commitment]:
        """Return what is written and waits for a sync, in the order it will be published."""
        return self._awaiting

    @property
    def is_syncing(self) -> bool:
        return self._sync_lock.locked()

    @property
    def is_quick(self) -> bool:
        """Tell whether a sync now would most likely be over before a thread could take it up."""
        return (
            self._quick_syncs >= QUICK_SYNCS_MIN
            and not self._sync_lock.locked()
            and self._load <= PRESSURE_WIDENS_ABOVE  # else it would wait for company
        )

    @property
    def _load(self) -> float:
        waiting_bytes = self._pending_bytes + self._awaiting_bytes
        return max(self.pressure, waiting_bytes / self._queue_bytes)

    # Without the lock.

    def commit(self, ticket: Commitment) -> None:
        """Block until the ticket is published, leading a sync if nobody else does."""
        if not ticket.needs_sync:
            with self.lock:
                finished = self.flush()
            self.wake(finished, besides=ticket)
        elif self._sync_lock.acquire(blocking=False):
            self._lead(ticket)
        else:
            self._follow(ticket)
        if ticket.error is not None:
            ticket.result()

    def _follow(self, ticket: Commitment) -> None:
        """Wait until a leader is done with the ticket or wants its writer to lead.

        Whoever syncs next also writes: many who write while a sync runs would all want the lock,
        and whoever has synced would wait for them before the next sync begins.
        """
        signal = ticket.signal = threading.Lock()
        signal.acquire()
        while not ticket.done:
            # At first too: the leader may have gone before it could know that somebody waits.
            if self._sync_lock.acquire(blocking=False):
                self._lead(ticket)
                return
            signal.acquire()

    def sync_once(self) -> None:
        """Write what is queued, sync what is written, publish what waited for it."""
        self._sync_lock.acquire()
        self._lead(None)

    def sync_if_free(self) -> bool:
        """Sync as `sync_once` does, unless somebody does so now: that is not waited for."""
        is_free = self._sync_lock.acquire(blocking=False)
        if is_free:
            self._lead(None)
        return is_free

    def ask_sync(self) -> None:
        """Have a sync made soon."""
        have_synced = self.on_sync_due or self.sync_once  # read once: it goes when a log closes
        have_synced()

    def wake(self, finished: list[Commitment], *, besides: Commitment | None = None) -> None:
        """Tell the writers of finished tickets, each kind of waiter once."""
        groups: dict[int, tuple[Waiter, list[Commitment]]] = {}
        for ticket in finished:
            if ticket.waiter is not None:
                groups.setdefault(id(ticket.waiter), (ticket.waiter, []))[1].append(ticket)
            elif ticket is not besides and ticket.signal is not None:
                _signal(ticket.signal)
        for waiter, tickets in groups.values():
            waiter.wake(tickets)

    def stop_admitting(self) -> None:
        """Refuse new batches; those that were admitted are still written."""
        with self.lock:
            self._closing = True

    def fail(self, error: DiskFailed) -> None:
        """Take no more writes; whoever still waits hears why."""
        with self.lock:
            self.log.fail(error)
            finished = self._fail(self._drain(), error)
        self.wake(finished)

    def close(self) -> None:
        """Close the log; whoever still waits for it hears so."""
        with self.lock:
            self._closing = True
            error = Closed("the log was closed before the write was safe")
            finished = self._fail(self._drain(), error)
            self.log.close()
        self.wake(finished)

    def _lead(self, leader: Commitment | None) -> None:
        """Sync for all that is queued and written; the sync lock is held, and released."""
        finished: list[Commitment] = []
        try:
            if leader is None or not leader.done:
                if self.queue_depth > 1:
                    self._wait_for_company()
                finished = self._sync()
        finally:
            self._sync_lock.release()
        if not (len(finished) == 1 and finished[0] is leader):
            self.wake(finished, besides=leader)
        if self.queue_depth:  # whoever queues after this look finds the sync lock free
            self._hand_on()

    def _hand_on(self) -> None:
        """Have one more sync made if somebody waits for it."""
        with self.lock:
            waiting = [ticket for ticket in self._awaiting if ticket.waiter or ticket.signal]
            # A waiter writes what he has gathered when he has all of it, and asks for a sync then.
            waiting += [ticket for ticket in self._pending if ticket.signal]
        if not waiting:
            return
        signal = waiting[0].signal
        if signal is not None and (len(waiting) == 1 or self.on_sync_due is None):
            _signal(signal)
        else:
            self.ask_sync()

    def _sync(self) -> list[Commitment]:
        with self.lock:
            finished = self.flush()
            covered = len(self._awaiting)
            if self.log.failed is not None:
                return [*finished, *self._fail(self._drain_awaiting(), self.log.failed)]
            if not self.log.needs_sync:
                return [*finished, *self._publish_synced(covered)]
            point = self.log.begin_sync()
            safe_records = self.at_risk_records
        started_s = self._clock.monotonic_s()
        try:
            point.sync()
        except DiskFailed as error:
            with self.lock:
                self.log.fail(error)
                # What came meanwhile is undone first: it was built on what has failed now.
                return [*finished, *self._fail(self._drain(), error)]
        self.last_sync_s = self._clock.monotonic_s() - started_s
        self._quick_syncs = self._quick_syncs + 1 if self.last_sync_s < QUICK_SYNC_S else 0
        with self.lock:
            self.log.finish_sync(point)
            self.at_risk_records -= safe_records
            self.log.counters.sync_us.observe(self.last_sync_s * 1e6)
            queued = len(self._pending)
            finished += self._publish_synced(covered)
            if len(self._pending) > queued:  # by publishing
                finished += self.flush()
            return finished

    def _wait_for_company(self) -> None:
        min_us, max_us = self._window_us
        window_us = plan_commit_window_us(
            waiting=self.queue_depth,
            pressure=self._load,
            min_us=min_us,
            max_us=max_us,
        )
        if window_us:
            self._clock.sleep(window_us / 1_000_000)

    def _publish_written(self, batch: list[Commitment], size: int) -> list[Commitment]:
        finished = []
        file, end = self.log.position
        offset = end - size
        for at, ticket in enumerate(batch):
            ticket.buffers = ()
            ticket.position = Position(file, offset)
            offset += ticket.size
            if ticket.needs_sync:
                self._awaiting.append(ticket)
                self._awaiting_bytes += ticket.size
            else:
                if not ticket.done:
                    self._publish(ticket, batch, at + 1)
                finished.append(ticket)
        return finished

    def _publish_synced(self, count: int) -> list[Commitment]:
        finished = list(islice(self._awaiting, count))
        for at, ticket in enumerate(finished):
            self._awaiting.popleft()
            self._awaiting_bytes -= ticket.size
            if not ticket.done:
                self._publish(ticket, finished, at + 1)
        return finished

    def _publish(self, ticket: Commitment, tickets: list[Commitment], behind: int) -> None:
        """Publish a ticket, with its company among those behind it."""
        company = ticket.company(tickets, behind)
        error: TopicsError | None = None
        try:
            ticket.publish()
        except StorageError as failure:
            # On the log, but not wholly in its segments: only a restart can finish it.
            error = failure
            self.log.fail(error if isinstance(error, DiskFailed) else DiskFailed(str(error)))
        except Exception as bug:  # noqa: BLE001 - others wait for this thread to go on
            error = failed = DiskFailed(f"could not be published: {bug!r}")
            error.__cause__ = bug
            self.log.fail(failed)
        for done in (ticket, *company):
            if error is not None:
                done.error = error
            self._end(done)

    def _drain(self) -> list[Commitment]:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return [*self._drain_awaiting(), *pending]

    def _drain_awaiting(self) -> list[Commitment]:
        drained = list(self._awaiting)
        self._awaiting.clear()
        self._awaiting_bytes = 0
        return drained

    def _fail(self, tickets: list[Commitment], error: TopicsError) -> list[Commitment]:
        for ticket in reversed(tickets):
            ticket.buffers = ()
            ticket.error = error
            ticket.abort()
            self._end(ticket)
        return tickets

    def _end(self, ticket: Commitment) -> None:
        self.queue_depth -= 1
        ticket.done = True


def _signal(signal: threading.Lock) -> None:
    with suppress(RuntimeError):  # it was signalled already
        signal.release()
