"""One request and the way back to whoever asked, whatever protocol they speak.

A handler gets an `Exchange` and answers it once: `reply`, `fail` or `open_stream`, at once or
later from a callback on the event loop. A handler that needs to wait is a coroutine; the fast
routes never make one.
"""

import asyncio
import gzip
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from topics.api.aside import PACK_BYTES
from topics.api.auth import Caller
from topics.api.error_response import encode_error
from topics.api.head import Head
from topics.engine.watch.convoy import Way
from topics.errors import DiskFull, RequestError, TopicsError, UnknownField
from topics.kernel import send_each
from topics.model.explain import decode_kind, explain
from topics.model.whole_numbers import with_whole_numbers
from topics.storage.disk.disk import Buffer

if TYPE_CHECKING:
    from topics.api.app import App
    from topics.api.routes import Route

T = TypeVar("T")
JSON = b"application/json"
GZIP_MIN_BYTES = 1024
WHOLE_MAX_BYTES = 128 * 1024
PACKETS_MIN = 8
"""So many answers are worth a call; fewer leave at the end of the turn, after news for watchers."""
UNCOPIED_MIN_BYTES = 32 * 1024


class Stream(Protocol):
    """A reply without an end: what a slow reader does not take waits here, counted."""

    on_close: Callable[[], None]
    """Called once when the reader is gone, or `close` was called."""
    on_drain: Callable[[], None]
    """Called when a reader that had fallen behind has taken most of it."""

    sent_bytes: int
    """How much was written."""

    def write(self, data: bytes) -> None:
        """Send, or keep until the reader takes it."""

    def offer(self, data: bytes, limit_bytes: int) -> bool:
        """Write unless more than the limit waits already; tell whether. Hot: once a watcher."""

    @property
    def buffered_bytes(self) -> int:
        """How much of this stream was written and waits for its reader."""

    def find_way(self) -> Way | None:
        """Return how to send past this stream, for as long as nothing waits in it."""

    def is_stuck(self, now_s: float) -> bool:
        """Tell whether nothing at all left a connection shared with others for too long."""

    @property
    def is_gone(self) -> bool:
        """Tell whether the reply is over; then `on_close` was called, or was not set yet."""

    def close(self) -> None:
        """End the reply after what is buffered."""

    def abort(self) -> None:
        """Drop the reader at once, with what is buffered."""


class Channel(Protocol):
    """Where the answers of a connection go, in the order it needs."""

    @property
    def peer(self) -> str:
        """The address at the other end, as far as it tells one party from another."""

    def send(
        self, exchange: "Exchange", status: int, *, content_type: bytes, headers: bytes, body: bytes
    ) -> None: ...

    def pack_ok(self, exchange: "Exchange", body: bytes) -> tuple[int, bytes] | None:
        """Return a small JSON answer and the socket it can go to now; None: it was sent."""

    def send_rest(self, data: bytes) -> None:
        """Send what the socket did not take of a packed answer."""

    def send_parts(
        self, exchange: "Exchange", parts: Sequence[Buffer], *, content_type: bytes = JSON
    ) -> None: ...

    def open_stream(
        self, exchange: "Exchange", *, content_type: bytes, headers: bytes
    ) -> Stream: ...

    def hold_behind(self, exchange: "Exchange") -> None:
        """Let what comes behind a request wait with it, if it waits for something."""

    def abort(self) -> None:
        """Drop whoever waits for the answer."""


