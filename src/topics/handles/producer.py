"""Many single records, sent as few batches, in order and once. Reference: docs/reference/client.md.

Owns one thread. Every record is settled: its future has a seq or an error, and the first error is
told by the next `flush` or `close`, too.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from topics.clock import Clock
from topics.closing import Closing
from topics.errors import Closed, Throttled, TopicsError
from topics.handles.outbox import Entry, Outbox, ProducerSettings, Sent, encode_record
from topics.limits import check_topic_name
from topics.model.append import Appended

Deliver = Callable[[str, bytes], Appended]
"""Appends the body of a write, as often as it takes."""


class Producer(Closing):
    """Sends records of one topic; safe for many threads."""

    def __init__(
        self,
        deliver: Deliver,
        topic: str,
        settings: ProducerSettings,
        clock: Clock,
    ) -> None:
        self._deliver = deliver
        self._topic = check_topic_name(topic)
        self._clock = clock
        self._linger_s = settings.linger_ms / 1000
        self._settings = settings
        self._outbox = Outbox(max_batch=settings.max_batch)
        self._changed = threading.Condition()
        self._hurry = 0
        """Records up to this one do not linger."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="topics-producer", daemon=True)
        self._thread.start()

    def send(
        self,
        data: object,
        *,
        tag: str | None = None,
        key: str | None = None,
        node: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> "Future[Sent]":
        """Put a record on its way; the future says where it is. Waits for room in the buffer."""
        future: Future[Sent] = Future()
        future.set_running_or_notify_cancel()  # it is on its way: it cannot be called back
        entry = Entry(encode_record(data, tag=tag, key=key, node=node, meta=meta), future)
        with self._changed:
            while not self._closing and self._is_full(len(entry.record_json)):
                if self._settings.when_full == "raise":
                    raise Throttled(max(1, int(self._linger_s * 1000)))
                self._changed.wait()
            if self._closing:
                raise Closed("the producer is closed")
            self._outbox.add(entry)
            if self._outbox.is_worth_waking:
                self._changed.notify_all()
        return future

    def flush(self) -> None:
        """Return when all that was sent before is settled; raise the first error since then."""
        with self._changed:
            goal = self._hurry = self._outbox.accepted
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._outbox.settled >= goal)
            error = self._outbox.take_error()
        if error is not None:
            raise error

    def close(self) -> None:
        """Flush, and take no more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self.flush()

    def _is_full(self, size: int) -> bool:
        held = self._outbox.held_bytes
        return held > 0 and held + size > self._settings.buffer_bytes

    def _run(self) -> None:
        try:
            self._send_all()
        finally:
            with self._changed:
                self._closing = True
                self._outbox.abandon()
                self._changed.notify_all()

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outbox.waiting or self._closing)
                if not self._outbox.waiting:
                    return
                self._linger()
                batch = self._outbox.take_batch()
            self._send(batch)

    def _linger(self) -> None:
        """Wait for company, unless somebody waits for us."""
        deadline_s = self._clock.monotonic_s() + self._linger_s
        while not (self._closing or self._outbox.has_full_batch or self._is_hurried()):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._changed.wait(left_s)

    def _is_hurried(self) -> bool:
        return self._outbox.settled < self._hurry

    def _send(self, batch: list[Entry]) -> None:
        delivery = self._outbox.deliver(batch)
        try:
            body = next(delivery)
            while True:
                outcome = self._try(body)
                with self._changed:
                    try:
                        body = delivery.send(outcome)
                    finally:
                        self._changed.notify_all()
        except StopIteration:
            return

    def _try(self, body: bytes) -> Appended | TopicsError:
        try:
            return self._deliver(self._topic, body)
        except TopicsError as error:
            return error
