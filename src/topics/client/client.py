"""`Topics`: the log of a server, with the names of the embedded one.

Owns a pool of connections; safe for many threads. Reference: docs/reference/client.md.
"""

import math
import ssl
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from topics.client import calls, group_calls
from topics.client.bulk import BulkFace
from topics.client.groups import GroupsFace
from topics.client.replies import Health, Ready
from topics.client.request import Call, Flow, Response
from topics.client.retry import Pause, Send, attempt
from topics.client.settings import ClientSettings
from topics.client.sync_transport import SyncTransport
from topics.client.watch import Watch
from topics.client.watch_flow import Patience, follow
from topics.client.watching import Wanted, Watching, starts_of
from topics.clock import Clock, SystemClock
from topics.closing import Closing
from topics.errors import Unreachable
from topics.handles.face import HandlesFace
from topics.handles.membership import Ask
from topics.handles.outbox import DELIVERY_S
from topics.limits import DEFAULT_BATCH_BYTES, DEFAULT_LIMIT
from topics.model.append import Appended
from topics.model.delete import Deleted
from topics.model.diff import Page
from topics.model.queues import Acked, Claimed, Extended, Nacked, Redriven
from topics.model.routers import RouterState
from topics.model.stream import PageRequest
from topics.model.topics import ListedTopic, TopicState
from topics.model.watch import WATCH_HEARTBEAT_MS

T = TypeVar("T")


