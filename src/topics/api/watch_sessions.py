"""The watches that were made, each with its cursors, for whoever holds the key that made it.

Owns the sessions. Keeps: a session without a stream lives `session_ttl_ms`; one stream at a time.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from topics.api.auth import Caller
from topics.api.exchange import Exchange
from topics.api.live import RETRY_AFTER_MS
from topics.api.saved_watches import SavedWatch, save_places, save_watches
from topics.api.sse import EventStream
from topics.api.watch import restore_watcher
from topics.api.watch_room import WatchRoom, WatchShare, size_of
from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.watcher import Watcher
from topics.errors import LimitReached, RouteNotFound, TopicsError, Unauthorized
from topics.model.watch import HEARTBEAT_MS, WatchBody
from topics.storage.disk.disk import Disk

if TYPE_CHECKING:
    from topics.api.app import App

SAVE_EVERY_S = 1.0
_DECODE = msgspec.json.Decoder(WatchBody).decode


class WatchSession:
    """One watch and its stream, while it has one."""

    def __init__(
        self,
        app: "App",
        caller: Caller,
        watcher: Watcher,
        body: WatchBody,
        *,
        share: WatchShare,
        wid: str = "",
    ) -> None:
        self._app = app
        self._is_restored = bool(wid)
        """Its places are from before a restart: the id of a reader is newer."""
        self.wid = wid or "wid_" + secrets.token_urlsafe(24)
        self.caller = caller
        self.watcher = watcher
        asked = msgspec.json.encode(body)
        self._body = msgspec.Raw(asked)
        self.share = share
        windows = sum(any(start.window) for start in body.topics.values())
        share.take(size_of(body, asked_bytes=len(asked), windows=windows))
        low, high = HEARTBEAT_MS
        self._heartbeat_ms = min(max(body.heartbeat_ms, low), high)
        self.stream: EventStream | None = None
        self.idle_since_s = app.clock.monotonic_s()

    def save(self) -> SavedWatch:
        return SavedWatch(
            wid=self.wid,
            caller=self.caller.name,
            body=self._body,
            places=save_places(self.watcher),
        )

    def connect(self, exchange: Exchange, last_event_id: str | None) -> None:
        """Stream to this exchange; a stream that is still open gives way."""
        cursors = decode_event_id(last_event_id) if last_event_id else None
        if self.stream is not None:
            self.stream.end(
                "replaced", "another stream of this watch was opened", retry_after_ms=RETRY_AFTER_MS
            )
        if cursors is not None and self._is_restored:
            self.watcher.resume(cursors)
        elif cursors is not None:
            self.watcher.rewind(cursors)
        stream = EventStream(
            self._app,
            exchange,
            heartbeat_ms=self._heartbeat_ms,
            on_end=self._on_end,
            on_room=self._on_room,
        )
        if not stream.is_open:
            return
        self.stream = stream
        self._is_restored = False
        self.watcher.on_behind = self._app.live.schedule
        self.watcher.open(stream)

    def _on_room(self) -> None:
        if self.watcher.meet_end() or self.watcher.blocked:
            self._app.live.schedule(self.watcher)
        elif self.stream is not None:
            self.watcher.join_convoy(self.stream.find_way)

    def _on_end(self, stream: EventStream) -> None:
        if self.stream is stream:
            self.stream = None
            self.idle_since_s = self._app.clock.monotonic_s()
            self.watcher.close()


class WatchSessions:
    """Every watch of one server."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self.room = WatchRoom(app.config)
        self._by_wid: dict[str, WatchSession] = {}
        self._counts: Counter[Caller] = Counter()
        self._is_changed = False
        self._is_saving = False

    def check_room(self, caller: Caller) -> None:
        """Refuse one watch too many, of the server or of the key."""
        config = self._app.config
        limit = config.max_watch_sessions
        if limit and len(self._by_wid) >= limit:
            raise LimitReached("max_watch_sessions", limit)
        limit = config.max_watch_sessions_per_key
        if limit and self._counts[caller] >= limit and not caller.is_anonymous:
            raise LimitReached("max_watch_sessions_per_key", limit)

    def add(
        self, caller: Caller, watcher: Watcher, body: WatchBody, *, share: WatchShare
    ) -> WatchSession:
        session = WatchSession(self._app, caller, watcher, body, share=share)
        share.check()
        self._take(session)
        self._note_change()
        return session

    def _take(self, session: WatchSession) -> None:
        self._by_wid[session.wid] = session
        self._counts[session.caller] += 1

    def _drop(self, session: WatchSession) -> None:
        del self._by_wid[session.wid]
        self._counts[session.caller] -= 1
        session.share.end()

    def restore(self, saved_watches: Iterable[SavedWatch]) -> None:
        """Take up the watches of the last run whose keys may still have them."""
        for saved in saved_watches:
            caller = self._app.keyring.named(saved.caller)
            if caller is None:
                continue
            share = WatchShare(self.room, caller)
            with suppress(TopicsError, msgspec.ValidationError):
                body = _DECODE(saved.body)
                watcher = restore_watcher(self._app, caller, body, saved, share=share)
                session = WatchSession(self._app, caller, watcher, body, share=share, wid=saved.wid)
                self._take(session)
        self._app.metrics.watch_sessions = len(self._by_wid)

    async def save(self) -> None:
        """Write the file, beside the event loop; without it a restart forgets the watches."""
        log = self._app.ready_log
        try:
            await log.run(partial(self._save, log.log.engine.disk))
        except TopicsError as error:
            self._app.request_log.event("watches_not_saved", level="error", message=str(error))

    def _save(self, disk: Disk) -> None:
        save_watches(disk, [session.save() for session in list(self._by_wid.values())])

    def _note_change(self) -> None:
        self._app.metrics.watch_sessions = len(self._by_wid)
        self._is_changed = True
        if not self._is_saving:
            self._is_saving = True
            self._app.spawn(self._save_changes())

    async def _save_changes(self) -> None:
        """Save at once, and then at most once in a while."""
        while self._is_changed and not self._app.stopping:
            self._is_changed = False
            await self.save()
            await asyncio.sleep(SAVE_EVERY_S)
        self._is_saving = False

    def get(self, wid: str, caller: Caller) -> WatchSession:
        """Return the session of a wid, for the key that made it."""
        session = self._by_wid.get(wid)
        if session is None or self._is_old(session, self._app.clock.monotonic_s()):
            raise RouteNotFound("there is no such watch: it ended, or never was; make a new one")
        if session.caller is not caller:
            raise Unauthorized("this watch was made with another key")
        return session

    def forget_old(self, now_s: float) -> None:
        old = [session for session in self._by_wid.values() if self._is_old(session, now_s)]
        for session in old:
            self._drop(session)
        if old:
            self._note_change()

    def _is_old(self, session: WatchSession, now_s: float) -> bool:
        idle_s = now_s - session.idle_since_s
        return session.stream is None and idle_s > self._app.config.session_ttl_ms / 1000
