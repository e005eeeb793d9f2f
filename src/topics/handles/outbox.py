"""What a producer has still to send: records in order, cut into batches. No I/O, no threads."""

import asyncio
import secrets
from collections import deque
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from itertools import chain, repeat
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from topics.errors import (
    BatchTooLarge,
    PartlyWritten,
    PayloadTooLarge,
    RecordTooLarge,
    RequestError,
    Throttled,
    TopicsError,
    Unreachable,
)
from topics.handles.payload import encode_value
from topics.limits import MIB
from topics.model.append import Appended
from topics.model.encode import encode_json

BATCH_BYTES: Final = 4 * MIB
"""A batch is sent when it is this large, whatever `max_batch` says."""
BUFFER_BYTES: Final = 32 * MIB
DELIVERY_S: Final = 120.0
"""How long a batch is tried."""
OF_ONE_RECORD: Final = (RequestError, RecordTooLarge, BatchTooLarge, PayloadTooLarge)
"""Refusals that one record of a batch may be to blame for."""


class Sent(Struct, frozen=True):
    """Where a record is: `topic` names the partition, if there are any.

    `seq` is 0 for a record that is there, but whose seq the server has forgotten.
    """

    topic: str
    seq: int


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """How a producer works."""

    linger_ms: int
    max_batch: int
    buffer_bytes: int
    when_full: Literal["block", "raise"]

    def __post_init__(self) -> None:
        if self.linger_ms < 0:
            raise RequestError("linger_ms must not be negative")
        if self.max_batch < 1 or self.buffer_bytes < 1:
            raise RequestError("max_batch and buffer_bytes must be at least 1")
        if self.when_full not in ("block", "raise"):
            raise RequestError('when_full must be "block" or "raise"')


class Entry(Struct, frozen=True, eq=False):
    """One record on its way, as JSON, and who waits for its seq."""

    record_json: bytes
    future: "Future[Sent] | asyncio.Future[Sent]"

    def fail(self, error: TopicsError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # seen: `flush` tells it too, so asyncio need not complain

    def succeed(self, sent: Sent) -> None:
        if not self.future.done():
            self.future.set_result(sent)


def encode_record(
    data: object,
    *,
    tag: str | None = None,
    key: str | None = None,
    node: str | None = None,
    meta: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a record as JSON; what cannot be JSON is refused before it is on its way."""
    fields = {"tag": tag, "key": key, "node": node, "meta": meta}
    given = {name: value for name, value in fields.items() if value is not None}
    return encode_json({"data": encode_value(data), **given}, what="the record")


class Outbox:
    """Records in the order they came; a batch gets a number that rises."""

    def __init__(self, *, max_batch: int) -> None:
        self.waiting: deque[Entry] = deque()
        self._on_way: list[Entry] = []
        self.held_bytes = 0
        """Of records that wait or are on their way."""
        self.accepted = 0
        self.settled = 0
        self.first_error: TopicsError | None = None
        self._waiting_bytes = 0
        self._max_batch = max_batch
        self._producer_id = f"p-{secrets.token_hex(12)}"
        self._producer_seq = 0

    def add(self, entry: Entry) -> None:
        self.waiting.append(entry)
        self.accepted += 1
        self.held_bytes += len(entry.record_json)
        self._waiting_bytes += len(entry.record_json)

    @property
    def has_full_batch(self) -> bool:
        return len(self.waiting) >= self._max_batch or self._waiting_bytes >= BATCH_BYTES

    @property
    def is_worth_waking(self) -> bool:
        """Tell whether the sender should look: not for each record that joins a batch."""
        return len(self.waiting) == 1 or self.has_full_batch

    def take_batch(self) -> list[Entry]:
        """Take the oldest records, as many as go together."""
        batch: list[Entry] = []
        size = 0
        while self.waiting and len(batch) < self._max_batch:
            length = len(self.waiting[0].record_json)
            if batch and size + length > BATCH_BYTES:
                break
            size += length
            batch.append(self.waiting.popleft())
        self._waiting_bytes -= size
        self._on_way = batch
        return batch

    def deliver(self, batch: list[Entry]) -> Generator[bytes, Appended | TopicsError]:
        """Yield the bodies of the writes that deliver a batch; take what came of each.

        A batch that is refused because of one record is halved until that record stands alone; what
        some partitions have of it is not sent again.
        """
        parts = [batch]
        while parts:
            part = parts.pop()
            outcome = yield self._body_of(part)
            if isinstance(outcome, PartlyWritten) and outcome.placed:
                part, outcome = self._succeed_partly(part, outcome)
            if isinstance(outcome, Appended):
                self._succeed(part, outcome)
            elif len(part) > 1 and type(outcome) in OF_ONE_RECORD:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
            else:
                self.fail(part, outcome)

    def fail(self, entries: list[Entry], error: TopicsError) -> None:
        self.first_error = self.first_error or error
        self._settle(entries)
        for entry in entries:
            entry.fail(error)

    def abandon(self) -> None:
        """Fail what is not settled, so that nobody waits for a producer that is gone."""
        left = [entry for entry in (*self._on_way, *self.waiting) if not entry.future.done()]
        self.waiting.clear()
        if left:
            self.fail(left, Unreachable("the producer ended before it was sent", sent=True))

    def take_error(self) -> TopicsError | None:
        error, self.first_error = self.first_error, None
        return error

    def _succeed(self, entries: list[Entry], appended: Appended) -> None:
        self._settle(entries)
        names = {placement.partition: placement.topic for placement in appended.placements}
        if names:
            places = [Sent(names[place], seq) for place, seq in appended.placed]
        else:
            places = [Sent(appended.topic, seq) for seq in appended.seqs]
        forgotten = repeat(Sent(appended.topic, 0))
        for entry, sent in zip(entries, chain(places, forgotten), strict=False):
            entry.succeed(sent)

    def _succeed_partly(
        self, entries: list[Entry], told: PartlyWritten
    ) -> tuple[list[Entry], TopicsError]:
        """Settle the records that partitions took; return the others, and why they are not there.

        Of several partitions each has a reason of its own, and only the first one is told.
        """
        names = {placement["partition"]: str(placement["topic"]) for placement in told.placements}
        rest: list[Entry] = []
        for entry, (place, seq) in zip(entries, told.placed, strict=True):
            if place not in names:
                rest.append(entry)
                continue
            self._settle([entry])
            entry.succeed(Sent(names[place], seq))
        return rest, told.cause if len(told.failed) == 1 else told

    def _settle(self, entries: list[Entry]) -> None:
        self.held_bytes -= sum([len(entry.record_json) for entry in entries])
        self.settled += len(entries)

    def _body_of(self, part: list[Entry]) -> bytes:
        self._producer_seq += 1
        return b'{"records":[%b],"producer_id":%b,"producer_seq":%d}' % (
            b",".join([entry.record_json for entry in part]),
            msgspec.json.encode(self._producer_id),
            self._producer_seq,
        )


def pause_s_of(error: TopicsError) -> float | None:
    """Return how long a write that found no room should wait; None for any other error."""
    cause = error.cause if isinstance(error, PartlyWritten) else error
    return cause.retry_after_ms / 1000 if isinstance(cause, Throttled) else None
