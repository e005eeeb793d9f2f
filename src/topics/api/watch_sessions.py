"""The watches that were made, each with its cursors, for whoever holds the key that made it.

Owns the sessions. Keeps: a session without a stream lives `session_ttl_ms`; one stream at a time;
what is made or ends is saved within a moment, beside the event loop.
"""

import asyncio
import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from topics.api.auth import Caller
from topics.api.exchange import Exchange
from topics.api.live import RETRY_AFTER_MS
from topics.api.saved_watches import SavedWatch, SavedWatches, save_places
from topics.api.sse import EventStream
from topics.api.watch import restore_watcher
from topics.api.watch_room import WatchRoom, WatchShare
from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.watcher import Watcher
from topics.errors import LimitReached, RouteNotFound, TopicsError, Unauthorized
from topics.model.watch import HEARTBEAT_MS, WatchBody

if TYPE_CHECKING:
    from topics.api.app import App

SAVE_EVERY_S = 1.0
SAVED_AT_ONCE = 256
"""Watches that are written in one call: others that need its thread come in between."""
RESTORED_AT_ONCE = 32
"""Watches of the last run that are taken up in one turn of the loop."""
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
        self._body = msgspec.Raw(msgspec.json.encode(body))
        self.share = share
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
        self._unrestored: dict[str, SavedWatch] = {}
        """Watches of the last run, until they are taken up."""
        self._saved: SavedWatches | None = None
        self._made: dict[str, WatchSession] = {}
        """Not saved yet."""
        self._ended: dict[str, None] = {}
        """Saved, and the end is not."""
        self._is_saving = False
        self._writing = asyncio.Lock()

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
        self._made[session.wid] = session
        self._note_change()
        return session

    def _take(self, session: WatchSession) -> None:
        self._by_wid[session.wid] = session
        self._counts[session.caller] += 1

    def _drop(self, session: WatchSession) -> None:
        del self._by_wid[session.wid]
        self._counts[session.caller] -= 1
        session.share.end()
        self._forget(session.wid)

    def _forget(self, wid: str) -> None:
        if self._made.pop(wid, None) is None:
            self._ended[wid] = None

    async def restore(self, saved: SavedWatches, watches: Iterable[SavedWatch]) -> None:
        """Take up the watches of the last run whose keys may still have them, some a turn."""
        self._saved = saved
        self._unrestored = {watch.wid: watch for watch in watches}
        while self._unrestored:
            for wid in list(itertools.islice(self._unrestored, RESTORED_AT_ONCE)):
                self._restore(wid)
            await asyncio.sleep(0)
        self._note_change()

    def _restore(self, wid: str) -> None:
        watch = self._unrestored.pop(wid)
        caller = self._app.keyring.named(watch.caller)
        if caller is None:
            self._forget(wid)
            return
        share = WatchShare(self.room, caller)
        try:
            body = _DECODE(watch.body)
            share.take_watch(body)
            watcher = restore_watcher(self._app, caller, body, watch, share=share)
            self._take(WatchSession(self._app, caller, watcher, body, share=share, wid=wid))
        except (TopicsError, msgspec.ValidationError):
            share.end()
            self._forget(wid)

    def _note_change(self) -> None:
        self._app.metrics.watch_sessions = len(self._by_wid)
        if not self._is_saving and (self._made or self._ended):
            self._is_saving = True
            self._app.spawn(self._save_changes())

    async def _save_changes(self) -> None:
        """Save at once, and then at most once in a while."""
        while (self._made or self._ended) and not self._app.stopping:
            await self._write(self._add)
            await asyncio.sleep(SAVE_EVERY_S)
        self._is_saving = False

    async def save(self) -> None:
        """Save where every watch stands now; without it a restart goes by the ids of readers."""
        await self._write(self._write_anew)
        if self._saved is not None:
            self._saved.close()

    async def _write(self, write: Callable[[SavedWatches], Coroutine[Any, Any, None]]) -> None:
        """Write to the file, beside the event loop; without it a restart forgets the watches."""
        if self._saved is None:
            return
        try:
            async with self._writing:
                await write(self._saved)
        except TopicsError as error:
            self._app.request_log.event("watches_not_saved", level="error", message=str(error))

    async def _add(self, saved: SavedWatches) -> None:
        if saved.is_due:
            await self._write_anew(saved)
            return
        run = self._app.ready_log.run
        made, self._made = list(self._made.values()), {}
        ended, self._ended = list(self._ended), {}
        for at in range(0, max(len(made), 1), SAVED_AT_ONCE):
            part = made[at : at + SAVED_AT_ONCE]
            await run(partial(_append, saved, part, ended if at == 0 else []))

    async def _write_anew(self, saved: SavedWatches) -> None:
        run = self._app.ready_log.run
        self._made, self._ended = {}, {}
        sessions = list(self._by_wid.values())
        unrestored = list(self._unrestored.values())
        await run(saved.begin)
        for at in range(0, len(sessions), SAVED_AT_ONCE):
            await run(partial(_add_to, saved, sessions[at : at + SAVED_AT_ONCE]))
        await run(partial(saved.add, unrestored))
        await run(saved.finish)

    def get(self, wid: str, caller: Caller) -> WatchSession:
        """Return the session of a wid, for the key that made it."""
        if wid in self._unrestored:
            self._restore(wid)
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


def _append(saved: SavedWatches, made: list[WatchSession], ended: list[str]) -> None:
    saved.append((session.save() for session in made), ended)


def _add_to(saved: SavedWatches, sessions: list[WatchSession]) -> None:
    saved.add(session.save() for session in sessions)
