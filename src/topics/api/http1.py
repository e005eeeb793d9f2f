"""HTTP/1.1 on one connection: heads, bodies, answers in the order they were asked for.

Hot path: bytes → remembered head → handler → bytes, without a coroutine and, for a client that
repeats its head, without parsing it again. Plain writes wait for the end of the turn of the event
loop, where the app takes all of them at once.
Keeps: answers leave in the order of the requests; nothing of a connection grows without bound:
its head, its body, its pipeline and what it has not read yet.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from topics.aio import GATHER_BYTES
from topics.api import reasons
from topics.api.budget import Kept
from topics.api.chunks import ChunkedBody
from topics.api.exchange import JSON, Exchange
from topics.api.head import MAX_HEAD_BYTES, MAX_WATCH_HEAD_BYTES, Head, head_limit
from topics.api.http1_stream import Http1Stream
from topics.descriptors import peer_of
from topics.errors import RequestError, TopicsError
from topics.storage.disk.disk import Buffer

if TYPE_CHECKING:
    from topics.api.app import App

MAX_PIPELINED = 128
"""Requests under way on one connection; more wait in the kernel."""
MAX_TAKEN_A_TURN = 16
"""Then the other connections have their turn: a full pipeline must not make them wait."""
MAX_HELD_ANSWER_BYTES = 1024 * 1024
"""Of answers that wait for an earlier one; past it no request is taken."""
MAX_SKIPPED_BYTES = 1024 * 1024
"""Read and dropped behind a refusal, besides twice the largest body allowed."""
MAX_HELD_BYTES = 2 * MAX_WATCH_HEAD_BYTES
"""Read behind a request that waits; more stays in the kernel."""
LINGER_S = 1.0
"""So long a server that stops waits for a peer to read its refusal: most are quicker."""
REGULAR_AFTER = 8
"""So many plain writes in a row, each answered in its turn, make a regular."""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Http1Connection(asyncio.Protocol):
    """Owns one socket that speaks HTTP/1.1."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._remembered = app.remembered_head
        self._head_bytes = 0
        """Of the last head: the next is most often as long, and remembered."""
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        self.descriptor = -1
        """Of its socket: open until the connection is lost, and hears so first."""
        self._buffer: bytes | bytearray = b""
        self._head: Head | None = None
        """Read, while its body is still to come."""
        self._chunks: ChunkedBody | None = None
        self._lingers = False
        """Refused for good: what still comes is dropped, so that the peer can read why."""
        self._waiting: deque[Exchange] = deque()
        """Asked and not yet sent, in order."""
        self._turn: list[Exchange] | None = None
        """Where the last plain write was queued: not taken yet while the app still has it."""
        self._slow: Exchange | None = None
        """Waits for something, and all behind it with it: they may rely on what it does."""
        self._half_closed = False
        self._stream: tuple[Http1Stream, bytes] | None = None
        self._kept = Kept(app.bodies, app.answers, app.keyring.nobody)
        self._answered = app.keyring.nobody
        """Who was sent the last answer."""
        self._unread_bytes = 0
        """What was not taken when the sweep looked last."""
        self._yields = False
        """The rest of the buffer has its turn already scheduled."""
        self._repeats = 0
        """Plain writes in a row that were answered in their turn."""
        self._is_regular = False
        """It is at rest, and `Regulars` reads from its socket."""
        self._fresh = True
        self._head_began = False
        self._ending = False
        self._paused = self._reading_paused = False
        # For the sweep of timeouts.
        self.since_s = app.clock.monotonic_s()
        """When the connection became idle, or what it is sending now began."""
        self.received_bytes = 0

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.descriptor = transport.get_extra_info("socket").fileno()
        self.peer = peer_of(transport)
        self._app.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - gone is gone
        self._transport = None
        self._leave()
        self._app.connections.discard(self)
        self._buffer = b""
        self._kept.forget_body()
        self._count_unread()
        waiting, self._waiting = self._waiting, deque()
        for exchange in waiting:
            if not exchange.answered:
                exchange.answered = True
                self._app.on_answered(exchange, 499)
        if self._stream is not None:
            self._stream[0].lost()

    def eof_received(self) -> bool:
        """Answer what was asked before a half-close, then go; who only waits is gone."""
        self._half_closed = True
        only_waits = self._slow is None or self._slow.route.may_wait
        self._ending = only_waits and not self._yields
        asked = any(not exchange.route.may_wait for exchange in self._waiting)
        return self._stream is None and (asked or self._yields)

    def pause_writing(self) -> None:
        self._paused = True
        self._count_unread()
        self._regulate()

    def resume_writing(self) -> None:
        self._paused = False
        self._count_unread()
        self._regulate()
        if self._stream is not None:
            self._stream[0].on_drain()
        else:
            self._advance()

    def data_received(self, data: bytes) -> None:
        if self._fresh:
            if self._is_http2(data):
                return
        elif self._waiting or self._buffer:
            if self._turn is self._app.queued:
                self._app.take_turn()  # first what came before on this connection
                self._leave()  # it may just have joined
        elif self._take_repeated(data):
            return
        self.received_bytes += len(data)
        if self._ending:
            self._skip()
        else:
            self._keep(data)
            self._advance()

    def _keep(self, data: bytes) -> None:
        if not self._buffer:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            self._buffer += data
        else:
            self._buffer = bytearray(self._buffer) + data

    def _take_repeated(self, data: bytes) -> bool:
        """Take the one whole request that most reads are, if its head is remembered."""
        app = self._app
        head = self._remembered(data[: self._head_bytes])
        if head is None:
            self._head_bytes = data.find(b"\r\n\r\n") + 4
            head = self._remembered(data[: self._head_bytes])
        if (
            head is None
            or self._head_bytes + head.content_length != len(data)
            or self._head is not None
            or self._stream is not None
            or self._ending
            or self._paused
        ):
            return False
        self.received_bytes = 0
        body = data[self._head_bytes :]
        caller = head.caller
        if (
            caller is None
            or not (head.is_plain_write and head.keep_alive)
            or (caller.requests >= app.inflight_max and not caller.is_anonymous)
        ):
            self._begin(head, body)
            return True
        self.since_s = started_s = app.clock.monotonic_s()
        exchange = Exchange(app, self, head, body, started_s)
        self._waiting.append(exchange)
        caller.requests += 1
        turn = self._turn = app.queued
        turn.append(exchange)
        if len(turn) == 1:
            app.loop.call_soon(app.take_turn)
        return True

    def _skip(self) -> None:
        """Drop what comes behind the last request; past a bound it is no accident."""
        if self.received_bytes > 2 * self._app.config.max_body_bytes + MAX_SKIPPED_BYTES:
            self.abort()

    def _is_http2(self, data: bytes) -> bool:
        """Hand the connection over if it begins as HTTP/2; wait while that is not clear."""
        seen = bytes(self._buffer) + data
        if HTTP2_PREFACE.startswith(seen[: len(HTTP2_PREFACE)]):
            if len(seen) < len(HTTP2_PREFACE):
                self._buffer = seen
                return True
            assert self._transport is not None
            self._app.connections.discard(self)
            self._app.take_http2(self._transport, seen)
            return True
        self._fresh = False
        return False

    # Being a regular.

    def _join(self, transport: asyncio.Transport) -> None:
        self._is_regular = self._app.regulars.join(self)
        if self._is_regular:
            transport.pause_reading()

    def _leave(self) -> None:
        if self._is_regular:
            self._is_regular = False
            self._repeats = 0
            self._app.regulars.leave(self)
            if self._transport is not None and not self._reading_paused:
                self._transport.resume_reading()

    def leave_unless_at_rest(self) -> None:
        """Have the event loop read again, if anything is under way that others would pass by."""
        if (
            self._waiting
            or self._buffer
            or self._head is not None
            or self._stream is not None
            or self._ending
            or self._paused
            or self._yields
            or self._transport is None
            or self._transport.get_write_buffer_size()
        ):
            self._leave()

    def take_other(self, data: bytes) -> None:
        """Take what was read from a regular and is no plain write; nothing: it has ended."""
        if data:
            self.data_received(data)
        else:
            self._leave()  # the transport reads the end once more, and says so

    def expect(self, head: Head, started_s: float) -> Exchange:
        """Let a write that was read past this connection wait here for its answer."""
        self._leave()
        exchange = Exchange(self._app, self, head, b"", started_s)
        exchange.caller.requests += 1
        self._waiting.append(exchange)
        return exchange

    # Requests.

    def _advance(self) -> None:
        """Take whole requests out of the buffer, a share of them in each turn of the loop."""
        if self._yields:
            return
        turns = self._app.turns
        try:
            if self._buffer and not self._ending:
                share_end_s = turns.begin()
                for _ in range(MAX_TAKEN_A_TURN):
                    if not self._may_take() or not self._take_one():
                        break
                    if not self._buffer or self._ending:
                        break
                    if turns.is_over(share_end_s):
                        self._yield()
                        break
                else:
                    self._yield()
        except TopicsError as error:
            self._refuse(error)
        self._regulate()

    def _yield(self) -> None:
        self._yields = True
        self._app.turns.wait(self._advance_again)

    def _advance_again(self) -> None:
        self._yields = False
        self._go_on()

    def _may_take(self) -> bool:
        if self._stream is not None:
            if len(self._buffer) > MAX_HEAD_BYTES:
                self.abort()
            return False
        if self._slow is not None:
            self._regulate()
            return False
        return (
            len(self._waiting) < MAX_PIPELINED
            and self._kept.waiting_bytes < MAX_HELD_ANSWER_BYTES
            and not self._paused
        )

    def _take_one(self) -> bool:
        """Take one request; False while it is not all here."""
        buffer = self._buffer
        head, start = self._head, 0
        if head is None:
            end = buffer.find(b"\r\n\r\n")
            if end < 0 or (end + 4 > MAX_HEAD_BYTES and end + 4 > head_limit(buffer)):
                return self._head_is_open(end)
            start = end + 4
            head = self._app.read_head(buffer[:start])
            if head.chunked or head.expects_continue:
                return self._begin_long_body(head, start)
        if self._chunks is not None:
            return self._take_chunks(head)
        stop = start + head.content_length
        if len(buffer) < stop:
            return self._body_is_open(head, start)
        if start == 0 and stop == len(buffer):
            body, self._buffer = buffer, b""  # a large one is not copied
        else:
            body = buffer[start:stop]
            self._drop_front(stop)
        self._dispatch(head, body)
        return True

    def _drop_front(self, size: int) -> None:
        """Forget bytes that were taken; a long pipeline is not copied for each of its requests."""
        buffer = self._buffer
        if size == len(buffer):
            self._buffer = b""
        elif isinstance(buffer, bytearray):
            del buffer[:size]
        else:
            self._buffer = bytearray(memoryview(buffer)[size:])

    def _head_is_open(self, end: int) -> bool:
        limit = head_limit(self._buffer)
        if end >= 0 or len(self._buffer) > limit:
            raise RequestError(f"the request head has more than {limit} bytes")
        if not self._head_began:  # its first bytes: the clock starts
            self._head_began = True
            self.since_s = self._app.clock.monotonic_s()
        return False

    def _body_is_open(self, head: Head, start: int) -> bool:
        """Keep the head of a body that is still coming; refuse it now if that is certain."""
        if head.refusal is not None and head.content_length > head.body_max:
            raise head.refusal  # nobody keeps a long body that is not wanted
        if self._head is None:
            self._head = head
            self._buffer = bytearray(self._buffer[start:])
            self.since_s = self._app.clock.monotonic_s()
            self.received_bytes = len(self._buffer)
        self._count_body(head, len(self._buffer))
        return False

    def _count_body(self, head: Head, size: int) -> None:
        """Count what is kept of a body that is not whole; refuse it where too much is kept."""
        assert head.caller is not None
        self._kept.count_body(head.caller, size)

    def _begin_long_body(self, head: Head, start: int) -> bool:
        self._head = head
        self._buffer = bytearray(self._buffer[start:])
        self.since_s = self._app.clock.monotonic_s()
        self.received_bytes = len(self._buffer)
        if head.chunked:
            self._chunks = ChunkedBody(head.body_max)
        if head.refusal is not None:
            raise head.refusal  # how long its body is, or whether it comes, is unknown
        if head.expects_continue and not self._waiting:
            self.write(_CONTINUE)
        if not self._buffer and not head.chunked and not head.content_length:
            self._dispatch(head, b"")
        return bool(self._buffer)

    def _take_chunks(self, head: Head) -> bool:
        chunks = self._chunks
        assert chunks is not None
        used = chunks.feed(self._buffer)
        self._drop_front(used)
        if not chunks.done:
            self._count_body(head, len(chunks.body))
            return used > 0
        self._dispatch(head, chunks.body)
        return True

    def _dispatch(self, head: Head, body: bytes | bytearray) -> None:
        kept_bytes = self._kept.hand_on_body(GATHER_BYTES + 1) if self._kept.body_bytes else 0
        self._head = self._chunks = None
        self._head_began = False
        self.received_bytes = len(self._buffer)
        self._begin(head, body, kept_bytes=kept_bytes)
        if len(self._waiting) >= MAX_PIPELINED:
            self._regulate()

    def hold_behind(self, exchange: Exchange) -> None:
        if not exchange.answered and (exchange.is_slow or exchange.route.may_wait):
            self._slow = exchange

    def _begin(self, head: Head, body: bytes | bytearray, *, kept_bytes: int = 0) -> None:
        app = self._app
        self._repeats = 0
        self.since_s = started_s = app.clock.monotonic_s()
        if not head.keep_alive:
            self._ending = True
        exchange = Exchange(app, self, head, body, started_s)
        exchange.kept_bytes = kept_bytes
        self._waiting.append(exchange)
        app.dispatch(exchange)
        self.hold_behind(exchange)

    def _go_on(self) -> None:
        """Take what had to wait for a slow request, or for the turn of the others."""
        self._regulate()
        self._advance()
        if self._half_closed and self._slow is None and not (self._ending or self._yields):
            self._ending = True
            if not self._waiting:
                self.end()

    def _refuse(self, error: TopicsError) -> None:
        """Answer a request that cannot be read, and end: where the next one begins is unknown."""
        self._ending = self._lingers = True
        self._buffer = b""
        self._kept.forget_body()
        self._head = self._chunks = None
        self.since_s = self._app.clock.monotonic_s()
        exchange = self._app.unread_exchange(self)
        self._waiting.append(exchange)
        exchange.fail(error)

    # Answers.

    def send(
        self, exchange: Exchange, status: int, *, content_type: bytes, headers: bytes, body: bytes
    ) -> None:
        response = b"".join(
            (
                reasons.status_line(status),
                b"Content-Type: ",
                content_type,
                b"\r\nContent-Length: %d\r\n" % len(body),
                headers,
                self._app.date_line if exchange.head.keep_alive else self._app.closing_line,
                body,
            )
        )
        self._send_in_turn(exchange, response)

    def pack_ok(self, exchange: Exchange, body: bytes) -> tuple[int, bytes] | None:
        """Return a small JSON answer and the socket it can go to now; else it is sent in its turn.

        What `send` does, for the hot path.
        """
        app, waiting, transport = self._app, self._waiting, self._transport
        if (
            transport is None
            or len(waiting) > 1
            or self._slow is not None
            or self._ending
            or self._reading_paused
            or transport.get_write_buffer_size()
        ):
            self.send(exchange, 200, content_type=JSON, headers=b"", body=body)
            return None
        waiting.clear()
        if app.in_turn and not self._is_regular:
            self._repeats += 1
            if self._repeats == REGULAR_AFTER:
                self._join(transport)
        return self.descriptor, (app.ok_heads.get(len(body)) or app.make_ok_head(len(body))) + body

    def send_rest(self, data: bytes) -> None:
        """Send what the socket did not take of an answer."""
        self.write(data)
        self.leave_unless_at_rest()

    def send_parts(
        self, exchange: Exchange, parts: Sequence[Buffer], *, content_type: bytes = JSON
    ) -> None:
        """Send a large answer without putting its parts together, if it is its turn."""
        app = self._app
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b" % (
            content_type,
            sum(map(len, parts)),
            app.date_line if exchange.head.keep_alive else app.closing_line,
        )
        if len(self._waiting) == 1 and self._transport is not None:
            self._answered = exchange.caller
            self._transport.writelines([head, *parts])
            self._send_in_turn(exchange, b"")
        else:
            self._send_in_turn(exchange, head + b"".join(parts))

    def _send_in_turn(self, exchange: Exchange, response: bytes) -> None:
        waiting = self._waiting
        if exchange is self._slow:
            self._slow = None
            self._app.loop.call_soon(self._go_on)
        if len(waiting) == 1 and waiting[0] is exchange:
            waiting.popleft()
            self._answered = exchange.caller
            if self._transport is not None:
                self._transport.write(response)
            if self._ending:
                self._end_answered()
            elif self._reading_paused:
                self._regulate()
            return
        exchange.response = response
        self._kept.waiting_bytes += len(response)
        self._send_ready()

    def _count_unread(self) -> None:
        """Count what the peer has not taken of its answers, from when it takes none until it does.

        What waits of a stream is counted where streams are.
        """
        transport, size = self._transport, 0
        if self._paused and transport is not None and self._stream is None:
            size = transport.get_write_buffer_size()
        self._kept.count_unread(self._answered, size)

    def open_stream(
        self, exchange: Exchange, *, content_type: bytes, headers: bytes
    ) -> Http1Stream:
        chunked = not exchange.head.http10
        head = b"%bContent-Type: %b\r\n%b%bConnection: close\r\n%b" % (
            reasons.status_line(200),
            content_type,
            b"Transfer-Encoding: chunked\r\n" if chunked else b"",
            headers,
            self._app.date_line,
        )
        stream = Http1Stream(self, chunked=chunked)
        if self._transport is None:
            stream.lost()
            return stream
        self._stream = stream, head
        exchange.response = b""
        self._send_ready()
        return stream

    def _send_ready(self) -> None:
        ready: list[bytes] = []
        waiting = self._waiting
        while waiting and waiting[0].response is not None:
            if len(waiting) == 1 and self._stream is not None:
                break
            self._answered = waiting[0].caller
            ready.append(waiting.popleft().response or b"")
        if ready:
            self._send_held(ready)
        if self._stream is not None:
            if len(waiting) == 1 and waiting[0].response == b"":
                waiting.popleft()
                stream, head = self._stream
                stream.start(head, self._transport)
        elif not waiting and self._ending:
            self._end_answered()
        elif self._reading_paused and len(waiting) < MAX_PIPELINED // 2:
            self._regulate()
            self._app.loop.call_soon(self._advance)

    def _send_held(self, answers: list[bytes]) -> None:
        had_room = self._kept.waiting_bytes < MAX_HELD_ANSWER_BYTES
        self._kept.waiting_bytes -= sum(map(len, answers))
        self.write(b"".join(answers))
        if not had_room:
            self._app.loop.call_soon(self._advance)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    @property
    def buffered_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_idle(self) -> bool:
        return not self._waiting and self._stream is None

    def notice(self, now_s: float) -> None:
        """Begin to wait anew whenever the peer has taken some of an answer."""
        if self._paused:
            self._count_unread()  # answers that were under way may have joined it
        if self._is_regular and self._app.regulars.was_active(self):
            self.since_s = now_s
        unread = self.buffered_bytes
        if unread and unread != self._unread_bytes and self.is_idle:
            self.since_s = now_s
        self._unread_bytes = unread

    @property
    def is_stalled(self) -> bool:
        return self.is_idle  # what was answered is in the kernel's hands, or the transport's

    @property
    def is_at_rest(self) -> bool:
        return (
            not (self._waiting or self._yields)
            and (self._head is None or self._head.refusal is not None)
            and self._stream is None
            and not self.buffered_bytes
        )

    @property
    def is_alone(self) -> bool:
        """Tell whether one request is under way and nothing was answered out of turn."""
        return len(self._waiting) == 1 and self._stream is None

    @property
    def is_streaming(self) -> bool:
        return self._stream is not None

    @property
    def is_reading_body(self) -> bool:
        return self._head is not None

    @property
    def is_reading_head(self) -> bool:
        return self._lingers or (self._head is None and len(self._buffer) > 0)

    def _end_answered(self) -> None:
        """Close, or only the way out while the peer may still be sending.

        A socket closed with bytes unread is reset, and the peer may lose the answer.
        """
        transport = self._transport
        if self._lingers and transport is not None and transport.can_write_eof():
            transport.write_eof()
            if self._reading_paused and not self._paused:
                self._regulate()
        else:
            self.end()

    def end(self) -> None:
        """Close when everything written is sent."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def wind_up(self, reason: TopicsError) -> None:
        if not self.is_idle:
            return
        if self._lingers:
            if self._app.clock.monotonic_s() - self.since_s > LINGER_S:
                self.end()
        elif self._head is not None or self._buffer:
            self._refuse(reason)
        else:
            self.end()

    def abort(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def give_up(self, error: TopicsError | None) -> None:
        """End because of a timeout; say so if a request had begun."""
        if error is None or self._waiting or self._lingers:
            self.abort()
        else:
            self._refuse(error)

    def take_over(self, protocol: asyncio.Protocol) -> None:
        """Hand the socket to another protocol: an upgrade."""
        assert self._transport is not None
        self._leave()
        self._waiting.clear()
        self._app.connections.discard(self)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._buffer:
            protocol.data_received(bytes(self._buffer))
            self._buffer = b""

    def _regulate(self) -> None:
        """Read from the socket only while there is room for what comes."""
        held = (self._head is None or self._yields) and len(self._buffer) > MAX_HELD_BYTES
        stop = self._paused or held or len(self._waiting) >= MAX_PIPELINED
        if self._transport is None or stop == self._reading_paused:
            return
        self._reading_paused = stop
        if stop:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
