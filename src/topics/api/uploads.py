"""`/v0/uploads`: a new topic out of segments that others have built."""

import asyncio
import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from topics.api.exchange import Exchange
from topics.errors import RequestError
from topics.limits import KIB, check_topic_name
from topics.model.uploads import AttachBody, BuiltSegment, UploadBody

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE_UPLOAD = msgspec.json.Decoder(UploadBody).decode
_DECODE_ATTACH = msgspec.json.Decoder(AttachBody).decode
SLICE_BYTES = 256 * KIB
"""So much of a long list is read in one turn of the event loop: a large topic has many segments."""
ROOM_BYTES = 4 * KIB
"""Far more than one segment takes, or what stands around their list."""
_GAP = re.compile(rb"[ \t\r\n]*(,?)[ \t\r\n]*")


class _Frame(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `AttachBody` whose list is read by itself."""

    segments: list[BuiltSegment]


_DECODE_FRAME = msgspec.json.Decoder(_Frame).decode
_DECODE_SEGMENTS = msgspec.json.Decoder(list[BuiltSegment]).decode


async def begin(app: "App", exchange: Exchange) -> None:
    body = exchange.decode(_DECODE_UPLOAD)
    exchange.caller.check_name(check_topic_name(body.topic))
    exchange.caller.check_config(body.config)
    engine, owner = app.engine, exchange.caller.name
    upload = await app.ready_log.run(
        lambda: engine.begin_upload(body.topic, body.config, owner=owner)
    )
    exchange.reply_json(upload, status=201)


async def attach(app: "App", exchange: Exchange) -> None:
    segments = await _read_segments(exchange)
    engine, name, owner = app.engine, exchange.name, exchange.caller.name
    # Where the cold tier is read: every byte is looked at, and calls that sync do not wait for it.
    state = await app.ready_log.run_aside(lambda: engine.attach(name, segments, owner=owner))
    exchange.reply_json(
        {
            "topic": state.topic,
            "epoch": state.epoch,
            "head_seq": state.head_seq,
            "records": state.count,
            "bytes": state.bytes,
            "segments": state.segments,
        },
        status=201,
    )


async def _read_segments(exchange: Exchange) -> list[BuiltSegment]:
    """Read the list of segments; a long one a slice at a time."""
    body = exchange.body
    if len(body) <= SLICE_BYTES:
        return exchange.decode(_DECODE_ATTACH).segments
    segments: list[BuiltSegment] = []
    try:
        at, stop = _find_list(body)
        while True:
            end = _find_end(body, at, stop)
            segments += _DECODE_SEGMENTS(b"[%b]" % bytes(body[at:end]))
            gap = _GAP.match(body, end, stop)
            assert gap is not None  # it may be empty
            at = gap.end()
            if at == stop and not gap[1]:
                exchange.drop_body()
                return segments
            if at == stop or not gap[1]:
                raise RequestError("the list of segments cannot be read: a comma is out of place")
            await asyncio.sleep(0)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the list of segments cannot be read: {error}") from None


def _find_list(body: bytes | bytearray) -> tuple[int, int]:
    """Return where the elements of the list begin and end; raise if what is around it is wrong."""
    start, stop = body.find(b"[") + 1, body.rfind(b"]")
    if start > ROOM_BYTES or len(body) - stop > ROOM_BYTES:
        raise RequestError("the body must be an object with 'segments'")
    _DECODE_FRAME(body[:start] + body[stop:])
    return start, stop


def _find_end(body: bytes | bytearray, at: int, stop: int) -> int:
    """Return the end of a slice: no text of a segment has a brace, or it is wrong and refused."""
    if stop - at <= SLICE_BYTES:
        return stop
    end = body.find(b"}", at + SLICE_BYTES, at + SLICE_BYTES + ROOM_BYTES) + 1
    if not end and at + SLICE_BYTES + ROOM_BYTES < stop:
        raise RequestError("the list of segments cannot be read: one of them has no end")
    return end or stop


async def delete(app: "App", exchange: Exchange) -> None:
    engine, name, owner = app.engine, exchange.name, exchange.caller.name
    await app.ready_log.run_aside(lambda: engine.abandon_upload(name, owner=owner))
    exchange.reply_json({"upload": name, "deleted": True})
