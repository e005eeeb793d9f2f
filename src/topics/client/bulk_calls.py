"""The calls of bulk work and of operators, from Python values to a `Call`. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from topics.client.calls import post, query_of, topic_path
from topics.client.replies import decoder, read_was_deleted
from topics.client.request import Call, Request
from topics.limits import check_topic_name
from topics.model.backups import BackedUp
from topics.model.compact import Compacted
from topics.model.encode import encode_json
from topics.model.frames import MEDIA_TYPE, RangePage, decode_range
from topics.model.segments import Manifest, PinState
from topics.model.tickets import Ticket
from topics.model.uploads import Attached, BuiltSegment, UploadState


class _Renewed(Struct, frozen=True):
    pin: PinState


class _Released(Struct, frozen=True):
    released: bool


_read_renewed = decoder(_Renewed)
_read_released = decoder(_Released)
_read_manifest = decoder(Manifest)
_read_upload = decoder(UploadState)
_read_attached = decoder(Attached)
_read_compacted = decoder(Compacted)
_read_backed_up = decoder(BackedUp)
_read_ticket = decoder(Ticket)


def manifest(topic: str, *, pin_ms: int | None) -> Call[Manifest]:
    request = Request(method="GET", path=topic_path(topic, "/segments") + query_of(pin_ms=pin_ms))
    # Repeatable: a pin whose answer was lost runs out by itself.
    return Call(request=request, decode=_read_manifest, repeatable=True, name=topic)


def read_range(
    topic: str, *, from_seq: int, to_seq: int, max_bytes: int, epoch: int | None
) -> Call[RangePage]:
    query = query_of(from_seq=from_seq, to_seq=to_seq, max_bytes=max_bytes, epoch=epoch)
    request = Request(method="GET", path=topic_path(topic, "/range") + query, accept=MEDIA_TYPE)
    return Call(request=request, decode=decode_range, repeatable=True, name=topic)


def renew_pin(pin: str, *, pin_ms: int) -> Call[PinState]:
    request = post(f"/v0/pins/{quote(pin, safe='')}", {"pin_ms": pin_ms})
    return Call(request=request, decode=lambda body: _read_renewed(body).pin, repeatable=True)


def release_pin(pin: str) -> Call[bool]:
    request = Request(method="DELETE", path=f"/v0/pins/{quote(pin, safe='')}")
    return Call(request=request, decode=lambda body: _read_released(body).released, repeatable=True)


def begin_upload(topic: str, config: Mapping[str, Any]) -> Call[UploadState]:
    request = post("/v0/uploads", {"topic": check_topic_name(topic), "config": config})
    # Not repeatable: one upload more would hold its place until it runs out.
    return Call(request=request, decode=_read_upload, repeatable=False, name=topic)


def attach(upload: str, segments: Sequence[BuiltSegment], *, timeout_s: float) -> Call[Attached]:
    path = f"/v0/uploads/{quote(upload, safe='')}/attach"
    request = Request(method="POST", path=path, body=encode_json({"segments": list(segments)}))
    # Not repeatable: the upload is gone when it has become a topic.
    return Call(
        request=request, decode=_read_attached, repeatable=False, wait_ms=int(timeout_s * 1000)
    )


def abandon_upload(upload: str) -> Call[bool]:
    request = Request(method="DELETE", path=f"/v0/uploads/{quote(upload, safe='')}")
    return Call(request=request, decode=read_was_deleted, repeatable=True)


def compact(
    topic: str, *, min_dead_ratio: float, max_segments: int, timeout_s: float
) -> Call[Compacted]:
    fields = {"min_dead_ratio": min_dead_ratio, "max_segments": max_segments}
    return Call(
        request=post(topic_path(topic, "/compact"), fields),
        decode=_read_compacted,
        repeatable=True,
        name=topic,
        wait_ms=int(timeout_s * 1000),
    )


def backup(name: str, *, timeout_s: float) -> Call[BackedUp]:
    request = post(f"/v0/backups/{quote(check_topic_name(name), safe='')}", {})
    # Not repeatable: a second one finds the name taken by the first.
    return Call(
        request=request,
        decode=_read_backed_up,
        repeatable=False,
        name=name,
        wait_ms=int(timeout_s * 1000),
    )


def ticket() -> Call[Ticket]:
    return Call(request=post("/v0/tickets", {}), decode=_read_ticket, repeatable=True)
