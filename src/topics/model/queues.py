"""What workers ask of a queue, and what it answers. Reference: docs/reference/queues.md."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from topics.model.diff import NO_META


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """A worker wants jobs; without `lease_ms` the queue's own lease time counts."""

    node: str
    max: int = 1
    lease_ms: int | None = None


class AckRequest(Struct, frozen=True, kw_only=True):
    """A worker is done with jobs; `lease_ids`, one a seq, keep a stale worker from acking."""

    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[str] | None = None


class NackRequest(AckRequest, frozen=True, kw_only=True):
    """A worker gives jobs back, to be claimed again after `delay_ms`."""

    delay_ms: int = 0


class ExtendRequest(AckRequest, frozen=True, kw_only=True):
    """A worker needs more time, counted from now."""

    lease_ms: int


class Lease(Struct, frozen=True, kw_only=True):
    """One job in the hands of one worker."""

    seq: int
    lease_id: str
    deadline: int
    deliveries: int


class Job(Struct, frozen=True, kw_only=True):
    """A claimed record: `data` and `meta` are decoded when asked for."""

    seq: int = field(name="$seq")
    lease_id: str
    deadline: int
    deliveries: int
    ts: int = field(name="$ts")
    node: str | None = field(name="$node", default=None)
    tag: str | None = field(name="$tag", default=None)
    meta_json: Raw = field(name="meta", default=NO_META)
    data_json: Raw = field(name="data")

    @property
    def data(self) -> Any:  # noqa: ANN401 - a payload is any JSON
        return msgspec.json.decode(self.data_json)

    @property
    def meta(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = msgspec.json.decode(self.meta_json)
        return found


class Claimed(Struct, frozen=True, kw_only=True):
    """The jobs one claim got, ascending, and how many more are ready."""

    claimed_json: bytes
    """The jobs as JSON objects, joined by commas."""
    leases: list[Lease]
    count: int
    ready: int

    @property
    def jobs(self) -> list[Job]:
        return _DECODE_JOBS(b"[" + self.claimed_json + b"]")


class Acked(Struct, frozen=True, kw_only=True):
    """How many jobs are done for good, and which seqs this worker did not hold."""

    acked: int
    acked_seqs: list[int]
    skipped: list[int]
    ready: int
    in_flight: int


class Nacked(Struct, frozen=True, kw_only=True):
    """How many jobs went back, and which seqs this worker did not hold."""

    nacked: int
    nacked_seqs: list[int]
    skipped: list[int]
    ready: int
    in_flight: int


class Extended(Struct, frozen=True, kw_only=True):
    """How many leases run longer now, until when, and which seqs this worker did not hold."""

    extended: int
    skipped: list[int]
    deadlines: dict[int, int]


class QueueState(Struct, frozen=True, kw_only=True):
    """What a queue shows of itself."""

    ready: int
    in_flight: int
    dead_lettered: int


_DECODE_JOBS: Callable[[bytes], list[Job]] = msgspec.json.Decoder(list[Job]).decode
