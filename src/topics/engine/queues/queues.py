"""The queues of one engine: every word a worker can say, checked, locked and put on its way.

Each `submit_*` returns at once, as those of append and delete do; the plain word waits for it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import msgspec

from topics.clock import Clock
from topics.config import ServerConfig
from topics.engine.queues.claim import Claim, submit_claims
from topics.engine.queues.dead_letters import DeadLetters
from topics.engine.queues.removal import settle_floors
from topics.engine.queues.settle import (
    Ack,
    LeaseChange,
    submit_ack,
    submit_extend,
    submit_nack,
    submit_release,
)
from topics.engine.queues.table import LeaseTable
from topics.engine.queues.window import ClaimWindows
from topics.engine.request import Write
from topics.engine.shard import Shard
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.registry import Registry
from topics.engine.topics.topic import Topic
from topics.errors import (
    BatchTooLarge,
    NotAQueue,
    RequestError,
    StorageError,
    TopicNotFound,
)
from topics.model.append import Appended
from topics.model.queues import (
    Acked,
    AckRequest,
    Claimed,
    ClaimRequest,
    Extended,
    ExtendRequest,
    Nacked,
    NackRequest,
    QueueState,
)
from topics.model.topic_config import LEASE_MS
from topics.storage.wal.group_commit import Waiter

SEQS_MAX = 1_000
DELAY_MS_MAX = 86_400_000


class Queues:
    """What workers do."""

    def __init__(
        self,
        registry: Registry,
        shards: Sequence[Shard],
        config: ServerConfig,
        *,
        clock: Clock,
        append: Callable[[Topic, Write], Appended],
        append_partitioned: Callable[[Partitioned, Write], Appended],
    ) -> None:
        self._registry = registry
        self._config = config
        self._clock = clock
        self._windows = ClaimWindows(clock, self._claim_together)
        self.dead_letters = DeadLetters(
            registry, shards, config, append=append, append_partitioned=append_partitioned
        )

    # On their way.

    def check_claim(self, topic: Topic, request: ClaimRequest) -> ClaimRequest:
        """Refuse a claim that cannot be served, and clamp it: before it waits for others."""
        _queue_of(topic)
        _check_node(request.node)
        if len(request.node.encode()) > self._config.max_node_bytes:  # a lease keeps it
            raise RequestError(f"node may have {self._config.max_node_bytes} bytes")
        if request.max < 1:
            raise RequestError("max must be 1 or more")
        lease_ms = None if request.lease_ms is None else _clamped(request.lease_ms)
        wanted = min(request.max, self._config.max_claim)
        return msgspec.structs.replace(request, max=wanted, lease_ms=lease_ms)

    def submit_claims(
        self, topic: Topic, requests: Sequence[ClaimRequest], *, waiter: Waiter | None = None
    ) -> tuple[Shard, list[Claim]]:
        """Deal what is ready to several claimers, in proportion to what each wants."""
        checked = [self.check_claim(topic, request) for request in requests]
        with self._settled(topic) as (shard, table):
            now_ms = self._clock.now_ms()
            claims = submit_claims(shard, topic, table, checked, now_ms=now_ms, waiter=waiter)
        try:
            for claim in claims:
                claim.read(verify=self._config.verify_reads)
        except StorageError:
            self._give_back(topic, list(zip(checked, claims, strict=True)))
            raise
        return shard, claims

    def submit_each(
        self, topic: Topic, requests: Sequence[ClaimRequest], *, waiter: Waiter | None = None
    ) -> tuple[Shard, list[Claim | StorageError]]:
        """Serve several claimers one after the other, as if each had come alone."""
        checked = [self.check_claim(topic, request) for request in requests]
        served: list[Claim | StorageError] = []
        with self._settled(topic) as (shard, table):
            now_ms = self._clock.now_ms()
            for request in checked:
                try:
                    served += submit_claims(
                        shard, topic, table, [request], now_ms=now_ms, waiter=waiter
                    )
                except StorageError as error:
                    served.append(error)
        for at, (request, claim) in enumerate(zip(checked, served, strict=True)):
            if isinstance(claim, Claim):
                try:
                    claim.read(verify=self._config.verify_reads)
                except StorageError as error:
                    self._give_back(topic, [(request, claim)])
                    served[at] = error
        return shard, served

    def _give_back(self, topic: Topic, taken: Sequence[tuple[ClaimRequest, Claim]]) -> None:
        """Make jobs ready again that could not be read: nobody has seen them."""
        with self._settled(topic) as (shard, table):
            for request, claim in taken:
                claim.undo_deliveries()
                submit_release(shard, topic, table, claim.lease_ids, node=request.node)

    def submit_ack(
        self, topic: Topic, request: AckRequest, *, waiter: Waiter | None = None
    ) -> tuple[Shard, Ack]:
        _check_held(request)
        with self._settled(topic) as (shard, table):
            finished = settle_floors(shard, topic)
            ticket = submit_ack(shard, topic, table, request, waiter=waiter)
        shard.commit.wake(finished)
        return shard, ticket

    def submit_nack(
        self, topic: Topic, request: NackRequest, *, waiter: Waiter | None = None
    ) -> tuple[Shard, LeaseChange]:
        _check_held(request)
        delay_ms = max(0, min(request.delay_ms, DELAY_MS_MAX))
        checked = msgspec.structs.replace(request, delay_ms=delay_ms)
        with self._settled(topic) as (shard, table):
            now_ms = self._clock.now_ms()
            return shard, submit_nack(shard, topic, table, checked, now_ms=now_ms, waiter=waiter)

    def submit_extend(
        self, topic: Topic, request: ExtendRequest, *, waiter: Waiter | None = None
    ) -> tuple[Shard, LeaseChange]:
        _check_held(request)
        checked = msgspec.structs.replace(request, lease_ms=_clamped(request.lease_ms))
        with self._settled(topic) as (shard, table):
            now_ms = self._clock.now_ms()
            return shard, submit_extend(shard, topic, table, checked, now_ms=now_ms, waiter=waiter)

    def submit_release(
        self, topic: Topic, node: str, lease_ids: Sequence[str], *, waiter: Waiter | None = None
    ) -> tuple[Shard, LeaseChange]:
        with self._settled(topic) as (shard, table):
            return shard, submit_release(shard, topic, table, lease_ids, node=node, waiter=waiter)

    # Until it is done.

    def claim(self, topic: Topic, request: ClaimRequest) -> Claimed:
        if topic.config.claim_jitter_ms:
            claimed = self._windows.claim(topic, self.check_claim(topic, request))
        else:
            (claimed,) = self._claim_together(topic, [request])
        if topic in self._registry.shard_of(topic).moves_due:
            self.dead_letters.move_all()
        return claimed

    def ack(self, topic: Topic, request: AckRequest) -> Acked:
        shard, ticket = self.submit_ack(topic, request)
        shard.commit.commit(ticket)
        return cast("Acked", ticket.answer)

    def nack(self, topic: Topic, request: NackRequest) -> Nacked:
        shard, ticket = self.submit_nack(topic, request)
        shard.commit.commit(ticket)
        return cast("Nacked", ticket.answer)

    def extend(self, topic: Topic, request: ExtendRequest) -> Extended:
        shard, ticket = self.submit_extend(topic, request)
        shard.commit.commit(ticket)
        return cast("Extended", ticket.answer)

    def release(self, topic: Topic, node: str, lease_ids: Sequence[str]) -> int:
        shard, ticket = self.submit_release(topic, node, lease_ids)
        shard.commit.commit(ticket)
        return cast("int", ticket.answer)

    # Looking, and time.

    def state(self, topic: Topic) -> QueueState:
        table = _queue_of(topic)
        with self._registry.shard_of(topic).lock:
            self.settle(topic, table)
            return self.state_of_settled(topic, table)

    def state_of_settled(self, topic: Topic, table: LeaseTable) -> QueueState:
        """Return the counts; the shard's lock is held."""
        return QueueState(
            ready=table.ready(topic.live_records),
            in_flight=table.in_flight,
            dead_lettered=table.dead_lettered,
        )

    def next_claimable_ms(self, topic: Topic) -> int | None:
        """Return when the next lease or delay ends: nothing becomes ready by itself before."""
        table = _queue_of(topic)
        with self._registry.shard_of(topic).lock:
            return table.next_until()

    def sweep(self) -> None:
        """Return expired and delayed jobs of every queue that is due."""
        for shard, topic in self._registry.each():
            while topic.queue is not None and topic.queue.is_due(
                now_ms=self._clock.now_ms(), earliest_seq=topic.floors.earliest_seq
            ):
                with shard.lock:
                    self.settle(topic, topic.queue)

    def settle(self, topic: Topic, table: LeaseTable) -> None:
        """Bring a table up to now; the shard's lock is held."""
        self._registry.expire(topic)
        table.settle(now_ms=self._clock.now_ms(), earliest_seq=topic.floors.earliest_seq)

    # Inside.

    def _claim_together(self, topic: Topic, requests: Sequence[ClaimRequest]) -> list[Claimed]:
        shard, claims = self.submit_claims(topic, requests)
        for claim in claims:
            shard.commit.commit(claim)
        return [claim.claimed for claim in claims]

    @contextmanager
    def _settled(self, topic: Topic) -> Iterator[tuple[Shard, LeaseTable]]:
        """Hold the lock of a queue's shard, with room on its log and the table up to now."""
        table = _queue_of(topic)
        shard = self._registry.shard_of(topic)
        with shard.lock:
            if topic.deleted:
                raise TopicNotFound(topic.name)
            shard.commit.admit(0)
            self.settle(topic, table)
            yield shard, table


def _queue_of(topic: Topic) -> LeaseTable:
    if topic.queue is None:
        raise NotAQueue(topic.name)
    return topic.queue


def _check_node(node: str) -> None:
    if not node:
        raise RequestError("node must name the worker")


def _check_held(request: AckRequest) -> None:
    _check_node(request.node)
    if len(request.seqs) > SEQS_MAX:
        raise BatchTooLarge(f"{len(request.seqs)} seqs in one request, at most {SEQS_MAX}")
    if request.lease_ids is not None and len(request.lease_ids) != len(request.seqs):
        raise RequestError("lease_ids must be as many as seqs")


def _clamped(lease_ms: int) -> int:
    return max(LEASE_MS[0], min(lease_ms, LEASE_MS[1]))