class Exchange:
    """A request on its way."""

    __slots__ = (
        "answered",
        "app",
        "body",
        "caller",
        "channel",
        "head",
        "is_slow",
        "kept_bytes",
        "name",
        "response",
        "route",
        "started_s",
    )

    def __init__(
        self,
        app: "App",
        channel: Channel,
        head: Head,
        body: bytes | bytearray,
        started_s: float,
    ) -> None:
        assert head.route is not None  # the app has looked at the head
        assert head.caller is not None
        self.app = app
        self.channel = channel
        self.head = head
        self.route: Route = head.route
        self.name = head.name
        """What the path names: a topic, a router, a watch."""
        self.caller: Caller = head.caller
        self.body = body
        self.started_s = started_s
        self.answered = False
        self.is_slow = False
        """Its handler waits for something."""
        self.kept_bytes = 0
        """Of its body, if that came in pieces and was counted: until it is answered, or dropped."""
        self.response: bytes | None = None
        """For the channel: bytes that wait for their turn."""

    # Asking.

    def decode(self, decoder: Callable[[bytes | bytearray], T]) -> T:
        """Read the body as JSON into what a route takes, and let go of it."""
        decoded = self._decode(decoder)
        self.drop_body()
        return decoded

    def drop_body(self) -> None:
        """Keep the body no longer: the answer may have to wait."""
        self.body = b""
        if self.kept_bytes:
            self.app.bodies.change(self.caller, -self.kept_bytes)
            self.kept_bytes = 0

    def _decode(self, decoder: Callable[[bytes | bytearray], T]) -> T:
        try:
            return decoder(self.body)
        except msgspec.ValidationError as error:
            return self._decode_whole(decoder, error)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RequestError(f"the body is not JSON: {error}") from None
        except RecursionError:
            raise RequestError("the body is nested too deep") from None

    def _decode_whole(
        self, decoder: Callable[[bytes | bytearray], T], first: msgspec.ValidationError
    ) -> T:
        """Read it once more with 5.0 as 5: to JSON Schema, and to some clients, they are one.

        Every value becomes an object for that, which takes time: a long body has to be right.
        """
        explained = explain(first, decode_kind(decoder))
        if isinstance(explained, UnknownField) or len(self.body) > WHOLE_MAX_BYTES:
            raise explained from None
        try:
            return decoder(msgspec.json.encode(with_whole_numbers(msgspec.json.decode(self.body))))
        except msgspec.ValidationError as error:
            raise explain(error, decode_kind(decoder)) from None
        except (msgspec.DecodeError, OverflowError, RecursionError) as error:
            raise RequestError(f"the body cannot be used: {error}") from None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a switch of the query."""
        text = self.head.parameters().get(name)
        if text is None:
            return default
        if text not in ("true", "false", "1", "0"):
            raise RequestError(f"{name} must be true or false")
        return text in ("true", "1")

    def number(self, name: str, *, default: int, low: int, high: int) -> int:
        """Return a number of the query; above `high` it is clamped."""
        text = self.head.parameters().get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) < low:
            raise RequestError(f"{name} must be a whole number of at least {low}")
        return min(int(text), high)

    def elapsed_ms(self) -> float:
        return (self.app.clock.monotonic_s() - self.started_s) * 1000

    # Answering.

    def reply_json(self, value: object, *, status: int = 200, **performance: float) -> None:
        """Answer with a JSON object, adding `performance`."""
        encoded = msgspec.json.encode(value)
        figures = b"".join(
            b',"%b":%b' % (name.encode(), _number(figure)) for name, figure in performance.items()
        )
        separator = b"" if encoded == b"{}" else b","
        self.reply(
            status,
            b'%b%b"performance":{"server_total_ms":%.3f%b}}'
            % (encoded[:-1], separator, self.elapsed_ms(), figures),
        )

    def reply_parts(self, parts: Sequence[bytes]) -> None:
        """Answer with JSON that stands in several pieces: a large one is not copied again."""
        if self.answered:
            return
        if sum(map(len, parts)) < UNCOPIED_MIN_BYTES or self.accepts_gzip():
            self.reply(200, b"".join(parts))
            return
        self.answered = True
        self.channel.send_parts(self, parts)
        self.app.on_answered(self, 200)

    def reply_binary(self, parts: Sequence[Buffer], *, content_type: bytes) -> None:
        """Answer with bytes that are sent as they are, neither copied nor packed."""
        if self.answered:
            return
        self.answered = True
        self.channel.send_parts(self, parts, content_type=content_type)
        self.app.on_answered(self, 200)

    def reply(
        self, status: int, body: bytes, *, content_type: bytes = JSON, headers: bytes = b""
    ) -> None:
        if self.answered:
            return
        if len(body) >= GZIP_MIN_BYTES and self.accepts_gzip():
            headers += b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
            if len(body) > PACK_BYTES:
                self._reply_packed(status, body, content_type, headers)
                return
            body = _pack(body)
        self.answered = True
        self.channel.send(self, status, content_type=content_type, headers=headers, body=body)
        self.app.on_answered(self, status)

    def _reply_packed(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Pack a large answer beside the loop; what comes behind it on its connection waits."""
        app, size = self.app, len(body)
        packing = app.aside.run(lambda: _pack(body))
        app.answers.change(self.caller, size)
        self.is_slow = True
        self.channel.hold_behind(self)
        self.answered = True

        def send(packed: asyncio.Future[bytes]) -> None:
            app.answers.change(self.caller, -size)
            app.on_answered(self, status)
            self.channel.send(
                self, status, content_type=content_type, headers=headers, body=packed.result()
            )

        packing.add_done_callback(lambda done: app.guard(self.channel, lambda: send(done)))

    def fail(self, error: TopicsError) -> None:
        if isinstance(error, DiskFull):
            error = self.app.name_largest(error, self.caller)
        status, body, headers = encode_error(error, total_ms=self.elapsed_ms())
        headers += b"X-Request-Id: %b\r\n" % self.app.on_failed(self, error, status).encode()
        if self.head.method == "HEAD":
            body = b""  # whoever asks so takes the next bytes for the next answer
        self.reply(status, body, headers=headers)

    def open_stream(self, *, content_type: bytes, headers: bytes = b"") -> Stream:
        self.answered = True
        stream = self.channel.open_stream(self, content_type=content_type, headers=headers)
        self.app.on_answered(self, 200)
        return stream

    def accepts_gzip(self) -> bool:
        accepted = self.head.headers.get("accept-encoding")
        if not accepted or "gzip" not in accepted:
            return False
        for part in accepted.split(","):
            coding, _, weight = part.partition(";")
            if coding.strip().lower() == "gzip":
                return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
        return False


def reply_all(app: "App", exchanges: Sequence[Exchange], bodies: Sequence[bytes]) -> None:
    """Answer the small writes of one turn: what `reply` does to each, for the hot path."""
    first = exchanges[0]
    seconds = app.clock.monotonic_s() - first.started_s
    answered = 0
    packets: list[tuple[int, bytes]] = []
    senders: list[Channel] = []
    try:
        for exchange, body in zip(exchanges, bodies, strict=True):
            if len(body) >= GZIP_MIN_BYTES and exchange.accepts_gzip():
                exchange.reply(200, body)
            elif not exchange.answered:
                exchange.answered = True
                exchange.caller.requests -= 1
                answered += 1
                packet = exchange.channel.pack_ok(exchange, body)
                if packet is not None:
                    packets.append(packet)
                    senders.append(exchange.channel)
                if seconds > app.slow_s:
                    app.request_log.slow(exchange, 200, seconds)
    finally:  # whoever was answered before a failure has nothing else to wait for
        few = len(packets) < PACKETS_MIN
        for index, taken in [(n, 0) for n in range(len(packets))] if few else send_each(packets):
            senders[index].send_rest(packets[index][1][taken:])
    app.metrics.latency_of(first.route, 200).observe(seconds * 1e6, times=answered)


def _pack(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1, mtime=0)


def _number(figure: float) -> bytes:
    return b"%d" % figure if isinstance(figure, int) else b"%.3f" % figure
