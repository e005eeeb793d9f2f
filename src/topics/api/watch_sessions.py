"""The watches that were made, each with its cursors, for whoever holds the key that made it.

Owns the sessions. Keeps: a session without a stream lives `session_ttl_ms`; one stream at a time.
"""

import secrets
from typing import TYPE_CHECKING

from topics.api.auth import Caller
from topics.api.exchange import Exchange
from topics.api.live import RETRY_AFTER_MS
from topics.api.sse import EventStream
from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.watcher import Watcher
from topics.errors import LimitReached, RouteNotFound, Unauthorized

if TYPE_CHECKING:
    from topics.api.app import App


class WatchSession:
    """One watch and its stream, while it has one."""

    def __init__(
        self, app: "App", caller: Caller, watcher: Watcher, *, heartbeat_ms: int, now_s: float
    ) -> None:
        self._app = app
        self.wid = "wid_" + secrets.token_urlsafe(24)
        self.caller = caller
        self.watcher = watcher
        self._heartbeat_ms = heartbeat_ms
        self.stream: EventStream | None = None
        self.idle_since_s = now_s

    def connect(self, exchange: Exchange, last_event_id: str | None) -> None:
        """Stream to this exchange; a stream that is still open gives way."""
        cursors = decode_event_id(last_event_id) if last_event_id else None
        if self.stream is not None:
            self.stream.end(
                "replaced", "another stream of this watch was opened", retry_after_ms=RETRY_AFTER_MS
            )
        if cursors is not None:
            self.watcher.rewind(cursors)
        stream = EventStream(
            self._app,
            exchange,
            heartbeat_ms=self._heartbeat_ms,
            on_end=self._on_end,
            on_room=self._on_room,
            on_topic=self.watcher.meet,
        )
        if not stream.is_open:
            return
        self.stream = stream
        self.watcher.on_behind = self._app.live.schedule
        self.watcher.open(stream)

    def _on_room(self) -> None:
        if self.watcher.blocked:
            self._app.live.schedule(self.watcher)

    def _on_end(self, stream: EventStream) -> None:
        if self.stream is stream:
            self.stream = None
            self.idle_since_s = self._app.clock.monotonic_s()
            self.watcher.close()


class WatchSessions:
    """Every watch of one server."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._by_wid: dict[str, WatchSession] = {}

    def check_room(self) -> None:
        limit = self._app.config.max_watch_sessions
        if limit and len(self._by_wid) >= limit:
            raise LimitReached("max_watch_sessions", limit)

    def add(self, caller: Caller, watcher: Watcher, *, heartbeat_ms: int) -> WatchSession:
        now_s = self._app.clock.monotonic_s()
        session = WatchSession(self._app, caller, watcher, heartbeat_ms=heartbeat_ms, now_s=now_s)
        self._by_wid[session.wid] = session
        self._app.metrics.watch_sessions = len(self._by_wid)
        return session

    def get(self, wid: str, caller: Caller) -> WatchSession:
        """Return the session of a wid, for the key that made it."""
        session = self._by_wid.get(wid)
        if session is None or self._is_old(session, self._app.clock.monotonic_s()):
            raise RouteNotFound("there is no such watch: it ended, or never was; make a new one")
        if session.caller is not caller:
            raise Unauthorized("this watch was made with another key")
        return session

    def forget_old(self, now_s: float) -> None:
        old = [wid for wid, session in self._by_wid.items() if self._is_old(session, now_s)]
        for wid in old:
            del self._by_wid[wid]
        self._app.metrics.watch_sessions = len(self._by_wid)

    def _is_old(self, session: WatchSession, now_s: float) -> bool:
        idle_s = now_s - session.idle_since_s
        return session.stream is None and idle_s > self._app.config.session_ttl_ms / 1000
