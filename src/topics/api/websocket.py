"""`GET /v0/ws`: the upgrade, and the connection behind it.

Owns the socket after the upgrade; what the messages mean is in `websocket_ops`.
Keeps: messages are handled in the order they came, one at a time; nothing grows without bound:
a message, what waits to be handled, what the reader has not taken. However small its frames are,
a connection takes a share of them in a turn of the loop, and is not read from while more wait.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from topics.api.exchange import Exchange
from topics.api.http1 import Http1Connection
from topics.api.live import RETRY_AFTER_MS
from topics.api.patience import Patience
from topics.api.sse import check_room
from topics.api.unread import LINGER_S, Unread
from topics.api.websocket_ops import WebSocketOps
from topics.engine.watch.frames import Trouble, WebSocketMessages
from topics.errors import LimitReached, RequestError
from topics.limits import MIB

if TYPE_CHECKING:
    from topics.api.app import App

PING_S = 15.0
MAX_UNDER_WAY = 128
"""Writes of one connection that are not yet safe; more wait in the kernel."""
FRAMES_A_TURN = 128
"""The protocol is read in Python, some 15 µs a frame: then the other connections have theirs."""
MESSAGES_A_TURN = 32
MAX_MESSAGE_BYTES = 8 * MIB
"""One message is read in one go, on the loop; more records at once come by POST."""
PLAIN = WebSocketMessages()


def upgrade(app: "App", exchange: Exchange) -> None:
    channel, head = exchange.channel, exchange.head
    if not isinstance(channel, Http1Connection) or not head.upgrade:
        raise RequestError("this is a WebSocket: connect with Upgrade: websocket over HTTP/1.1")
    if not channel.is_alone:
        raise RequestError("an upgrade must be the only request under way on its connection")
    check_room(app, exchange)
    handshake = WSConnection(ConnectionType.SERVER)
    pairs = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers.items()
    ]
    try:
        handshake.initiate_upgrade_connection(pairs, head.path)
        next(iter(handshake.events()))
        accepted = handshake.send(AcceptConnection())
    except ProtocolError as error:
        raise RequestError(f"this is no WebSocket handshake: {error}") from None
    exchange.answered = True
    app.on_answered(exchange, 101)
    channel.take_over(WebSocketConnection(app, exchange, handshake, accepted))


class WebSocketConnection(asyncio.Protocol):
    """One open WebSocket; also the sink of everything it subscribed to."""

    def __init__(
        self, app: "App", exchange: Exchange, protocol: WSConnection, accepted: bytes
    ) -> None:
        self._app = app
        self._caller = exchange.caller
        self._protocol = protocol
        self._accepted = accepted
        self._transport: asyncio.Transport | None = None
        self._message_max = min(app.config.max_body_bytes, MAX_MESSAGE_BYTES)
        self._message = bytearray()
        """What has come of one that is not whole."""
        self._messages: deque[bytes] = deque()
        self._has_input = False
        """There may be frames that were received and not looked at."""
        self._is_waiting = False
        """Its share of a turn to come is asked for."""
        self._handling = False
        self._closing = False
        self._stopping = False
        self._reading_paused = False
        self._sent_bytes = self._seen_bytes = 0
        now_s = app.clock.monotonic_s()
        self._patience = Patience(app.config.slow_reader_ms, now_s=now_s)
        self._active_s = now_s
        self._unread = Unread(app.unread_streams, exchange.caller, app.live.alarms)
        self._counted_bytes = 0
        """Of the message that is not whole."""
        self._ops = WebSocketOps(app, exchange.caller, self)

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._app.metrics.websocket_connections += 1
        self._caller.streams += 1
        self._app.live.streams[self] = None
        self._transport.write(self._accepted)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - gone is gone
        self._transport = None
        self._leave()

    def resume_writing(self) -> None:
        self._on_room()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            self._protocol.receive_data(data)
        except ProtocolError as error:
            self.close(CloseReason.PROTOCOL_ERROR, str(error))
        self._has_input = True
        if not self._is_waiting:
            self._work()

    # Shares of the loop.

    def _work(self) -> None:
        """Do a share of what there is to do; the rest is for a turn to come."""
        self._is_waiting = False
        if self._may_take():
            self._take_frames()
            if len(self._message) != self._counted_bytes:
                self._count_message()
        self._handle_some()
        self._regulate()
        self._ask_to_work()

    def _ask_to_work(self) -> None:
        if self._is_waiting or self._closing:
            return
        if self._may_take() or self._may_handle() or self._may_read() == self._reading_paused:
            self._is_waiting = True
            self._app.turns.wait(self._work)

    def _may_take(self) -> bool:
        """Tell whether frames may be looked at: each may ask for an answer."""
        return self._has_input and not (self._messages or self._closing) and self._has_room()

    def _may_handle(self) -> bool:
        ready = bool(self._messages) and not (self._handling or self._closing)
        return ready and self._has_room()

    def _may_read(self) -> bool:
        return not (self._has_input or self._messages) and self._has_room()

    def _take_frames(self) -> None:
        try:
            for count, event in enumerate(self._protocol.events(), 1):  # read as they are asked for
                self._take(event)
                if count == FRAMES_A_TURN or self._closing:
                    return
        except ProtocolError as error:
            self.close(CloseReason.PROTOCOL_ERROR, str(error))
        self._has_input = False

    def _count_message(self) -> None:
        """Count what has come of a message that is not whole among the bodies that are not."""
        more = len(self._message) - self._counted_bytes
        try:
            if more > 0:
                self._app.bodies.check(self._caller, more)
        except LimitReached as error:
            self._message.clear()
            self.close(CloseReason.TRY_AGAIN_LATER, str(error))
            return
        self._app.bodies.change(self._caller, more)
        self._counted_bytes += more

    def _take(self, event: Event) -> None:
        match event:
            case TextMessage():
                self._take_text(event)
            case BytesMessage():
                self.close(CloseReason.UNSUPPORTED_DATA, "send JSON as text")
            case Ping():
                self._send(event.response())
            case CloseConnection():
                if not self._closing:
                    self._send(event.response())
                    self._end()
            case _:
                pass  # a pong

    def _take_text(self, event: TextMessage) -> None:
        self._message += event.data.encode()
        if len(self._message) > self._message_max:
            self._message.clear()
            reason = f"a message may have {self._message_max} bytes: POST larger batches"
            self.close(CloseReason.MESSAGE_TOO_BIG, reason)
        elif event.message_finished:
            self._messages.append(bytes(self._message))
            self._message.clear()

    # Messages.

    def _handle_some(self) -> None:
        """Handle what waits, up to the first that takes time, or to the end of this share."""
        turns = self._app.turns
        end_s = turns.begin()
        for _ in range(MESSAGES_A_TURN):
            if not self._may_handle():
                return
            waits = self._ops.handle(self._messages.popleft())
            if waits is not None:
                self._handling = True
                self._app.spawn(self._finish(waits))
            if turns.is_over(end_s):
                return

    async def _finish(self, waits: Coroutine[Any, Any, None]) -> None:
        try:
            await waits
        finally:
            self._handling = False
            self._ask_to_work()
            self._end_if_settled()

    def on_settled(self) -> None:
        """Hear that a write of this connection is safe, or failed."""
        self._end_if_settled()
        # Not now: the writes of a batch are answered in a row, and no message may come between.
        self._ask_to_work()

    def _has_room(self) -> bool:
        limit = self._app.config.stream_buffer_bytes
        return self._ops.under_way < MAX_UNDER_WAY and self.has_room(limit)

    def _regulate(self) -> None:
        """Read from the socket only while there is room for what comes."""
        stop = not self._may_read()
        if self._transport is None or self._closing or stop == self._reading_paused:
            return
        self._reading_paused = stop
        if stop:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Answers.

    def write(self, data: bytes, /) -> None:
        """Send one message."""
        if not self._closing:
            self._send(TextMessage(data=data.decode()))

    def offer(self, data: bytes, limit_bytes: int, /) -> bool:
        if self.buffered_bytes > limit_bytes:
            return False
        self.write(data)
        return True

    def has_room(self, limit_bytes: int, /) -> bool:
        size = self.buffered_bytes
        self._unread.count(size)
        return size <= limit_bytes and self._unread.has_room

    @property
    def buffered_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, code: CloseReason, reason: str) -> None:
        """Say good-bye; a reader that does not take even that is dropped a little later."""
        if self._closing:
            return
        self._send(CloseConnection(code=code, reason=reason[:120]))
        self._end()

    def _leave(self) -> None:
        """Give the slot back, once, however the connection ends."""
        if self._closing:
            return
        self._closing = True
        self._messages.clear()
        self._message.clear()
        self._count_message()
        self._unread.end(self.buffered_bytes)
        self._ops.close()
        self._app.metrics.websocket_connections -= 1
        self._caller.streams -= 1
        self._app.live.streams.pop(self, None)

    def _end(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.close()
            self._app.live.alarms.set(LINGER_S, self._transport.abort)

    def _send(self, event: Event) -> None:
        if self._transport is None:
            return
        data = self._protocol.send(event)
        self._sent_bytes += len(data)
        self._transport.write(data)
        if not self._closing:
            self._unread.count(self.buffered_bytes)

    # As an open stream.

    def sweep(self, now_s: float) -> None:
        if self._closing:
            return
        buffered_bytes = self.buffered_bytes
        self._unread.count(buffered_bytes)
        if self._patience.is_over(
            sent_bytes=self._sent_bytes,
            buffered_bytes=buffered_bytes,
            now_s=now_s,
            hurry=not self._unread.has_room,
        ):
            self._send_away("slow_consumer", "nothing was read for too long", 1013)
            return
        self._on_room()
        if self._sent_bytes != self._seen_bytes:
            self._seen_bytes = self._sent_bytes
            self._active_s = now_s
        elif now_s - self._active_s >= PING_S:
            self._send(Ping())

    def stop(self) -> None:
        """Take no more, and end when the writes under way are answered; asked again, at once."""
        if self._stopping:
            self._say_good_bye()
        else:
            self._stopping = True
            self._ops.close()
            self._end_if_settled()

    def _end_if_settled(self) -> None:
        if self._stopping and not self._handling and not self._ops.under_way:
            self._say_good_bye()

    def _say_good_bye(self) -> None:
        self._send_away("shutting_down", "the server stops: connect again", 1001)

    def _send_away(self, code: str, message: str, close_code: int) -> None:
        trouble = Trouble(code=code, message=message, retry_after_ms=RETRY_AFTER_MS)
        self.write(PLAIN.error(trouble))
        self.close(CloseReason(close_code), code)

    def _on_room(self) -> None:
        self._ops.pump_blocked()
        self._ask_to_work()
