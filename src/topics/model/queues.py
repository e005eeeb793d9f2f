"""What workers ask of a queue, and what it answers. Reference: docs/reference/queues.md."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from topics.model.diff import Record, Seq, ShownRecord, check_seq
from topics.model.json_text import decode_text
from topics.model.performance import Performance
from topics.model.topic_config import Clamped, TopicName

Worker = Annotated[str, Meta(min_length=1, description="the name of the worker")]
Seqs = Annotated[Sequence[Seq], Meta(extra_json_schema={"maxItems": 1000})]


class ClaimRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker wants jobs; without `lease_ms` the queue's own lease time counts."""

    node: Worker
    max: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 1
    lease_ms: Clamped | None = None


class AckRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker is done with jobs; `lease_ids`, one a seq, keep a stale worker from acking."""

    node: Worker
    seqs: Seqs
    lease_ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for seq in self.seqs and (min(self.seqs), max(self.seqs)):
            check_seq("seqs", seq)


class NackRequest(AckRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker gives jobs back, to be claimed again after `delay_ms`."""

    delay_ms: Clamped = 0


class ExtendRequest(AckRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker needs more time, counted from now."""

    lease_ms: Clamped


class Lease(Struct, frozen=True, kw_only=True):
    """One job in the hands of one worker."""

    seq: int
    lease_id: str
    deadline: int
    deliveries: int


class Job(Record, frozen=True, kw_only=True):
    """A claimed record."""

    lease_id: str
    deadline: int
    deliveries: int


class Claimed(Struct, frozen=True, kw_only=True):
    """The jobs one claim got, ascending, and how many more are ready."""

    claimed_json: bytes
    """The jobs as JSON objects, joined by commas."""
    leases: list[Lease]
    count: int
    ready: int

    @property
    def jobs(self) -> list[Job]:
        return decode_text(b"[" + self.claimed_json + b"]", list[Job])


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


class RedriveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters shall go back: each to the queue it comes from, or all of them to one."""

    to: TopicName | None = None
    max: Annotated[int, Meta(ge=1, description="clamped to 1000")] = 100


class Stopped(Struct, frozen=True, kw_only=True):
    """Why a redrive did not go on: the first letter that its queue did not take."""

    code: str
    message: str


class Redriven(Struct, frozen=True, kw_only=True):
    """How many letters left the dead-letter topic, for which queues, and how many it still has."""

    topic: str
    moved: int
    queues: dict[str, int]
    left: int
    stopped: Stopped | None


class RedriveReply(Redriven, frozen=True, kw_only=True):
    """The body of the answer to a redrive."""

    performance: Performance


class ShownJob(ShownRecord, frozen=True, kw_only=True):
    """A job as a worker gets it; what it has not is left out."""

    lease_id: str
    deadline: int
    deliveries: int


class ClaimReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to a claim."""

    topic: str
    claimed: list[ShownJob]
    count: int
    ready: int
    performance: Performance


class AckReply(Acked, frozen=True, kw_only=True):
    """The body of the answer to an ack."""

    performance: Performance


class NackReply(Nacked, frozen=True, kw_only=True):
    """The body of the answer to a nack."""

    performance: Performance


class ExtendReply(Extended, frozen=True, kw_only=True):
    """The body of the answer to an extend."""

    performance: Performance
