"""`/v0/backups`: a copy of everything, below the folder that the operator named."""

from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.errors import Forbidden, RouteNotFound
from topics.limits import check_topic_name
from topics.model.empty import EmptyBody

if TYPE_CHECKING:
    from topics.api.app import App

_DECODE = msgspec.json.Decoder(EmptyBody).decode


async def make(app: "App", exchange: Exchange) -> None:
    """Answer when the backup is whole; its name follows the rule of topics, so it is no path."""
    folder = app.config.backup_dir
    if exchange.caller.prefixes:
        raise Forbidden("a backup holds every topic: this key sees only some")
    if not folder:
        raise RouteNotFound("there are no backups over HTTP: set TOPICS_BACKUP_DIR")
    check_topic_name(exchange.name)
    if exchange.body:
        exchange.decode(_DECODE)
    done = await app.ready_log.backup(f"{folder}/{exchange.name}")
    reply = {"backup": exchange.name, **msgspec.structs.asdict(done)}
    exchange.reply_json(reply, status=201)
