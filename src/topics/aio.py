"""The asyncio face of the log: the same calls, awaited. What the HTTP server stands on.

All appends of one turn of the event loop are written with one call per shard at its end; a sync
runs on the shard's own thread while the next turn's appends gather. Reads run where they are
called, except those of cold segments.
"""

import asyncio
import threading
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import Any, Literal, Protocol, Self, TypeVar

import msgspec

from topics.closing import AsyncClosing
from topics.config import ServerConfig
from topics.embedded import LOOK_S, Log, configure
from topics.engine.append import Append, split_writes
from topics.engine.delete import is_quickly_collected
from topics.engine.diff import DiffRequest
from topics.engine.engine import Engine
from topics.engine.frames import FramesRequest
from topics.engine.groups.groups import POLL_STEP_S, Groups
from topics.engine.groups.poll import PollPlan
from topics.engine.groups.requests import build_request
from topics.engine.partitions import Part, Spread
from topics.engine.queues.claim import Claim
from topics.engine.request import NO_OPTIONS, Write, begin_gathering, build_write, read_write
from topics.engine.shard import Shard
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import Closed, Throttled, TopicNotFound, TopicsError
from topics.handles.async_face import AsyncHandlesFace
from topics.handles.membership import Ask
from topics.handles.outbox import DELIVERY_S, pause_s_of
from topics.kernel import Batch, Gathering
from topics.limits import DEFAULT_BATCH_BYTES, DEFAULT_LIMIT, MAX_WAIT_MS
from topics.model.append import Appended
from topics.model.backups import BackedUp
from topics.model.delete import Deleted
from topics.model.diff import Page, parse_match
from topics.model.frames import RangePage
from topics.model.groups import (
    DEFAULT_SESSION_MS,
    Assignor,
    CommitRequest,
    Committed,
    GroupState,
    Heartbeat,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    LeaveRequest,
    Left,
    Polled,
    PollRequest,
    SeekPoint,
    Sought,
    WirePartitions,
    WirePositions,
)
from topics.model.queues import (
    Acked,
    AckRequest,
    Claimed,
    ClaimRequest,
    Extended,
    ExtendRequest,
    Nacked,
    NackRequest,
    Redriven,
)
from topics.model.routers import RouterDefinition, RouterState
from topics.model.stream import PageRequest
from topics.model.topics import ListedTopic, TopicState
from topics.storage.disk.disk import Buffer, Disk, DiskLock
from topics.storage.wal.frame import Delete
from topics.storage.wal.group_commit import Commitment

T = TypeVar("T")


HALF_MIN = 16
"""Fewer writers than this are written at the end of the turn, in one piece."""
DEALT_MAX = 16
"""Each write looks at the gathering of each partition: of more that takes longer than it spares."""
CLAIMED_A_TURN = 1_000
"""So many jobs are dealt in one turn of the event loop: it takes some ten ms."""
GATHER_BYTES = 64 * 1024
"""A write up to this size is gathered with others of its turn; a larger one is worth a ticket."""


class Gathered:
    """The writes of one turn to one topic: one batch, and who wants to hear of which part."""

    __slots__ = ("answer", "batch", "gathering", "topic", "writers")

    def __init__(self, topic: Topic, gathering: Gathering, answer: "OnGathered") -> None:
        self.topic = topic
        self.gathering = gathering
        self.answer = answer
        self.writers: list[tuple[int, Any]] = []
        """How many records each has, in the order they came."""
        self.batch: Batch | None = None
        """All of them, once the turn is over."""

    def parts(self) -> Iterator[tuple[Batch, Any]]:
        """Return each write by itself again, to be tried alone."""
        assert self.batch is not None
        parts = split_writes(self.batch, [count for count, _ in self.writers])
        return zip(parts, [who for _, who in self.writers], strict=True)


OnGathered = Callable[[Gathered, Append | None, TopicsError | None], None]
"""Takes the writes and their ticket, or why there is none."""


