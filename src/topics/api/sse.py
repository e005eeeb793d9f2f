"""One open event stream: heartbeats, patience with its reader, and its end."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.api.exchange import Exchange
from topics.api.live import RETRY_AFTER_MS
from topics.api.patience import Patience
from topics.api.unread import LINGER_S, Unread
from topics.engine.watch.frames import RETRY, Sse, Trouble, heartbeat
from topics.errors import LimitReached, NotAcceptable

if TYPE_CHECKING:
    from topics.api.app import App

EVENT_STREAM = b"text/event-stream; charset=utf-8"
HEADERS = b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
SSE = Sse()


def accepts_events(exchange: Exchange) -> bool:
    return "text/event-stream" in exchange.head.headers.get("accept", "").lower()


def check_accepts(exchange: Exchange) -> None:
    """Refuse who did not ask for a stream: a plain client would wait for its end for ever."""
    if not accepts_events(exchange):
        raise NotAcceptable("this is a stream: send Accept: text/event-stream")


def check_room(app: "App", exchange: Exchange) -> None:
    """Refuse one stream too many, of the server or of the key."""
    config, metrics, caller = app.config, app.metrics, exchange.caller
    limit = config.max_sse_connections
    if limit and metrics.sse_connections + metrics.websocket_connections >= limit:
        raise LimitReached("max_sse_connections", limit)
    limit = config.max_sse_connections_per_key
    if limit and caller.streams >= limit and not caller.is_anonymous:
        raise LimitReached("max_sse_connections_per_key", limit)


class EventStream:
    """Keeps: counted while it is open, however it ends; bounded by whoever writes to it."""

    def __init__(
        self,
        app: "App",
        exchange: Exchange,
        *,
        heartbeat_ms: int,
        on_end: Callable[["EventStream"], None],
        on_room: Callable[[], None],
    ) -> None:
        check_room(app, exchange)
        self._app = app
        self._caller = exchange.caller
        self._heartbeat_s = heartbeat_ms / 1000
        self._on_end = on_end
        self._on_room = on_room
        now_s = app.clock.monotonic_s()
        self._patience = Patience(app.config.slow_reader_ms, now_s=now_s)
        self._unread = Unread(app.unread_streams, exchange.caller, app.live.alarms)
        self._seen_bytes = 0
        self._active_s = now_s
        self._stream = exchange.open_stream(content_type=EVENT_STREAM, headers=HEADERS)
        self.offer = self._stream.offer
        self.find_way = self._stream.find_way
        self.is_open = not self._stream.is_gone
        """False from the start for a reader that left before it was answered."""
        if not self.is_open:
            return
        self._stream.on_close = self._closed
        self._stream.on_drain = on_room
        app.metrics.sse_connections += 1
        self._caller.streams += 1
        app.live.streams[self] = None
        self.write(RETRY)

    def write(self, data: bytes, /) -> None:
        self._stream.write(data)
        self._unread.count(self._stream.buffered_bytes)

    def has_room(self, limit_bytes: int, /) -> bool:
        size = self._stream.buffered_bytes
        self._unread.count(size)
        return size <= limit_bytes and self._unread.has_room

    @property
    def buffered_bytes(self) -> int:
        return self._stream.buffered_bytes

    def end(self, code: str, message: str, *, retry_after_ms: int | None = None) -> None:
        """Say why, then close; a reader that does not even take that is dropped a little later."""
        if not self.is_open:
            return
        trouble = Trouble(code=code, message=message, retry_after_ms=retry_after_ms)
        self.write(SSE.error(trouble))
        self._stream.close()
        self._app.live.alarms.set(LINGER_S, self._stream.abort)

    def sweep(self, now_s: float) -> None:
        sent_bytes, buffered_bytes = self._stream.sent_bytes, self._stream.buffered_bytes
        self._unread.count(buffered_bytes)
        if self._stream.is_stuck(now_s) or self._patience.is_over(
            sent_bytes=sent_bytes,
            buffered_bytes=buffered_bytes,
            now_s=now_s,
            hurry=not self._unread.has_room,
        ):
            self.end(
                "slow_consumer",
                f"nothing was read for {self._patience.waited_ms(now_s)} ms: connect to go on",
                retry_after_ms=RETRY_AFTER_MS,
            )
            return
        self._on_room()  # for streams that do not say when they have room again
        if sent_bytes != self._seen_bytes:
            self._seen_bytes = sent_bytes
            self._active_s = now_s
        elif now_s - self._active_s >= self._heartbeat_s and buffered_bytes == 0:
            self.write(heartbeat(self._app.clock.now_ms()))

    def stop(self) -> None:
        self.end("shutting_down", "the server stops: connect again", retry_after_ms=RETRY_AFTER_MS)

    def _closed(self) -> None:
        self.is_open = False
        self._unread.end(self._stream.buffered_bytes)
        self._app.metrics.sse_connections -= 1
        self._caller.streams -= 1
        self._app.live.streams.pop(self, None)
        self._on_end(self)
