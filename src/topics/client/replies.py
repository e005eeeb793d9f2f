"""From the bytes of an answer to the values of `topics.model`. Fields nobody knows are ignored."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from topics.errors import TopicsError
from topics.model.append import Appended
from topics.model.delete import Deleted
from topics.model.diff import Page, Tombstone
from topics.model.json_text import decode_text
from topics.model.partitions import Placement
from topics.model.queues import Acked, Claimed, Extended, Job, Lease, Nacked, Redriven
from topics.model.routers import RouterDefinition, RouterState
from topics.model.topic_config import TopicConfig
from topics.model.topics import ListedTopic, TopicState

T = TypeVar("T")


class _DiffReply(Struct, frozen=True):
    topic: str
    records: list[Raw]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None = None
    until_reached: bool | None = None
    performance: dict[str, Any] = {}


class _AppendReply(Struct, frozen=True):
    topic: str
    count: int
    created: bool
    deduped: bool
    first_seq: int = 0
    last_seq: int = 0
    head_seq: int = 0
    placements: tuple[Placement, ...] = ()
    seqs: Raw = Raw(b"[]")


class _ClaimReply(Struct, frozen=True):
    claimed: list[Raw]
    ready: int


class _DeletedReply(Struct, frozen=True):
    deleted: bool


class _CreatedReply(Struct, frozen=True):
    created: bool


class TopicPage(Struct, frozen=True):
    """One page of a list of topics."""

    topics: list[ListedTopic]
    next_cursor: str | None = None


class RouterPage(Struct, frozen=True):
    """One page of a list of routers."""

    routers: list[dict[str, Any]]
    next_cursor: str | None = None


class Health(Struct, frozen=True):
    """The server answers."""

    status: str
    version: str
    uptime_ms: int


class Ready(Struct, frozen=True):
    """The log is replayed and served."""

    status: str
    topics: int


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return what reads a reply of one kind; nonsense from a server is our error, too."""

    def read(body: bytes) -> T:
        try:
            return decode_text(body, kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise TopicsError(f"the server's answer cannot be read: {error}") from error

    return read


_read_object = decoder(dict[str, Any])
_read_diff = decoder(_DiffReply)
_read_claim = decoder(_ClaimReply)
_read_jobs = decoder(list[Job])
_read_deleted = decoder(_DeletedReply)
_read_created = decoder(_CreatedReply)
_read_append = decoder(_AppendReply)
_read_places = decoder(list[tuple[int, int]])
read_deleted_records = decoder(Deleted)
read_acked = decoder(Acked)
read_nacked = decoder(Nacked)
read_extended = decoder(Extended)
read_redriven = decoder(Redriven)
read_topic_page = decoder(TopicPage)
read_router_page = decoder(RouterPage)
read_health = decoder(Health)
read_ready = decoder(Ready)


def read_state(body: bytes) -> TopicState:
    fields = _read_object(body)
    fields["config"] = _known(fields.get("config", {}), TopicConfig)
    return _convert(fields, TopicState)


def read_appended(body: bytes) -> Appended:
    reply = _read_append(body)
    pairs = _read_places(bytes(reply.seqs)) if reply.placements else []
    return Appended(
        topic=reply.topic,
        first_seq=reply.first_seq,
        last_seq=reply.last_seq,
        head_seq=reply.head_seq,
        count=reply.count,
        created=reply.created,
        deduped=reply.deduped,
        placements=reply.placements,
        places=b"".join([place.to_bytes(2, "little") for place, _ in pairs]),
    )


def read_page(body: bytes) -> Page:
    reply = _read_diff(body)
    return Page(
        topic=reply.topic,
        records_json=b",".join(map(bytes, reply.records)),
        count=len(reply.records),
        next_from_seq=reply.next_from_seq,
        head_seq=reply.head_seq,
        earliest_seq=reply.earliest_seq,
        tombstone=reply.tombstone,
        records_scanned=reply.performance.get("records_scanned", 0),
        cold_segments_read=reply.performance.get("cold_segments_read", 0),
        until_reached=reply.until_reached,
    )


def read_claimed(body: bytes) -> Claimed:
    reply = _read_claim(body)
    jobs_json = b",".join(map(bytes, reply.claimed))
    leases = [
        Lease(seq=job.seq, lease_id=job.lease_id, deadline=job.deadline, deliveries=job.deliveries)
        for job in _read_jobs(b"[" + jobs_json + b"]")
    ]
    return Claimed(claimed_json=jobs_json, leases=leases, count=len(leases), ready=reply.ready)


def read_was_deleted(body: bytes) -> bool:
    return _read_deleted(body).deleted


def read_was_created(body: bytes) -> bool:
    return _read_created(body).created


def read_router(body: bytes) -> RouterState:
    return router_of(_read_object(body))


def router_of(fields: dict[str, Any]) -> RouterState:
    known = _known(fields, RouterDefinition)
    return RouterState(
        router=fields.get("router", ""),
        definition=_convert(known, RouterDefinition),
        forwarded_total=fields.get("forwarded_total", 0),
        lag=fields.get("lag", 0),
    )


def read_text(body: bytes) -> str:
    return body.decode(errors="replace")


def _known(fields: dict[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """Return the fields that a strict struct knows: a newer server may have more."""
    return {name: value for name, value in fields.items() if name in kind.__struct_fields__}


def _convert(fields: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise TopicsError(f"the server's answer cannot be read: {error}") from error