class ShardWaiter:
    """Tells on the event loop that tickets of one shard are done, once a batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine, shard: Shard) -> None:
        self._loop = loop
        self._engine = engine
        self._commit = shard.commit
        self._is_limited = engine.config.max_total_bytes > 0
        """Each write is looked at by itself: some may fit where all do not."""
        self._writes: dict[Topic, Gathered] = {}
        self.queued = 0
        """How often what was gathered was queued."""
        self.latest: Gathered | None = None
        """Where the last write was gathered; most turns write to one topic. None: nothing was."""
        self._spare: Gathering | None = None
        self._flush_scheduled = False
        self._waiting = 0
        self._half = HALF_MIN
        self._overlaps = False
        """A sync runs on its thread meanwhile: it is worth starting one early."""
        self._thread = threading.get_ident()

    def expect(
        self, ticket: Commitment, future: asyncio.Future[Any] | None = None
    ) -> asyncio.Future[Any]:
        """Return a future of the ticket's answer; the turn of the loop ends with a write."""
        if future is None:
            future = self._loop.create_future()
        self.tell(ticket, future)
        return future

    def tell(self, ticket: Commitment, who: "asyncio.Future[Any] | Callable[[Any], None]") -> None:
        """Settle a future, or call with the ticket, when it is done."""
        ticket.future = who
        self.expect_one()

    def take(self, topic: Topic, body: Buffer, who: object, answer: OnGathered) -> bool:
        """Write a small body with all others of this turn to the topic, as one ticket.

        False, and nothing was done, for one that is wrong, large, or more than its records, that
        has no room here, or that a limit could refuse on its own.
        Measured: a ticket of its own costs a single write 6 of its 14 µs.
        """
        if not self.gathers(topic):
            return False
        gathered = self.latest
        if gathered is None or gathered.topic is not topic or gathered.answer is not answer:
            gathered = self.gathered(topic, answer)
        count = gathered.gathering.add(body)
        if not count:
            return False
        gathered.writers.append((count, who))
        self._waiting += 1
        if not self._flush_scheduled or self._overlaps:
            self._schedule()
        return True

    def gathers(self, topic: Topic) -> bool:
        """Tell whether no limit could refuse a write to a topic on its own."""
        return topic.config.discard == "old" and not self._is_limited

    @property
    def is_quick(self) -> bool:
        """Tell whether what has to be synced would most likely be safe when the turn ends."""
        return self._commit.is_quick

    def expect_gathered(self, count: int) -> None:
        """Have so many writes that others have gathered written when the turn ends."""
        self._waiting += count

    def keep(self, topic: Topic, batch: Batch, who: object, answer: OnGathered) -> None:
        """Gather one of several parts; `expect_one` when all of them are here."""
        gathered = self.gathered(topic, answer)
        if not gathered.gathering.add_batch(batch):
            self.submit_gathered()
            gathered = self.gathered(topic, answer)
            has_room = gathered.gathering.add_batch(batch)
            assert has_room  # far less than one gathering takes
        gathered.writers.append((batch.count, who))

    def gathered(self, topic: Topic, answer: OnGathered) -> Gathered:
        """Return where the writes of this turn to a topic are gathered.

        Those that are answered in another way were asked for before, and are queued first.
        """
        gathered = self._writes.get(topic)
        if gathered is not None and gathered.answer is not answer:
            self.submit_gathered()
            gathered = None
        if gathered is None:
            gathering = self._spare or begin_gathering(self._engine.config, max_bytes=GATHER_BYTES)
            self._spare = None
            gathered = self._writes[topic] = Gathered(topic, gathering, answer)
        self.latest = gathered
        return gathered

    def submit_gathered(self) -> None:
        """Queue what was gathered, before anything that must come after it."""
        writes, self._writes, self.latest = self._writes, {}, None
        self.queued += 1
        for gathered in writes.values():
            if not gathered.writers:
                continue
            gathered.batch = gathered.gathering.take()
            self._spare = gathered.gathering  # as good as new
            write = Write(batch=gathered.batch, options=NO_OPTIONS, config={})
            try:
                _, ticket = self._engine.submit_append(gathered.topic, write, waiter=self)
            except TopicsError as error:
                gathered.answer(gathered, None, error)
            else:
                ticket.future = partial(_answer_gathered, gathered)

    def expect_one(self) -> None:
        """Have what is queued or gathered written when the turn ends, or earlier."""
        self._waiting += 1
        self._schedule()

    def _schedule(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        elif self._overlaps and self._waiting >= self._half and not self._commit.is_syncing:
            # Half of the writers are here: their sync runs while the other half gathers.
            self._write()

    def end_turn(self) -> None:
        """Write what was queued or gathered now: nothing more is expected in this turn."""
        if self._waiting:
            self._write()

    def wake(self, tickets: list[Commitment]) -> None:
        if threading.get_ident() == self._thread:
            _resolve(tickets)
        else:
            self._loop.call_soon_threadsafe(_resolve, tickets)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self.end_turn()

    def _write(self) -> None:
        commit = self._commit
        self._waiting = 0
        if self._writes:
            self.submit_gathered()
        with commit.lock:
            self._half = max(HALF_MIN, commit.queue_depth // 2)
            finished = commit.flush()
            waiting = commit.queue_depth
        mine = finished
        if len(finished) > 1 or (finished and finished[0].waiter is not self):
            mine = [ticket for ticket in finished if ticket.waiter is self]
        _resolve(mine)
        if len(mine) < len(finished):
            commit.wake([ticket for ticket in finished if ticket.waiter is not self])
        self._overlaps = waiting > 0 and not commit.is_quick
        if self._overlaps:
            commit.ask_sync()
        # On the event loop, which waits for it: on a quick device that is the shorter wait.
        # Measured with 64 writers at 0.1 ms a sync: 53,000 writes a second, and 35,000 with a
        # thread, which hands the interpreter back and forth. One slow sync ends it.
        elif waiting and not commit.sync_if_free():
            commit.ask_sync()  # somebody has begun one meanwhile


def _answer_gathered(gathered: Gathered, ticket: Append) -> None:
    gathered.answer(gathered, ticket, ticket.error)


def _settle_gathered(gathered: Gathered, ticket: Append | None, error: TopicsError | None) -> None:
    if ticket is None or error is not None:
        for _, future in gathered.writers:
            if not future.done():
                future.set_exception(error)
        return
    name, head_seq, first_seq = ticket.topic.name, ticket.topic.head_seq, ticket.first_seq
    for count, future in gathered.writers:
        last_seq = first_seq + count - 1
        if not future.done():
            future.set_result(
                Appended(
                    topic=name,
                    first_seq=first_seq,
                    last_seq=last_seq,
                    count=count,
                    head_seq=head_seq,
                )
            )
        first_seq = last_seq + 1


def _settle_part(part: Part, ticket: Commitment) -> None:
    part.take(ticket)
    part.spread.finish_one()


def _settle_parts(gathered: Gathered, ticket: Append | None, error: TopicsError | None) -> None:
    if isinstance(error, Throttled):
        for batch, part in gathered.parts():
            part.batch = batch
    first_seq = 0 if ticket is None else ticket.first_seq
    for count, part in gathered.writers:
        part.error = error
        if error is None:
            part.settle(first_seq, count)
        first_seq += count
        part.spread.finish_one()


def _settle_spread(future: asyncio.Future[Appended], spread: Spread) -> None:
    if not future.done():
        try:
            future.set_result(spread.answer())
        except TopicsError as error:
            future.set_exception(error)
    spread.end()


def _resolve(tickets: list[Commitment]) -> None:
    for ticket in tickets:
        who = ticket.future
        if callable(who):
            try:
                who(ticket)
            except Exception as bug:  # noqa: BLE001 - the others have to be told too
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "an answer failed", "exception": bug}
                )
        elif isinstance(who, asyncio.Future) and not who.done():
            if ticket.error is None:
                who.set_result(ticket.answer)
            else:
                who.set_exception(ticket.error)


