"""The calls about consumer groups, from Python values to a `Call`. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from topics.client.calls import PAGE_SIZE, post, query_of
from topics.client.replies import decoder
from topics.client.request import Call, Flow, Request
from topics.handles.membership import Ask, names_of
from topics.limits import check_group_name
from topics.model.diff import Page, Tombstone
from topics.model.groups import (
    Committed,
    GroupState,
    Heartbeat,
    Joined,
    ListedGroup,
    Polled,
    PolledBatch,
    Positions,
    Sought,
    WirePartitions,
    WirePositions,
)


class _Left(Struct, frozen=True):
    left: bool


class _Deleted(Struct, frozen=True):
    deleted: bool


class _Batch(Struct, frozen=True):
    topic: str
    partition: int
    records: list[Raw]
    next_from_seq: int
    head_seq: int
    earliest_seq: int = 0
    tombstone: Tombstone | None = None


class _Polled(Struct, frozen=True):
    generation: int
    batches: list[_Batch]
    positions: Positions
    until_reached: bool | None = None


class _GroupPage(Struct, frozen=True):
    groups: list[ListedGroup]
    next_cursor: str | None = None


_read_polled = decoder(_Polled)
_read_left = decoder(_Left)
_read_deleted = decoder(_Deleted)
_read_joined = decoder(Joined)
_read_heartbeat = decoder(Heartbeat)
_read_committed = decoder(Committed)
_read_sought = decoder(Sought)
_read_state = decoder(GroupState)
_read_group_page = decoder(_GroupPage)


def _path(group: str, word: str = "") -> str:
    return f"/v0/groups/{quote(check_group_name(group), safe='')}{word}"


def of(ask: Ask) -> Call[Any]:
    """Return the call of what a consumer asks."""
    call: Call[Any] = _OF_WORD[ask.word](ask.group, **ask.fields)
    return call


def join(
    group: str, *, member: str, topics: Sequence[str], session_ms: int, assignor: str
) -> Call[Joined]:
    fields = {"member": member, "topics": names_of(topics), "session_ms": session_ms}
    request = post(_path(group, "/join"), {**fields, "assignor": assignor})
    return Call(request=request, decode=_read_joined, repeatable=True, name=group)


def heartbeat(
    group: str, *, member: str, generation: int, released: WirePartitions | None = None
) -> Call[Heartbeat]:
    fields = {"member": member, "generation": generation, "released": released}
    request = post(_path(group, "/heartbeat"), fields)
    return Call(request=request, decode=_read_heartbeat, repeatable=True, name=group)


def leave(group: str, *, member: str) -> Call[bool]:
    request = post(_path(group, "/leave"), {"member": member})
    return Call(
        request=request, decode=lambda body: _read_left(body).left, repeatable=True, name=group
    )


def commit(
    group: str, offsets: WirePositions, *, member: str | None, generation: int | None
) -> Call[Committed]:
    fields = {"offsets": offsets, "member": member, "generation": generation}
    request = post(_path(group, "/commit"), fields)
    return Call(request=request, decode=_read_committed, repeatable=True, name=group)


def poll(
    group: str,
    *,
    member: str,
    generation: int,
    limit: int,
    positions: WirePositions | None,
    window: tuple[int, int] = (0, 0),
    wait_ms: int,
) -> Call[Polled]:
    fields: dict[str, object] = {"member": member, "generation": generation, "limit": limit}
    more = {"positions": positions, "wait_ms": wait_ms, "include_tags": True}
    times = {"from_ts": window[0], "until_ts": window[1]}
    request = post(_path(group, "/poll"), {**fields, **more, **times})
    # Without positions the server remembers what it sent: a lost answer must not be asked over.
    return Call(
        request=request,
        decode=read_polled,
        repeatable=positions is not None,
        name=group,
        wait_ms=wait_ms,
    )


def seek(
    group: str,
    *,
    to: object,
    topics: Mapping[str, Sequence[int] | None] | None,
    dry_run: bool,
) -> Call[Sought]:
    place = msgspec.to_builtins(to)
    if isinstance(place, dict):  # a SeekPoint names one of the two
        place = {name: value for name, value in place.items() if value is not None}
    request = post(_path(group, "/seek"), {"to": place, "topics": topics, "dry_run": dry_run})
    return Call(request=request, decode=_read_sought, repeatable=True, name=group)


def group_state(group: str) -> Call[GroupState]:
    request = Request(method="GET", path=_path(group))
    return Call(request=request, decode=_read_state, repeatable=True, name=group)


def drop_group(group: str) -> Call[bool]:
    request = Request(method="DELETE", path=_path(group))
    return Call(
        request=request,
        decode=lambda body: _read_deleted(body).deleted,
        repeatable=True,
        name=group,
    )


def groups() -> Flow[list[str]]:
    """Turn the pages of the list."""
    names: list[str] = []
    cursor: str | None = None
    while True:
        query = query_of(page_size=PAGE_SIZE, cursor=cursor)
        request = Request(method="GET", path=f"/v0/groups{query}")
        page: _GroupPage = yield Call(request=request, decode=_read_group_page, repeatable=True)
        names += [listed.group for listed in page.groups]
        cursor = page.next_cursor
        if cursor is None:
            return names


def read_polled(body: bytes) -> Polled:
    reply = _read_polled(body)
    batches = [
        PolledBatch(topic=batch.topic, partition=batch.partition, page=_page(batch))
        for batch in reply.batches
    ]
    return Polled(
        generation=reply.generation,
        batches=batches,
        positions=reply.positions,
        until_reached=reply.until_reached,
    )


def _page(batch: _Batch) -> Page:
    return Page(
        topic=batch.topic,
        records_json=b",".join(map(bytes, batch.records)),
        count=len(batch.records),
        next_from_seq=batch.next_from_seq,
        head_seq=batch.head_seq,
        earliest_seq=batch.earliest_seq,
        tombstone=batch.tombstone,
        records_scanned=0,
        cold_segments_read=0,
    )


_OF_WORD: dict[str, Callable[..., Call[Any]]] = {
    "join": join, "heartbeat": heartbeat, "commit": commit, "poll": poll, "leave": leave,
}  # fmt: skip
