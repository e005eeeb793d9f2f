"""What a reader that goes on and on gets: records, what was lost, and that it has caught up."""

from typing import Generic, TypeVar

from msgspec import Struct

from topics.limits import DEFAULT_LIMIT
from topics.model.diff import Record, Tombstone
from topics.model.queues import Job

T = TypeVar("T")


class TypedRecord(Record, Generic[T], frozen=True, kw_only=True):
    """A record whose `data` is of the type that its reader named."""

    value: T

    @property
    def data(self) -> T:
        return self.value


class TypedJob(Job, Generic[T], frozen=True, kw_only=True):
    """A claimed job whose `data` is of the type that its worker named."""

    value: T

    @property
    def data(self) -> T:
        return self.value


class CaughtUp(Struct, frozen=True, kw_only=True):
    """Nothing is left to read for now; `from_seq` is where the reader stands."""

    topic: str
    from_seq: int
    head_seq: int


Item = TypedRecord[T] | Tombstone | CaughtUp
"""A `match` over these three is whole."""


class PageRequest(Struct, frozen=True, kw_only=True):
    """One page for a reader: `patient` ones wait for a server that is away, however long."""

    topic: str
    from_seq: int
    from_ts: int = 0
    until_ts: int = 0
    limit: int = DEFAULT_LIMIT
    node: str | tuple[str, ...] = ()
    match: str | tuple[str, ...] | None = None
    wait_ms: int = 0
    patient: bool = False


class GroupRecord(TypedRecord[T], frozen=True, kw_only=True):
    """A record that a consumer got, and where it comes from."""

    topic: str
    partition: int


class GroupTombstone(Tombstone, frozen=True, kw_only=True):
    """Loss that a consumer is told, and where it was."""

    topic: str
    partition: int


class WatchedRecord(Record, frozen=True, kw_only=True):
    """A record that a watch brought, and where it comes from."""

    topic: str


class WatchedTombstone(Tombstone, frozen=True, kw_only=True):
    """Loss that a watch is told, and where it was; `from_seq_too_old`: it was there before."""

    topic: str


class TopicDeleted(Struct, frozen=True, kw_only=True):
    """A topic that was watched is gone; if its name comes back, its seqs begin anew."""

    topic: str
    head_seq: int


WatchItem = WatchedRecord | WatchedTombstone | CaughtUp | TopicDeleted
"""A `match` over these four is whole."""