class Claimer(Protocol):
    """Someone who waits for jobs."""

    @property
    def is_gone(self) -> bool:
        """Tell whether nobody would take them any more."""

    def settle(self, claimed: Claimed | None, error: Exception | None) -> None:
        """Take what was claimed, or why nothing was."""


class _AwaitedClaim:
    """A claimer who awaits a future."""

    def __init__(self, future: asyncio.Future[Claimed]) -> None:
        self._future = future

    @property
    def is_gone(self) -> bool:
        return self._future.done()

    def settle(self, claimed: Claimed | None, error: Exception | None) -> None:
        if self._future.done():
            return
        if error is not None:
            self._future.set_exception(error)
        elif claimed is not None:
            self._future.set_result(claimed)


class DeadLetterRuns:
    """Moves dead letters beside the event loop, for claims that wait until they are there.

    Keeps: whoever waits is told after a run that began later; one run at a time serves all.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor, engine: Engine
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._engine = engine
        self._waiting: list[Callable[[], None]] = []
        self._is_running = False

    def tell_after(self, tell: Callable[[], None]) -> None:
        """Call when what was set aside is in its dead-letter topic, or that one takes nothing."""
        self._waiting.append(tell)
        if not self._is_running:
            self._run()

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._is_running = True
        try:
            run = self._loop.run_in_executor(self._pool, self._engine.move_dead_letters)
        except RuntimeError:  # the log is closed: the next start moves them
            self._is_running = False
            self._tell(waiting)
            return
        run.add_done_callback(partial(self._on_done, waiting))

    def _on_done(self, waiting: list[Callable[[], None]], run: asyncio.Future[int]) -> None:
        self._is_running = False
        if not run.cancelled() and run.exception() is not None:
            self._loop.call_exception_handler(
                {"message": "dead letters were not moved", "exception": run.exception()}
            )
        if self._waiting:
            self._run()
        self._tell(waiting)

    def _tell(self, waiting: list[Callable[[], None]]) -> None:
        for tell in waiting:
            self._loop.call_soon(tell)  # each by itself: one that fails keeps no other waiting


class _ClaimWindows:
    """Serves claimers: those of one turn of the event loop one after the other, with one lock.

    With `claim_jitter_ms` it gathers those of that time and has them dealt jobs together.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        waiters: dict[Shard, ShardWaiter],
        dead_letters: DeadLetterRuns,
    ) -> None:
        self._loop = loop
        self._engine = engine
        self._waiters = waiters
        self._dead_letters = dead_letters
        self._open: dict[Topic, list[tuple[ClaimRequest, Claimer]]] = {}

    def claim(self, topic: Topic, request: ClaimRequest, claimer: Claimer) -> None:
        request = self._engine.check_claim(topic, request)
        if topic not in self._open:
            self._open[topic] = []
            window_s = topic.config.claim_jitter_ms / 1000
            if window_s:
                self._loop.call_later(window_s, self._serve_together, topic)
            else:
                self._loop.call_soon(self._serve_in_turn, topic)
        self._open[topic].append((request, claimer))

    def _serve_in_turn(self, topic: Topic) -> None:
        waiter = self._waiters[self._engine.shard_of(topic)]
        waiter.end_turn()  # so that each finds what its connection has written before
        waiting = self._open.pop(topic)
        count = _share_of_turn([request.max for request, _ in waiting])
        if count < len(waiting):
            self._open[topic] = waiting[count:]
            self._loop.call_soon(self._serve_in_turn, topic)
        self._serve(topic, waiting[:count], waiter, self._engine.submit_each_claim)

    def _serve_together(self, topic: Topic) -> None:
        waiter = self._waiters[self._engine.shard_of(topic)]
        self._serve(topic, self._open.pop(topic), waiter, self._engine.submit_claims)

    def _serve(
        self,
        topic: Topic,
        waiting: Sequence[tuple[ClaimRequest, Claimer]],
        waiter: ShardWaiter,
        submit: Callable[..., tuple[Shard, Sequence[Claim | Exception]]],
    ) -> None:
        """Put the claims of all who have not left on their way."""
        gathered = [(request, who) for request, who in waiting if not who.is_gone]
        try:
            _, served = submit(topic, [request for request, _ in gathered], waiter=waiter)
        except Exception as error:  # noqa: BLE001 - a bug too: nobody else would tell them
            served = [error] * len(gathered)
        told = []
        for claim, (_, claimer) in zip(served, gathered, strict=True):
            if isinstance(claim, Claim):
                tell = claim.future = partial(self._settle, claimer)
                told.append((claim, tell))
            else:
                claimer.settle(None, claim)
        for claim, tell in told:  # with all futures set: telling one may write the rest
            waiter.tell(claim, tell)

    def _settle(self, claimer: Claimer, claim: Claim) -> None:
        claimed = claim.claimed if claim.error is None else None
        if claim.sets_aside and claimed is not None:
            self._dead_letters.tell_after(partial(claimer.settle, claimed, None))
        else:
            claimer.settle(claimed, claim.error)


