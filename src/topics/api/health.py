"""Is it alive, is it ready."""

from typing import TYPE_CHECKING

from topics import __version__
from topics.api.exchange import Exchange

if TYPE_CHECKING:
    from topics.api.app import App


def health(app: "App", exchange: Exchange) -> None:
    uptime_ms = int((app.clock.monotonic_s() - app.started_s) * 1000)
    exchange.reply_json({"status": "ok", "version": __version__, "uptime_ms": uptime_ms})


def ready(app: "App", exchange: Exchange) -> None:
    app.check_ready()
    found = {"status": "ready", "wal_replay_complete": True, "topics": len(app.engine.registry)}
    if app.engine.reserve.is_short:  # reads and deletes are served, and those it takes to mend it
        found["disk_full"] = True
    exchange.reply_json(found)