class Topics(GroupsFace, BulkFace, HandlesFace, Closing):
    """A client of one server."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        retry_for_s: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Take `url` and `token` from TOPICS_URL and TOPICS_TOKEN where they are not given.

        `timeout_s` bounds one try, `retry_for_s` all of them.
        """
        self._settings = ClientSettings(
            url,
            token=token,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            ssl_context=ssl_context,
        )
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._transport = SyncTransport(self._settings, self._clock)

    @property
    def url(self) -> str:
        return self._settings.url

    # Topics.

    def create(self, topic: str, **config: Any) -> TopicState:  # noqa: ANN401 - any JSON
        """Create a topic, or change the config of an existing one; return its state."""
        return self._flow(calls.create(topic, config))

    def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        """Delete a topic with all that it holds; False where there was none."""
        return self._call(calls.drop(topic, if_empty=if_empty))

    def state(self, topic: str) -> TopicState:
        return self._call(calls.state(topic))

    def topics(self, prefix: str = "") -> list[str]:
        """Return the names of the topics, sorted."""
        return self._flow(calls.topics(prefix))

    def listed(self, prefix: str = "") -> list[ListedTopic]:
        """Return the topics with their heads and sizes, sorted by name."""
        return self._flow(calls.listed(prefix))

    # Records.

    def append(
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
        """Append records (`data`, and optionally `tag`, `node`, `meta`), all or nothing."""
        return self._call(
            calls.append(
                topic,
                records,
                node=node,
                idempotency_key=idempotency_key,
                producer_id=producer_id,
                producer_seq=producer_seq,
                create=create,
                queue=queue,
            )
        )

    def append_json(self, topic: str, body: bytes) -> Appended:
        """Append a JSON body as it is: `{"records": [...], "idempotency_key": …}`."""
        return self._call(calls.append_json(topic, body))

    def diff(  # noqa: PLR0913 - one argument a field of the contract
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
        """Read what comes after `from_seq`: records, the loss before them, where to go on.

        Only what is at or after `from_ts` and before `until_ts`, milliseconds since the epoch.
        With `wait_ms` it waits that long for something to read.
        """
        return self._call(
            calls.diff(
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
                wait_ms=wait_ms,
            )
        )

    def read_page(self, request: PageRequest) -> Page:
        """Read for a handle; a patient one waits for a server that is away, however long."""
        call = calls.diff(
            request.topic,
            from_seq=request.from_seq,
            from_ts=request.from_ts,
            until_ts=request.until_ts,
            limit=request.limit,
            node=request.node,
            match=request.match,
            wait_ms=request.wait_ms,
        )
        return self._call(call, retry_for_s=math.inf if request.patient else None)

    def watch(
        self,
        topics: Mapping[str, int | None] | Sequence[str],
        *,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: object = None,
        until_caught_up: bool = False,
        heartbeat_ms: int = WATCH_HEARTBEAT_MS,
    ) -> Watch:
        """Follow many topics live over one connection that comes back by itself.

        `topics` are names and patterns (`orders.*`), with the seq to begin after, or None for what
        comes; a list is for what comes.
        """
        wanted = Wanted(
            starts=starts_of(topics),
            limit=limit,
            node=node,
            match=match,
            until_caught_up=until_caught_up,
            heartbeat_ms=heartbeat_ms,
        )
        settings = self._settings
        patience = Patience(
            timeout_s=settings.timeout_s,
            start_s=settings.retry_for_s,
            away_s=settings.retry_for_s if until_caught_up else math.inf,
        )
        steps = follow(Watching(wanted), patience, clock=self._clock, random=self._random)
        return Watch(steps, self._transport, timeout_s=settings.timeout_s)

    def delete(self, topic: str, *, before_seq: int | None = None, match: object = None) -> Deleted:
        """Delete records for good: below a seq, by tag, or both."""
        return self._call(calls.delete(topic, before_seq=before_seq, match=match))

    # Jobs.

    def claim(
        self,
        topic: str,
        *,
        node: str,
        max: int = 1,  # noqa: A002 - its name on the wire
        lease_ms: int | None = None,
    ) -> Claimed:
        """Take up to `max` jobs of a queue for `lease_ms`."""
        return self._call(calls.claim(topic, node=node, max_jobs=max, lease_ms=lease_ms))

    def ack(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: Sequence[str] | None = None
    ) -> Acked:
        """Delete jobs that are done."""
        return self._call(calls.ack(topic, seqs, node=node, lease_ids=lease_ids))

    def nack(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ids: Sequence[str] | None = None,
        delay_ms: int = 0,
    ) -> Nacked:
        """Give jobs back, to be claimed again after `delay_ms`."""
        return self._call(
            calls.nack(topic, seqs, node=node, lease_ids=lease_ids, delay_ms=delay_ms)
        )

    def extend(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ms: int,
        lease_ids: Sequence[str] | None = None,
    ) -> Extended:
        """Hold jobs for `lease_ms` from now."""
        return self._call(
            calls.extend(topic, seqs, node=node, lease_ids=lease_ids, lease_ms=lease_ms)
        )

    def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        max: int = 100,  # noqa: A002 - its name on the wire
    ) -> Redriven:
        """Bring up to `max` dead letters back to their queues, oldest first, or all to one."""
        return self._call(calls.redrive(topic, to=to, max_jobs=max))

    # Routers.

    def put_router(self, router: str, **fields: Any) -> RouterState:  # noqa: ANN401 - any JSON
        """Create a router, or change one; return its state."""
        return self._flow(calls.put_router(router, fields))

    def delete_router(self, router: str) -> bool:
        """Remove a router; False where there was none."""
        return self._call(calls.delete_router(router))

    def router_state(self, router: str) -> RouterState:
        return self._call(calls.router_state(router))

    def routers(self) -> list[RouterState]:
        """Return every router, by name."""
        return self._flow(calls.routers())

    # The server.

    def health(self) -> Health:
        return self._call(calls.health())

    def ready(self) -> Ready:
        """Return when the log is served, while a server that starts is worth waiting for."""
        return self._call(calls.ready())

    def metrics(self) -> str:
        """Return the metrics as Prometheus reads them."""
        return self._call(calls.metrics())

    def close(self) -> None:
        self._transport.close()

    def __repr__(self) -> str:
        return f"Topics({self.url!r})"

    def _deliver(self, topic: str, body: bytes) -> Appended:
        return self._call(calls.append_json(topic, body, repeatable=True), retry_for_s=DELIVERY_S)

    def _ask(self, ask: Ask, *, retry_for_s: float | None = None) -> Any:  # noqa: ANN401 - the answer of any call
        return self._call(group_calls.of(ask), retry_for_s=retry_for_s)

    def _flow(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                call = flow.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = self._call(call)

    def _call(self, call: Call[T], *, retry_for_s: float | None = None) -> T:
        attempts = attempt(
            call,
            timeout_s=self._settings.timeout_s,
            retry_for_s=self._settings.retry_for_s if retry_for_s is None else retry_for_s,
            clock=self._clock,
            random=self._random,
        )
        try:
            step = next(attempts)
            while True:
                step = attempts.send(self._perform(step))
        except StopIteration as end:
            return call.decode(end.value.body)

    def _perform(self, step: Send | Pause) -> Response | Unreachable | None:
        if isinstance(step, Pause):
            self._clock.sleep(step.seconds)
            return None
        try:
            return self._transport.send(step.request, step.timeout_s)
        except Unreachable as lost:
            return lost
