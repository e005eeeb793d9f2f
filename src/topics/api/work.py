"""`GET /v0/topics/:topic/work`: jobs pushed to a worker, a few at a time.

Keeps: at most `max` jobs are leased to a connection; when it ends, what it was given and did not
settle is ready again at once.
"""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.api.live import RETRY_AFTER_MS
from topics.api.sse import EventStream, check_accepts
from topics.engine.queues.claim import Claim
from topics.engine.queues.table import LeaseTable
from topics.engine.topics.topic import Topic
from topics.engine.watch.frames import job_frame
from topics.errors import NotAQueue, TopicsError
from topics.model.queues import Claimed, ClaimRequest
from topics.storage.wal.group_commit import Commitment

if TYPE_CHECKING:
    from topics.api.app import App

HEARTBEAT_MS = 15_000
JOBS_A_CLAIM = 32
"""More follow when there is room for them: a claim reads all its jobs."""
_SPLIT = msgspec.json.Decoder(list[msgspec.Raw]).decode


def stream(app: "App", exchange: Exchange) -> None:
    topic = app.engine.topic(exchange.name)
    if topic.queue is None:
        raise NotAQueue(topic.name)
    check_accepts(exchange)
    node = exchange.head.parameters().get("node", "")
    jobs_max = exchange.number("max", default=1, low=1, high=app.config.max_claim)
    lease_ms = exchange.number("lease_ms", default=0, low=1, high=2**53) or None
    request = ClaimRequest(node=node, max=jobs_max, lease_ms=lease_ms)
    request = app.engine.check_claim(topic, request)
    Worker(app, topic, topic.queue, request).connect(exchange)


class Worker:
    """One connection that works."""

    def __init__(self, app: "App", topic: Topic, table: LeaseTable, request: ClaimRequest) -> None:
        self._app = app
        self._topic = topic
        self._table = table
        self._request = request
        self._held: set[str] = set()
        """Leases of jobs that were sent; some may be settled since."""
        self._claiming = False
        self._stream: EventStream | None = None

    def connect(self, exchange: Exchange) -> None:
        stream = EventStream(
            self._app,
            exchange,
            heartbeat_ms=HEARTBEAT_MS,
            on_end=self._on_end,
            on_room=self._refill,
        )
        if not stream.is_open:
            return
        self._stream = stream
        self._app.live.delivery.listen(self._topic, self._on_news)
        with self._app.engine.shard_of(self._topic).lock:
            self._table.listeners.add(self._mark)
        self._refill()

    def _mark(self) -> None:
        """Hear, under the shard's lock, that there may be something to do."""
        self._app.live.delivery.mark(self._topic)

    def _on_news(self, topic: Topic) -> None:
        if self._stream is not None and self._app.engine.find_topic(topic.name) is not topic:
            self._stream.end("topic_not_found", f"topic {topic.name!r} was deleted")
        else:
            self._refill()

    def _refill(self) -> None:
        """Claim as many jobs as this worker has hands free."""
        stream = self._stream
        if stream is None or self._claiming:
            return
        self._held = {lease for lease in self._held if self._table.by_lease(lease) is not None}
        free = self._request.max - len(self._held)
        if (
            free <= 0
            or not stream.has_room(self._app.config.stream_buffer_bytes // 2)
            or self._table.ready(self._topic.live_records) <= 0
        ):
            return
        self._claiming = True
        try:
            self._claim(msgspec.structs.replace(self._request, max=min(free, JOBS_A_CLAIM)))
        except TopicsError as error:
            self._fail(error)

    def _claim(self, request: ClaimRequest) -> None:
        topic, log = self._topic, self._app.ready_log
        if topic.config.claim_jitter_ms or log.may_block(topic, 0):
            self._app.spawn(self._claim_slowly(request))
            return
        # At once, so that the next worker does not try for the same job.
        waiter = log.waiter_of(topic)
        _, ticket = self._app.engine.submit_claim(topic, request, waiter=waiter)
        waiter.tell(ticket, self._on_claimed)

    async def _claim_slowly(self, request: ClaimRequest) -> None:
        try:
            self._send(await self._app.ready_log.claim_jobs(self._topic, request))
        except TopicsError as error:
            self._fail(error)

    def _on_claimed(self, ticket: Commitment) -> None:
        if ticket.error is not None:
            self._fail(ticket.error)
            return
        assert isinstance(ticket, Claim)
        if ticket.sets_aside:
            # Whoever hears of a letter by what this worker gets, or does not, can read it.
            send = partial(self._send, ticket.claimed)
            self._app.ready_log.dead_letters.tell_after(send)
        else:
            self._send(ticket.claimed)

    def _send(self, claimed: Claimed) -> None:
        self._claiming = False
        self._held.update(lease.lease_id for lease in claimed.leases)
        if self._stream is None:
            self._release()  # the worker left while its claim was on the way
            return
        jobs = _SPLIT(b"[%b]" % claimed.claimed_json)
        for lease, job in zip(claimed.leases, jobs, strict=True):
            self._stream.write(job_frame(self._topic.name, bytes(job), seq=lease.seq))
        self._app.metrics.records_delivered += claimed.count
        if claimed.count:
            self._refill()  # a claim may give less than there is

    def _fail(self, error: TopicsError) -> None:
        self._claiming = False
        if self._stream is not None:
            self._stream.end(error.code, str(error), retry_after_ms=RETRY_AFTER_MS)

    def _on_end(self, stream: EventStream) -> None:
        del stream
        self._stream = None
        self._app.live.delivery.unlisten(self._topic, self._on_news)
        with self._app.engine.shard_of(self._topic).lock:
            self._table.listeners.discard(self._mark)
        self._release()

    def _release(self) -> None:
        """Give back what was not settled."""
        held, self._held = sorted(self._held), set()
        if not held:
            return
        waiter = self._app.ready_log.waiter_of(self._topic)
        try:
            _, ticket = self._app.engine.submit_release(
                self._topic, self._request.node, held, waiter=waiter
            )
        except TopicsError:
            return  # the topic or the log is gone, and the leases with it
        waiter.tell(ticket, _nothing)


def _nothing(ticket: Commitment) -> None:
    """Wait for nothing: the jobs are back whether the log knows it or not."""