def _share_of_turn(wanted: Sequence[int]) -> int:
    """Return how many claims one turn serves, at least the first: the others come after it."""
    for count, jobs in enumerate(accumulate(wanted)):
        if count and jobs > CLAIMED_A_TURN:
            return count
    return len(wanted)


class AsyncLog(AsyncHandlesFace, AsyncClosing):
    """An open log for one event loop. Open it with `await AsyncLog.open(…)`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._clock = log.engine.clock
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="topics-control")
        self._cold = ThreadPoolExecutor(
            max_workers=log.engine.config.cold_threads, thread_name_prefix="topics-cold-read"
        )
        # One thread: each that runs Python makes the event loop wait a moment longer for its turn.
        self._looks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="topics-looks")
        self.waiters = {
            shard: ShardWaiter(self._loop, log.engine, shard) for shard in log.engine.shards
        }
        self.waiter_row = [self.waiters[shard] for shard in log.engine.shards]
        """By shard number: topics are dealt to shards by their id."""
        self.dead_letters = DeadLetterRuns(self._loop, self._pool, log.engine)
        self._claim_windows = _ClaimWindows(self._loop, log.engine, self.waiters, self.dead_letters)

    @classmethod
    async def open(
        cls,
        path: str | None = None,
        *,
        config: ServerConfig | None = None,
        disk: Disk | None = None,
        lock: DiskLock | None = None,
        progress: Callable[[float], None] = lambda _: None,
        **settings: Any,  # noqa: ANN401 - a setting is a number or text
    ) -> Self:
        """Open a data directory as `topics.open` does; recovery runs beside the event loop.

        `progress` is called from another thread, with 0.0 to 1.0.
        """
        configured = configure(path, config, settings)
        opening = partial(Log, configured, disk=disk, lock=lock, progress=progress)
        return cls(await asyncio.get_running_loop().run_in_executor(None, opening))

    # Topics.

    async def create(self, topic: str, **config: Any) -> TopicState:  # noqa: ANN401 - a config value is any JSON
        return await self.run(lambda: self.log.create(topic, **config))

    async def put_topic(self, topic: str, changes: Mapping[str, Any]) -> bool:
        """Create or change a topic; tell whether it was created."""
        return await self.run(lambda: self.log.engine.create_topic(topic, changes))

    async def drop_topic(
        self, topic: str, *, if_empty: bool, check_router: Callable[[str, RouterDefinition], None]
    ) -> tuple[bool, list[str]]:
        """Delete a topic; tell whether there was one, and which routers went with it."""
        return await self.run(
            lambda: self.log.engine.drop_topic(topic, if_empty=if_empty, check_router=check_router)
        )

    async def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        return await self.run(lambda: self.log.drop(topic, if_empty=if_empty))

    async def state(self, topic: str) -> TopicState:
        return self.log.state(topic)

    async def topics(self, prefix: str = "") -> list[str]:
        return self.log.topics(prefix)

    async def listed(self, prefix: str = "") -> list[ListedTopic]:
        return self.log.listed(prefix)

    # Records.

    async def append(
        self,
        topic: str,
        records: Iterable[Mapping[str, Any]],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        producer_id: str | None = None,
        producer_seq: int | None = None,
        create: bool = True,
        queue: bool = False,
    ) -> Appended:
        parent = self.log.engine.find_partitioned(topic)
        write = build_write(
            records,
            self.log.engine.config,
            node=node,
            idempotency_key=idempotency_key,
            producer_id=producer_id,
            producer_seq=producer_seq,
            create=create,
            queue=queue,
            keyed=parent is not None,
        )
        return await self._append_found(topic, parent, write)

    async def append_json(self, topic: str, body: bytes) -> Appended:
        found = self.log.engine.find_topic(topic)
        if found is not None:
            future: asyncio.Future[Appended] = self._loop.create_future()
            if self.waiter_of(found).take(found, body, future, _settle_gathered):
                return await future
        parent = self.log.engine.find_partitioned(topic)
        if parent is not None:
            future = self._loop.create_future()
            if self.take_spread(parent, body, partial(_settle_spread, future)):
                return await future
        write = read_write(body, self.log.engine.config, keyed=parent is not None)
        return await self._append_found(topic, parent, write)

    async def diff(  # noqa: PLR0913 - one argument a field of the contract
        self,
        topic: str,
        *,
        from_seq: int = 0,
        from_ts: int = 0,
        until_ts: int = 0,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: object = None,
        include_tags: bool = True,
        include_meta: bool = True,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
        wait_ms: int = 0,
    ) -> Page:
        def read() -> Page:
            return self.log.diff(
                topic,
                from_seq=from_seq,
                from_ts=from_ts,
                until_ts=until_ts,
                limit=limit,
                node=node,
                match=match,
                include_tags=include_tags,
                include_meta=include_meta,
                max_batch_bytes=max_batch_bytes,
            )

        found = self.log.engine.topic(topic)
        deadline_s = self._clock.monotonic_s() + wait_ms / 1000
        while True:
            if self.may_block(found, from_seq, from_ts):
                page = await self._loop.run_in_executor(self._cold, read)
            else:
                page = read()
            if page.is_news or self._clock.monotonic_s() >= deadline_s:
                return page
            await asyncio.sleep(LOOK_S)
            if self.log.engine.topic(topic) is not found:
                raise TopicNotFound(topic)

    async def read_page(self, request: PageRequest) -> Page:
        """Read for a handle."""
        return await self.diff(
            request.topic,
            from_seq=request.from_seq,
            from_ts=request.from_ts,
            until_ts=request.until_ts,
            limit=request.limit,
            node=request.node,
            match=request.match,
            wait_ms=request.wait_ms,
        )

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: object = None
    ) -> Deleted:
        parsed = None if match is None else parse_match(match)
        found = self.log.engine.topic(topic)
        waiter = self.waiter_of(found)
        waiter.submit_gathered()  # asked for before this delete
        body = self.log.engine.bound_delete(found, before_seq=before_seq, match=parsed)
        seqs = await self.collect_delete(found, body)
        _, ticket = self.log.engine.submit_delete(found, body, seqs, waiter=waiter)
        deleted: Deleted = await waiter.expect(ticket)
        return deleted

    # Jobs.

    async def claim(
        self,
        topic: str,
        *,
        node: str,
        max: int = 1,  # noqa: A002 - its name on the wire
        lease_ms: int | None = None,
    ) -> Claimed:
        request = ClaimRequest(node=node, max=max, lease_ms=lease_ms)
        return await self.claim_jobs(self.log.engine.topic(topic), request)

    async def ack(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: Sequence[str] | None = None
    ) -> Acked:
        found, waiter = self._queue(topic)
        request = AckRequest(node=node, seqs=seqs, lease_ids=lease_ids)
        _, ticket = self.log.engine.submit_ack(found, request, waiter=waiter)
        acked: Acked = await waiter.expect(ticket)
        return acked

    async def nack(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ids: Sequence[str] | None = None,
        delay_ms: int = 0,
    ) -> Nacked:
        found, waiter = self._queue(topic)
        request = NackRequest(node=node, seqs=seqs, lease_ids=lease_ids, delay_ms=delay_ms)
        _, ticket = self.log.engine.submit_nack(found, request, waiter=waiter)
        nacked: Nacked = await waiter.expect(ticket)
        return nacked

    async def extend(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ms: int,
        lease_ids: Sequence[str] | None = None,
    ) -> Extended:
        found, waiter = self._queue(topic)
        request = ExtendRequest(node=node, seqs=seqs, lease_ids=lease_ids, lease_ms=lease_ms)
        _, ticket = self.log.engine.submit_extend(found, request, waiter=waiter)
        extended: Extended = await waiter.expect(ticket)
        return extended

    async def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        max: int = 100,  # noqa: A002 - its name on the wire
    ) -> Redriven:
        return await self.run(lambda: self.log.redrive(topic, to=to, max=max))

    # Routers.

    async def put_router(self, router: str, **fields: Any) -> RouterState:  # noqa: ANN401 - any JSON
        return await self.run(lambda: self.log.put_router(router, **fields))

    async def delete_router(self, router: str) -> bool:
        return await self.run(lambda: self.log.delete_router(router))

    async def router_state(self, router: str) -> RouterState:
        return await self.run(lambda: self.log.router_state(router))

    async def routers(self) -> list[RouterState]:
        return self.log.routers()

    # Groups.

    async def join(
        self,
        group: str,
        *,
        member: str,
        topics: Sequence[str],
        session_ms: int = DEFAULT_SESSION_MS,
        assignor: Assignor = "sticky",
    ) -> Joined:
        fields = {"member": member, "topics": topics, "session_ms": session_ms}
        request = build_request(JoinRequest, {**fields, "assignor": assignor})
        joined: Joined = await self.say(self._groups.submit_join, group, request)
        return joined

    async def heartbeat(
        self, group: str, *, member: str, generation: int, released: WirePartitions | None = None
    ) -> Heartbeat:
        fields = {"member": member, "generation": generation, "released": released}
        request = build_request(HeartbeatRequest, fields)
        beat: Heartbeat = await self.say(self._groups.submit_heartbeat, group, request)
        return beat

    async def leave(self, group: str, *, member: str) -> bool:
        request = build_request(LeaveRequest, {"member": member})
        left: Left = await self.say(self._groups.submit_leave, group, request)
        return left.left

    async def commit(
        self,
        group: str,
        offsets: WirePositions,
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> Committed:
        fields = {"offsets": offsets, "member": member, "generation": generation}
        request = build_request(CommitRequest, fields)
        committed: Committed = await self.say(self._groups.submit_commit, group, request)
        return committed

    async def poll(
        self,
        group: str,
        *,
        member: str,
        generation: int,
        limit: int = DEFAULT_LIMIT,
        positions: WirePositions | None = None,
        from_ts: int = 0,
        until_ts: int = 0,
        wait_ms: int = 0,
    ) -> Polled:
        fields = {"member": member, "generation": generation, "limit": limit}
        times = {"from_ts": from_ts, "until_ts": until_ts, "wait_ms": wait_ms}
        more = {"positions": positions, "include_tags": True}
        request = build_request(PollRequest, {**fields, **times, **more})
        clock = self.log.engine.clock
        until_s = clock.monotonic_s() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        while True:
            plan: PollPlan = await self.say(self._groups.submit_poll, group, request)
            polled = await self.read_poll(plan)
            if polled.is_news or clock.monotonic_s() >= until_s:
                return polled
            request = request.behind(polled.positions)
            plan = plan.without_ended(polled.batches)
            while not self._groups.has_news(plan) and clock.monotonic_s() < until_s:
                await asyncio.sleep(POLL_STEP_S)
                if plan.is_over(clock.now_ms()):
                    break

    async def seek(
        self,
        group: str,
        *,
        to: Literal["earliest", "latest"] | SeekPoint,
        topics: Mapping[str, Sequence[int] | None] | None = None,
        dry_run: bool = False,
    ) -> Sought:
        return await self.run(lambda: self.log.seek(group, to=to, topics=topics, dry_run=dry_run))

    async def group_state(self, group: str) -> GroupState:
        waiter = self.group_waiter
        _, word = self._groups.submit_look(group, waiter=waiter)
        state: GroupState = await waiter.expect(word)
        return state

    async def groups(self) -> list[str]:
        return self.log.groups()

    async def drop_group(self, group: str) -> bool:
        return await self.run(lambda: self.log.drop_group(group))

    # Keeping.

    async def sync(self) -> None:
        await self.run(self.log.sync)

    async def checkpoint(self) -> None:
        """Copy the log's tail into segments and trim the WAL; the background does it by itself."""
        await self.run_aside(self.log.checkpoint)

    async def backup(self, directory: str) -> BackedUp:
        """Copy everything into a new directory, on a thread of its own: it may take long."""
        return await self._loop.run_in_executor(None, self.log.backup, directory)

    async def close(self) -> None:
        await self.run(self.log.close)
        self._looks.shutdown(wait=False)
        self._pool.shutdown(wait=False)
        self._cold.shutdown(wait=False)

    def _queue(self, topic: str) -> tuple[Topic, ShardWaiter]:
        found = self.log.engine.topic(topic)
        return found, self.waiter_of(found)

    async def _deliver(self, topic: str, body: bytes) -> Appended:
        """Append for a producer; what finds no room waits for it."""
        deadline_s = self._clock.monotonic_s() + DELIVERY_S
        while True:
            try:
                return await self.append_json(topic, body)
            except TopicsError as error:
                pause_s = pause_s_of(error)
                if pause_s is None or self._clock.monotonic_s() + pause_s > deadline_s:
                    raise
            await asyncio.sleep(pause_s)

    async def _ask(self, ask: Ask, *, retry_for_s: float | None = None) -> Any:  # noqa: ANN401, ARG002 - the answer of any call; nothing is ever away
        return await getattr(self, ask.word)(ask.group, **ask.fields)

    def is_quickly_collected(self, topic: Topic, body: Delete) -> bool:
        """Tell whether what a delete names may be looked for on the event loop."""
        return body.match is None or is_quickly_collected(topic)

    async def collect_delete(self, topic: Topic, body: Delete) -> "array[int] | None":
        """Find what a delete names, aside where that may take a while."""
        collect = partial(self.log.engine.collect_delete, topic, body)
        if self.is_quickly_collected(topic, body):
            return collect()
        return await self._loop.run_in_executor(None, collect)

    # For the server, which answers from callbacks instead of coroutines.

    def waiter_of(self, topic: Topic) -> ShardWaiter:
        row = self.waiter_row
        return row[topic.id % len(row)]

    async def topic_for_write(self, topic: str, write: Write) -> tuple[Topic, bool]:
        """Return the topic a write goes to, and whether it was made for it."""
        return await self.run(lambda: self.log.engine.topic_for_write(topic, write))

    async def claim_jobs(self, topic: Topic, request: ClaimRequest) -> Claimed:
        engine = self.log.engine
        if self.may_block(topic, 0):
            return await self._loop.run_in_executor(self._cold, engine.claim, topic, request)
        future: asyncio.Future[Claimed] = self._loop.create_future()
        self.claim_soon(topic, request, _AwaitedClaim(future))
        return await future

    def claim_soon(self, topic: Topic, request: ClaimRequest, claimer: Claimer) -> None:
        """Claim with whoever else claims in this turn, from a queue that does not block."""
        self._claim_windows.claim(topic, request, claimer)

    @property
    def _groups(self) -> Groups:
        return self.log.engine.groups

    @property
    def group_waiter(self) -> ShardWaiter:
        """Return whoever waits for the first shard: groups belong to it."""
        return self.waiter_row[0]

    def say(
        self, submit: Callable[..., tuple[Shard, Commitment]], group: str, request: object
    ) -> asyncio.Future[Any]:
        """Put a word about a group on its way; return a future of its answer."""
        waiter = self.group_waiter
        _, word = submit(group, request, waiter=waiter)
        return waiter.expect(word)

    def poll_blocks(self, plan: PollPlan) -> bool:
        """Tell whether a poll has to be read off the event loop."""
        return any(
            self.may_block(
                turn.topic, 0 if turn.is_recreated else turn.place.seq, plan.request.from_ts
            )
            for turn in plan.turns
        )

    async def read_poll(self, plan: PollPlan) -> Polled:
        """Read what a poll has planned, aside where that may be slow."""
        groups = self._groups
        if self.poll_blocks(plan):
            batches = await self._loop.run_in_executor(self._cold, groups.read_plan, plan)
        else:
            batches = groups.read_plan(plan)
        return groups.finish_poll(plan, batches)

    def may_block(self, topic: Topic, from_seq: int, from_ts: int = 0) -> bool:
        """Tell whether a read there has to leave the event loop: `read_aside` does."""
        engine = self.log.engine
        return engine.touches_cold(topic, from_seq, from_ts) or engine.must_forward(topic)

    async def read_aside(self, topic: Topic, request: DiffRequest) -> Page:
        """Read on the pool of the cold tier, or of what routers still have to bring."""
        return await self._loop.run_in_executor(self._cold, self.log.engine.diff, topic, request)

    async def read_frames_aside(self, topic: Topic, request: FramesRequest) -> RangePage:
        return await self._loop.run_in_executor(
            self._cold, self.log.engine.read_frames, topic, request
        )

    def _append(self, topic: Topic, write: Write) -> Awaitable[Appended]:
        """Submit at once and return what to await: no coroutine of its own on the hot path."""
        waiter = self.waiter_of(topic)
        waiter.submit_gathered()  # asked for before this write
        _, ticket = self.log.engine.submit_append(topic, write, waiter=waiter)
        return waiter.expect(ticket)

    def _append_found(
        self, topic: str, parent: Partitioned | None, write: Write
    ) -> Awaitable[Appended]:
        if parent is not None:
            return self._append_partitioned(parent, write)
        found = self.log.engine.find_topic(topic)
        if found is None:
            return self._append_and_create(topic, write)
        return self._append(found, write)

    def _append_partitioned(self, parent: Partitioned, write: Write) -> Awaitable[Appended]:
        future: asyncio.Future[Appended] = self._loop.create_future()
        spread = self.log.engine.plan_spread(parent, write)
        spread.on_done = partial(_settle_spread, future)
        self.submit_parts(spread, spread.parts)
        return future

    def take_spread(
        self, parent: Partitioned, body: Buffer, on_done: Callable[[Spread], None]
    ) -> bool:
        """Write a small body with all others of this turn to the partitions, as `ShardWaiter.take`.

        False, and nothing was done, for one that is not plain.
        Measured: a write of 100 records to 8 partitions takes 63 µs instead of 74.
        """
        partitions = parent.partitions
        if not 0 < len(partitions) <= DEALT_MAX or not self._gathers(parent):
            return False
        gathered = self._gathered_parts(partitions)
        dealt = gathered[0].gathering.deal(
            body,
            [one.gathering for one in gathered],
            spare=parent.turn % len(partitions),
        )
        if dealt is None:
            return False
        parent.next_turn()
        places, counts = dealt
        spread = Spread(parent, NO_OPTIONS, places)
        spread.left, spread.on_done = len(counts), on_done
        waiters: dict[ShardWaiter, None] = {}
        for place, count in counts:
            topic = partitions[place]
            part = Part(spread, topic, self.log.engine.shard_of(topic))
            spread.parts.append(part)
            gathered[place].writers.append((count, part))
            waiters[self.waiter_of(topic)] = None
        for waiter in waiters:
            waiter.expect_one()
        return True

    def _gathered_parts(self, partitions: Sequence[Topic]) -> list[Gathered]:
        """Return where the parts of writes to these topics are gathered, all of them still open."""
        while True:
            queued = [waiter.queued for waiter in self.waiter_row]
            gathered = [
                self.waiter_of(topic).gathered(topic, _settle_parts) for topic in partitions
            ]
            if queued == [waiter.queued for waiter in self.waiter_row]:
                return gathered

    def _gathers(self, parent: Partitioned) -> bool:
        """Tell whether no limit could refuse a write on its own."""
        return parent.config.discard == "old" and not self.log.engine.config.max_total_bytes

    def submit_parts(self, spread: Spread, parts: list[Part]) -> None:
        """Queue parts of a write; the spread tells when all of them are done, perhaps at once."""
        spread.left = len(parts)
        gathers = spread.options is NO_OPTIONS and self._gathers(spread.parent)
        gathering: dict[ShardWaiter, None] = {}
        for part in parts:
            waiter = self.waiter_of(part.topic)
            part.error = None
            if gathers and len(part.batch.frames) <= GATHER_BYTES:
                waiter.keep(part.topic, part.batch, part, _settle_parts)
                gathering[waiter] = None
                continue
            waiter.submit_gathered()  # asked for before this write
            self.log.engine.submit_parts([part], waiter_of=self.waiter_of)
            if part.ticket is None or part.error is not None:
                spread.finish_one()
            else:
                waiter.tell(part.ticket, partial(_settle_part, part))
        for waiter in gathering:
            waiter.expect_one()

    async def _append_and_create(self, topic: str, write: Write) -> Appended:
        found, created = await self.topic_for_write(topic, write)
        appended = await self._append(found, write)
        return msgspec.structs.replace(appended, created=True) if created else appended

    async def run_aside(self, call: Callable[[], T]) -> T:
        """Run a long call on the pool of the cold tier."""
        return await self._loop.run_in_executor(self._cold, call)

    async def look(self, call: Callable[[], T]) -> T:
        """Run a call that looks at all there is: one after the other, on a thread of their own."""
        try:
            looking = self._loop.run_in_executor(self._looks, call)
        except RuntimeError as error:
            raise Closed("the log is closed") from error
        return await looking

    async def run(self, call: Callable[[], T]) -> T:
        """Run a rare call that syncs on a thread of its own."""
        return await self._loop.run_in_executor(self._pool, call)
