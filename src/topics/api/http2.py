"""HTTP/2 without TLS on one connection, by prior knowledge: streams, windows, bounds.

The frames and the state of each stream are h2's; here is what h2 leaves open: how much may wait,
how often a peer may change its mind, and when it is over.
Keeps: bodies that are still coming hold at most `max_body_bytes` and a window a stream; answers
that the peer does not take hold up new requests, not memory; a stream that fails leaves the others
alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from topics.aio import GATHER_BYTES
from topics.api.body import check_body_size
from topics.api.exchange import Exchange
from topics.api.head import (
    MAX_HEAD_BYTES,
    MAX_URL_BYTES,
    MAX_WATCH_HEAD_BYTES,
    Head,
    build_head,
)
from topics.api.http2_frames import FrameRefusal, Frames, HeadDecoder
from topics.api.http2_stream import Http2Stream
from topics.api.patience import Patience
from topics.descriptors import peer_of
from topics.errors import RequestError, TopicsError

if TYPE_CHECKING:
    from topics.api.app import App

MAX_STREAMS = 128
STREAM_WINDOW_BYTES = 256 * 1024
CONNECTION_WINDOW_BYTES = 1024 * 1024
MAX_UNREAD_BYTES = 8 * 1024 * 1024
"""Answers of one connection that wait for the peer; past it new requests wait, too."""
SKIPPED_BYTES = 1024 * 1024
"""Read and dropped of a refused body, besides twice the largest one allowed."""
UNCOUNTED_BYTES = 64 * 1024
"""Less than this of a connection is not worth counting."""
MAX_PIECES_A_TURN = 8
"""Then the other connections have their turn."""
MAX_HELD_BYTES = 256 * 1024
"""Received and not read yet; more stays in the kernel."""
_CODES = h2.settings.SettingCodes
_Errors = h2.errors.ErrorCodes


class Http2Connection(asyncio.Protocol):
    """Owns one socket that speaks HTTP/2."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        self._h2 = _open_h2()
        self._streams: dict[int, Http2Stream] = {}
        self._reading: dict[int, Http2Stream] = {}
        """Those whose body is still coming, oldest first."""
        self._reading_bytes = 0
        self._parked: deque[Http2Stream] = deque()
        """Whole requests that wait until the peer takes earlier answers."""
        self._sending: dict[int, Http2Stream] = {}
        self._skipping: dict[int, int] = {}
        """Answered before their body was whole: how much more of it is read and dropped."""
        self._unread_bytes = 0
        """Of answers that the windows of the peer do not take yet."""
        self._counted_bytes = 0
        """Of them in the budget of the server."""
        self._payer = app.keyring.nobody
        """The key that asked first: they are held against it."""
        self._paused = False
        self._receiving = False
        self._since_s = app.clock.monotonic_s()
        self._patience = Patience(app.config.slow_reader_ms, now_s=self._since_s)
        self._sent_bytes = 0
        self._frames = Frames(now_s=self._since_s)
        self._yields = False
        """The rest of the frames has its turn already scheduled."""
        self._reading_paused = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.peer = peer_of(transport)
        self._app.connections.add(self)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES - 65_535)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - gone is gone
        self._transport = None
        self._frames.clear()
        self._app.connections.discard(self)
        for stream in list(self._streams.values()):
            self._drop(stream)
        self._count_unread()

    def pause_writing(self) -> None:
        """Take nothing more: every frame may ask for an answer."""
        self._paused = True
        self._regulate()

    def resume_writing(self) -> None:
        self._paused = False
        self._regulate()
        self.pump()
        if not (self._yields or self._paused or self._receiving):
            self._advance()

    def data_received(self, data: bytes) -> None:
        self._frames.add(data)
        if self._yields:
            self._regulate()
        else:
            self._advance()

    def _advance(self) -> None:
        """Read a share of the frames that are here; the rest has its turn after the others."""
        self._yields = False
        if self._transport is None or self._transport.is_closing():
            return
        self._receiving = True
        try:
            self._read_share()
        except FrameRefusal as refusal:
            self._go_away(refusal.code)
        except h2.exceptions.ProtocolError:
            self.end()  # h2 has written the GOAWAY that says why
        finally:
            self._receiving = False
        self.pump()
        self._regulate()

    def _read_share(self) -> None:
        turns, clock = self._app.turns, self._app.clock
        end_s = turns.begin()
        for _ in range(MAX_PIECES_A_TURN):
            piece = b"" if self._paused else self._frames.cut(clock.monotonic_s())
            if not piece:
                return
            for event in self._h2.receive_data(piece):
                self._on_event(event)
            if turns.is_over(end_s):
                break
        self._yields = True
        turns.wait(self._advance)

    def _regulate(self) -> None:
        """Read from the socket only while there is room for what comes, and for its answers."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        stop = self._paused or (self._yields and self._frames.size > MAX_HELD_BYTES)
        if stop != self._reading_paused:
            self._reading_paused = stop
            if stop:
                transport.pause_reading()
            else:
                transport.resume_reading()

    # What comes.

    def _on_event(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self._begin(event)
            case h2.events.DataReceived():
                self._take_data(event)
            case h2.events.StreamEnded():
                self._end_input(event.stream_id)
            case h2.events.StreamReset():
                self._on_reset(event)
            case h2.events.ConnectionTerminated():
                self.end()
            case _:
                pass

    def _begin(self, event: h2.events.RequestReceived) -> None:
        number = event.stream_id
        stream = Http2Stream(self, number, None, since_s=self._app.clock.monotonic_s())
        self._streams[number] = stream
        self._reading[number] = stream
        try:
            stream.head = head = _read_head(event.headers)
            self._app.prepare(head)
        except TopicsError as error:
            self._refuse(stream, error)
            return
        if head.refusal is not None:
            self._dispatch(stream)  # nobody keeps a body that is not wanted
        elif head.expects_continue:
            self._call(stream, partial(self._h2.send_headers, number, [(b":status", b"100")]))

    def _take_data(self, event: h2.events.DataReceived) -> None:
        stream, size = self._reading.get(event.stream_id), event.flow_controlled_length
        if stream is None:
            self._skip(event.stream_id, size)
            return
        head = stream.head
        assert head is not None
        assert head.caller is not None
        try:
            check_body_size(head, len(stream.body) + len(event.data))
            self._app.bodies.take(head.caller, len(event.data))
            stream.body += event.data
            self._reading_bytes += len(event.data)
        except TopicsError as error:
            self._refuse(stream, error)
        limit = self._app.config.max_body_bytes
        if self._reading_bytes <= limit or stream is next(iter(self._reading.values()), None):
            self._h2.acknowledge_received_data(size, event.stream_id)
        elif size:
            # Too much is half here: only the oldest goes on, the others when it is done.
            self._h2.increment_flow_control_window(size)
            stream.withheld_bytes += size

    def _skip(self, number: int, size: int) -> None:
        """Read and drop: many clients look for an answer only when all of a body is sent."""
        self._h2.acknowledge_received_data(size, number)
        left = self._skipping.get(number)
        if left is None:
            return
        self._skipping[number] = left - size
        if left < size:
            del self._skipping[number]
            with suppress(h2.exceptions.ProtocolError):
                self._h2.reset_stream(number, _Errors.NO_ERROR)

    def _end_input(self, number: int) -> None:
        self._skipping.pop(number, None)
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.input_ended = True
        if stream.exchange is not None:
            return
        self._leave_reading(stream)
        if self._unread_bytes > MAX_UNREAD_BYTES:
            self._parked.append(stream)
        else:
            self._dispatch(stream)

    def _on_reset(self, event: h2.events.StreamReset) -> None:
        stream = self._streams.get(event.stream_id)
        self._skipping.pop(event.stream_id, None)
        if not event.remote_reset:  # those of the peer were counted as they came
            self._frames.count_reset(self._app.clock.monotonic_s())
        if stream is not None:
            self._drop(stream)

    # Requests.

    def _dispatch(self, stream: Http2Stream) -> None:
        assert stream.head is not None
        self._leave_reading(stream)
        if not self._counted_bytes and stream.head.caller is not None:
            self._payer = stream.head.caller
        if not self._is_open(stream):  # reset in the same breath: there is nobody to answer
            self._drop(stream)
            return
        self._since_s = started_s = self._app.clock.monotonic_s()
        exchange = Exchange(self._app, stream, stream.head, stream.body, started_s)
        stream.exchange = exchange
        if len(exchange.body) <= GATHER_BYTES:  # those are soon done
            self._forget_body(stream)
        else:
            exchange.kept_bytes, stream.body = len(exchange.body), bytearray()
        self._app.dispatch(exchange)

    def _forget_body(self, stream: Http2Stream) -> None:
        if stream.body:
            assert stream.head is not None
            assert stream.head.caller is not None
            self._app.bodies.change(stream.head.caller, -len(stream.body))
            stream.body = bytearray()

    def _is_open(self, stream: Http2Stream) -> bool:
        try:
            self._h2.local_flow_control_window(stream.number)
        except h2.exceptions.ProtocolError:
            return False
        return True

    def _refuse(self, stream: Http2Stream, error: TopicsError) -> None:
        """Answer a request that cannot be read, or not wholly."""
        self._leave_reading(stream)
        self._forget_body(stream)
        if stream.head is None:
            stream.exchange = self._app.unread_exchange(stream)
        else:
            stream.exchange = Exchange(
                self._app, stream, stream.head, b"", self._app.clock.monotonic_s()
            )
        stream.exchange.caller.requests += 1
        stream.exchange.fail(error)

    def _leave_reading(self, stream: Http2Stream) -> None:
        if self._reading.pop(stream.number, None) is None:
            return
        self._reading_bytes -= len(stream.body)
        for other in list(self._reading.values()):
            if other.withheld_bytes:
                size, other.withheld_bytes = other.withheld_bytes, 0
                other.since_s = self._app.clock.monotonic_s()
                self._call(
                    other, partial(self._h2.increment_flow_control_window, size, other.number)
                )
            if self._reading_bytes > self._app.config.max_body_bytes:
                return

    # Answers.

    def begin_answer(
        self, stream: Http2Stream, status: int, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Send the head of an answer; what is in `pending` follows as the windows allow."""
        if stream.gone:
            return
        headers = [(b":status", b"%d" % status), *headers, (b"date", self._app.date)]
        if self._call(stream, partial(self._h2.send_headers, stream.number, headers)):
            self._sending[stream.number] = stream
            if not stream.is_live:
                self._unread_bytes += len(stream.pending)
            self.pump()

    def pump(self) -> None:
        """Hand over what the windows take, every stream in its turn."""
        if self._receiving:
            return
        self._flush()
        moved = True
        while moved:
            moved = False
            for stream in list(self._sending.values()):
                if self._send_some(stream):
                    moved = True
                    self._flush()
            moved |= self._unpark()
        self._count_unread()

    def _send_some(self, stream: Http2Stream) -> bool:
        """Send one frame of a stream; False if there is none to send now."""
        number, pending = stream.number, stream.pending
        if self._paused or not (pending or stream.ended):
            stream.is_behind |= bool(pending)
            return False
        try:
            window = self._h2.local_flow_control_window(number)
            size = min(len(pending), window, self._h2.max_outbound_frame_size)
            last = stream.ended and size == len(pending)
            if size <= 0 and not last:
                stream.is_behind = True
                return False
            self._h2.send_data(number, bytes(pending[:size]), end_stream=last)
            self._frames.allow_updates(1)
        except h2.exceptions.ProtocolError:
            self._drop(stream)
            return True
        del pending[:size]
        if not stream.is_live:
            self._unread_bytes -= size
        if stream.is_behind and not pending:
            stream.is_behind = False
            self._app.loop.call_soon(stream.on_drain)
        self._since_s = self._app.clock.monotonic_s()
        if last:
            if not stream.input_ended:
                self._skipping[number] = 2 * self._app.config.max_body_bytes + SKIPPED_BYTES
            self._forget(stream)
        return True

    def _unpark(self) -> bool:
        if self._paused or not self._parked or self._unread_bytes > MAX_UNREAD_BYTES:
            return False
        stream = self._parked.popleft()
        if not stream.gone:
            self._dispatch(stream)
        return True

    def reset(self, stream: Http2Stream) -> None:
        """Tell the peer that a stream is over."""
        self._forget(stream)
        self._call(stream, partial(self._h2.reset_stream, stream.number, _Errors.CANCEL))
        self.pump()

    def _call(self, stream: Http2Stream, call: Callable[[], None]) -> bool:
        """Do something to a stream; one that the peer has ended is dropped."""
        try:
            call()
        except h2.exceptions.ProtocolError:
            self._drop(stream)
            return False
        return True

    def _drop(self, stream: Http2Stream) -> None:
        """Let go of a stream that nobody reads any more."""
        self._forget(stream)
        exchange = stream.exchange
        if exchange is not None and not exchange.answered:
            exchange.answered = True
            self._app.on_answered(exchange, 499)
        stream.lost()

    def _forget(self, stream: Http2Stream) -> None:
        self._leave_reading(stream)
        self._forget_body(stream)
        self._streams.pop(stream.number, None)
        if self._sending.pop(stream.number, None) is not None and not stream.is_live:
            self._unread_bytes -= len(stream.pending)

    def _count_unread(self) -> None:
        """Count what waits for the peer, in the budget of the server."""
        unread = self._unread_bytes if self._unread_bytes > UNCOUNTED_BYTES else 0
        if self._transport is None:
            unread = 0
        if unread != self._counted_bytes:
            self._app.answers.change(self._payer, unread - self._counted_bytes)
            self._counted_bytes = unread

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None:
            self._sent_bytes += len(data)
            self._transport.write(data)

    # For the sweep and the drain.

    def is_stuck(self, now_s: float) -> bool:
        """Tell whether the peer has taken nothing of any stream for too long."""
        buffered = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._patience.is_over(
            sent_bytes=self._sent_bytes, buffered_bytes=buffered, now_s=now_s
        )

    @property
    def since_s(self) -> float:
        slowest = self._slowest()
        return self._since_s if slowest is None else slowest.since_s

    @property
    def received_bytes(self) -> int:
        slowest = self._slowest()
        return 0 if slowest is None else len(slowest.body)

    @property
    def is_idle(self) -> bool:
        return not self._streams

    @property
    def is_at_rest(self) -> bool:
        transport = self._transport
        return not self._streams and transport is not None and not transport.is_closing()

    def notice(self, now_s: float) -> None:
        """Nothing to do: what is sent is counted as it goes."""

    @property
    def is_stalled(self) -> bool:
        return all(stream.ended for stream in self._streams.values())

    @property
    def is_reading_head(self) -> bool:
        return False  # a head cut short is an idle connection

    @property
    def is_reading_body(self) -> bool:
        return self._slowest() is not None

    def _slowest(self) -> Http2Stream | None:
        """Return the body that is furthest behind the pace it has to keep."""
        pace = self._app.config.body_min_bytes_per_s or 1
        reading = (stream for stream in self._reading.values() if not stream.withheld_bytes)
        return min(reading, key=lambda s: s.since_s + len(s.body) / pace, default=None)

    def end(self) -> None:
        """Say good-bye, and close when everything written is sent."""
        self._go_away(_Errors.NO_ERROR)

    def wind_up(self, reason: TopicsError) -> None:
        for stream in list(self._reading.values()):
            self._refuse(stream, reason)
        if self.is_idle:
            self.end()

    def _go_away(self, code: _Errors) -> None:
        if self._h2.state_machine.state != h2.connection.ConnectionState.CLOSED:
            self._h2.close_connection(code)
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def give_up(self, error: TopicsError | None) -> None:
        slowest = self._slowest()
        if error is not None and slowest is not None:
            self._refuse(slowest, error)
        elif self.is_idle:
            self.end()
        else:
            self.abort()


