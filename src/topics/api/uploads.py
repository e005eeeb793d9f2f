"""`/v0/uploads`: a new topic out of segments that others have built."""

from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.limits import check_topic_name
from topics.model.uploads import AttachBody, UploadBody

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE_UPLOAD = msgspec.json.Decoder(UploadBody).decode
_DECODE_ATTACH = msgspec.json.Decoder(AttachBody).decode


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
    body = exchange.decode(_DECODE_ATTACH)
    engine, name, owner = app.engine, exchange.name, exchange.caller.name
    # Where the cold tier is read: every byte is looked at, and calls that sync do not wait for it.
    state = await app.ready_log.run_aside(lambda: engine.attach(name, body.segments, owner=owner))
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


async def delete(app: "App", exchange: Exchange) -> None:
    engine, name, owner = app.engine, exchange.name, exchange.caller.name
    await app.ready_log.run_aside(lambda: engine.abandon_upload(name, owner=owner))
    exchange.reply_json({"upload": name, "deleted": True})