def _open_h2() -> h2.connection.H2Connection:
    config = h2.config.H2Configuration(client_side=False, header_encoding=None)
    connection = h2.connection.H2Connection(config)
    # Replaced before anything is read: a limit that waits for the peer to agree is none.
    connection.local_settings = h2.settings.Settings(
        client=False,
        initial_values={
            _CODES.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            _CODES.MAX_HEADER_LIST_SIZE: MAX_WATCH_HEAD_BYTES,
            _CODES.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
        },
    )
    connection.decoder = HeadDecoder()
    return connection


def _read_head(pairs: list[tuple[bytes, bytes]]) -> Head:
    """Make a head of the fields h2 has checked."""
    pseudo = {name: value for name, value in pairs if name.startswith(b":")}
    plain = [(name, value) for name, value in pairs if not name.startswith(b":")]
    if pseudo[b":method"] == b"CONNECT" or b":protocol" in pseudo:
        raise RequestError("CONNECT is not spoken over HTTP/2 here: open WebSockets over HTTP/1.1")
    authority = pseudo.get(b":authority")
    if authority is not None:
        plain = [(b"host", authority), *(p for p in plain if p[0] != b"host")]
    if not authority and not any(name == b"host" and value for name, value in plain):
        raise RequestError("a request needs an :authority or a Host")
    path = pseudo[b":path"]
    size = sum(len(name) + len(value) + 32 for name, value in pairs)  # as HTTP/2 counts
    if size > MAX_HEAD_BYTES and not path.startswith(b"/v0/watch/"):
        raise RequestError(f"the request head has more than {MAX_HEAD_BYTES} bytes")
    if len(path) > MAX_URL_BYTES:
        raise RequestError(f"the URL has more than {MAX_URL_BYTES} bytes")
    return build_head(pseudo[b":method"].decode("latin-1"), path, plain)
