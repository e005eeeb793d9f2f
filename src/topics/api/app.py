"""What all requests of one server share: the log, the keys, the connections, the counters.

Keeps: every exchange is answered once; a bug in a handler answers 500 and is logged, and nothing
else of the server notices.
"""

import asyncio
import hashlib
import sys
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any

from topics.aio import AsyncLog
from topics.api.append import answer_gathered, gather
from topics.api.aside import UNPACK_BYTES, Aside
from topics.api.auth import Caller, Keyring
from topics.api.body import check_body_size, decode_body
from topics.api.budget import plan_budgets
from topics.api.connection import STOPPING, Connection
from topics.api.exchange import Channel, Exchange
from topics.api.head import Head, build_head, read_head
from topics.api.host import HostRule
from topics.api.live import Live
from topics.api.log import RequestLog
from topics.api.origin import OriginRule
from topics.api.parking import Parking
from topics.api.query import check_query
from topics.api.regulars import Regulars
from topics.api.request_metrics import RequestMetrics
from topics.api.routes import UNREAD, Route, find_route
from topics.api.sampling import Sampling
from topics.api.sessions import Sessions
from topics.api.sse import accepts_events
from topics.api.tickets import Tickets
from topics.api.turns import Turns
from topics.api.watch_sessions import WatchSessions
from topics.clock import Clock
from topics.config import ServerConfig
from topics.descriptors import DEFAULT_CONNECTIONS, Crowd
from topics.engine.delivery.scheduler import Delivery
from topics.engine.listing import priority_of
from topics.engine.topics.topic import Topic
from topics.errors import (
    Closed,
    DiskFull,
    LimitReached,
    NotReady,
    TopicsError,
    UnsupportedMediaType,
)
from topics.limits import MIB, check_group_name, check_router_name, check_topic_name

if TYPE_CHECKING:
    from topics.engine.engine import Engine

REMEMBERED_HEADS = 1024
REMEMBERED_HEAD_BYTES = 1024
EARLY_STREAMS = 4096
NAMED_LARGEST = 3
"""So many topics are named to whoever finds the disk full."""
REFUSED_BODY_BYTES = 64 * 1024
"""So much of a body that is not wanted is waited for, so that its connection can go on."""
FORM = "application/x-www-form-urlencoded"


class App:
    """One server's state, on its event loop."""

    def __init__(
        self,
        config: ServerConfig,
        keyring: Keyring,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        request_log: RequestLog,
        crowd: Crowd | None = None,
    ) -> None:
        self.config = config
        self.keyring = keyring
        self.clock = clock
        self.loop, self.turns, self.aside = loop, Turns(loop, clock), Aside(loop)
        self.tickets = Tickets(clock)
        self.sessions = Sessions(clock)
        self.request_log = request_log
        self.metrics = RequestMetrics()
        self.parking = Parking(self)
        self.started_s = clock.monotonic_s()
        self.log: AsyncLog | None = None
        self.watches = WatchSessions(self)
        self.sampling = Sampling(self)
        self._live: Live | None = None
        self.queued: list[Exchange] = []
        """Plain writes that came in this turn of the event loop; already counted."""
        self.in_turn = False
        """What is answered now was asked in this very turn."""
        self.regulars = Regulars(self)
        self.bodies, self.answers, self.unread_streams = plan_budgets(config)
        self.replay_progress = 0.0
        self.stopping = False
        self.connections = self._join(crowd)
        self._early_streams: dict[Exchange, None] = {}
        """Wait for the log; like streams that are open, they are no requests under way."""
        self.inflight_max = config.max_inflight_per_key or sys.maxsize
        self.host_rule, self.origin_rule = (
            HostRule(config.allowed_hosts, bind_host=config.host),
            OriginRule(config.allowed_origins, hosts=config.allowed_hosts),
        )
        self.slow_s = config.slow_request_ms / 1000 or float("inf")
        self._heads: dict[bytes, Head] = {}
        # A remembered head must not keep a key in memory: where there are keys, a digest names it.
        self._head_name: Callable[[bytes], bytes] = bytes if keyring.is_open else _digest
        self.remembered_head: Callable[[bytes], Head | None] = (
            self._heads.get if keyring.is_open else self._find_digested
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._unread = build_head("GET", b"/", [])
        self._unread.keep_alive = False
        self._unread.route, self._unread.caller = UNREAD, keyring.nobody
        self.on_stop: list[Callable[[], None]] = []
        """What ends streams when the server stops."""
        self.ok_heads: dict[int, bytes] = {}
        """By the size of the answer, with the date of now."""
        self.renew_date()

    def _join(self, crowd: Crowd | None) -> set[Connection]:
        """Return where the connections are, which count among those of all protocols."""
        if crowd is None:
            crowd = Crowd(self.config.max_connections or DEFAULT_CONNECTIONS)
        self.crowd = crowd
        connections: set[Connection] = set()
        self.crowd.add(connections)
        self.crowd.add_others(lambda: self.metrics.websocket_connections)
        return connections

    @property
    def engine(self) -> "Engine":
        if self.log is None:
            raise NotReady(self.replay_progress)
        return self.log.log.engine

    @property
    def ready_log(self) -> AsyncLog:
        if self.log is None:
            raise NotReady(self.replay_progress)
        return self.log

    @property
    def live(self) -> Live:
        if self._live is None:
            raise NotReady(self.replay_progress)
        return self._live

    @property
    def delivery(self) -> Delivery:
        return self.live.delivery

    def check_ready(self) -> None:
        """Raise why not all of it can be served now."""
        if self.stopping:
            raise Closed(STOPPING)
        for shard in self.engine.shards:
            shard.commit.log.check_writable()

    @property
    def is_ready(self) -> bool:
        try:
            self.check_ready()
        except TopicsError:
            return False
        return True

    def open(self, log: AsyncLog) -> None:
        """Serve a log that was replayed."""
        self.replay_progress = 1.0
        self.log = log
        self._live = Live(self, log)
        self.on_stop += (self._live.stop, self.sampling.stop)
        self.sampling.start()

    def open_early_streams(self) -> None:
        """Answer who came for a stream before the log was replayed."""
        early, self._early_streams = self._early_streams, {}
        for exchange in early:
            self.dispatch(exchange)

    def effective_priority(self, topic: Topic) -> int:
        return priority_of(topic, now_ms=self.clock.now_ms())

    # Heads.

    def read_head(self, raw: bytes | bytearray) -> Head:
        """Read a head and decide what it alone decides; a repeated one is remembered."""
        raw = bytes(raw)
        name = self._head_name(raw)
        remembered = self._heads.get(name)
        if remembered is not None:
            return remembered
        head = read_head(raw)
        self.prepare(head)
        if len(raw) <= REMEMBERED_HEAD_BYTES and _may_be_remembered(head):
            if len(self._heads) >= REMEMBERED_HEADS:
                self._heads.clear()
            self._heads[name] = head
        return head

    def _find_digested(self, raw: bytes) -> Head | None:
        return self._heads.get(_digest(raw))

    def prepare(self, head: Head) -> None:
        """Find the route and the caller of a head, or why it is refused."""
        try:
            self.host_rule.check(head.headers.get("host", ""))
            head.route, head.name = find_route(head.method, head.path)
            if head.route.is_guarded:
                self.origin_rule.check(head.headers)
            head.caller = self._identify(head)
            head.caller.check_scopes(head.route.scopes)
            _check_name(head)
            check_query(head)
            _check_media_type(head)
            head.body_max = head.route.body_max(self.config)
            _check_body(head)
        except TopicsError as refusal:
            head.refusal = refusal
            head.body_max = min(REFUSED_BODY_BYTES, self.config.max_body_bytes)
            head.route = head.route or UNREAD
            head.caller = head.caller or self.keyring.nobody
        else:
            head.is_plain_write = (
                head.route.is_gathered
                and not (head.query or head.is_encoded)
                and not head.headers.get("idempotency-key")
            )
        head.authorization = head.cookie = head.csrf = ""

    def _identify(self, head: Head) -> Caller:
        route = head.route
        assert route is not None
        if route.is_open or (route.is_probe and not self.config.probe_auth):
            return self.keyring.anonymous
        if route.is_stream and head.query and not head.authorization:
            parameters = head.parameters()
            if "ticket" in parameters:
                return self.tickets.use(parameters["ticket"])
            if "token" in parameters and not self.keyring.is_open:
                return self.keyring.identify(parameters["token"])
        if not head.authorization and not self.keyring.is_open:
            return self._identify_browser(head, route)
        return self.keyring.identify_header(head.authorization)

    def _identify_browser(self, head: Head, route: Route) -> Caller:
        head.session = self.sessions.identify(head) if head.cookie else None
        if head.session is not None:
            return head.session.caller
        if route.is_page:
            return self.keyring.nobody  # sent to the sign-in page
        return self.keyring.identify_header("")

    # Exchanges.

    def unread_exchange(self, channel: Channel) -> Exchange:
        """Return an exchange for a request that could not even be read."""
        return Exchange(self, channel, self._unread, b"", self.clock.monotonic_s())

    def dispatch(self, exchange: Exchange) -> None:
        """Answer, or begin to."""
        exchange.caller.requests += 1
        self._take(exchange, may_gather=True)

    def take_turn(self) -> None:
        """Gather the plain writes of this turn and write them, as `dispatch` would one by one.

        Whoever has left meanwhile has written nothing.
        Hot: that is three calls a write instead of seven, and each kind of work is done for all
        before the next. Measured with 64 connections: 3 to 6 % more writes a second.
        """
        log = self.log
        if self.queued:
            turn, self.queued = self.queued, []
            for exchange in turn if log is None or self.stopping else self._gather_turn(log, turn):
                if not exchange.answered:
                    self.guard(exchange.channel, partial(self._take_late, exchange))
            turn.clear()  # connections may still hold it
        if log is not None:
            self.in_turn = True
            try:
                for waiter in log.waiter_row:
                    waiter.end_turn()
            finally:
                self.in_turn = False

    def _gather_turn(self, log: AsyncLog, turn: list[Exchange]) -> list[Exchange]:
        """Return what has to be taken in another way."""
        others = []
        find_topic, waiters = log.log.engine.find_topic, log.waiter_row
        for exchange in turn:
            topic = find_topic(exchange.name)
            if topic is None or exchange.answered or self.parking.rows:
                others.append(exchange)
                continue
            waiter = waiters[topic.id % len(waiters)]
            try:
                if not waiter.take(topic, exchange.body, exchange, answer_gathered):
                    others.append(exchange)
            except Exception as bug:  # noqa: BLE001 - the border: a bug answers 500 and is logged
                self.guard(exchange.channel, partial(self.answer_bug, exchange, bug))
        return others

    def _take_late(self, exchange: Exchange) -> None:
        self._take(exchange, may_gather=False)
        exchange.channel.hold_behind(exchange)

    def guard(self, channel: Channel, work: Callable[[], None]) -> None:
        """Drop a writer whose failure could not even be told: the others go on."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - as the event loop does for one connection
            self.loop.call_exception_handler({"message": "a write failed", "exception": error})
            channel.abort()

    def _take(self, exchange: Exchange, *, may_gather: bool) -> None:
        try:
            if may_gather and exchange.head.is_plain_write and gather(self, exchange):
                return
            waits = self._handle(exchange)
        except TopicsError as error:
            exchange.fail(error)
        except Exception as bug:  # noqa: BLE001 - the border: a bug answers 500 and is logged
            self.answer_bug(exchange, bug)
        else:
            if waits is not None:
                exchange.is_slow = True
                self.spawn(self._finish(exchange, waits))

    def _handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        head, route = exchange.head, exchange.route
        if head.refusal is not None:
            raise head.refusal
        if (
            ((self.stopping or self.log is None) and route.needs_log)
            or exchange.caller.requests > self.inflight_max
        ) and not self._may_go_on(exchange):
            return None
        if self.answers.used and route.needs_log and not route.is_stream:
            self.answers.check(exchange.caller)
        if head.is_encoded:
            if len(exchange.body) > UNPACK_BYTES:
                return self._unpack_and_handle(exchange)
            exchange.body = decode_body(head, exchange.body, head.body_max)
        return route.handle(self, exchange)

    async def _unpack_and_handle(self, exchange: Exchange) -> None:
        head, packed = exchange.head, exchange.body
        exchange.body = await self.aside.run(partial(decode_body, head, packed, head.body_max))
        waits = exchange.route.handle(self, exchange)
        if waits is not None:
            await waits

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run beside the requests; kept until it ends."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _finish(self, exchange: Exchange, waits: Coroutine[Any, Any, None]) -> None:
        try:
            await waits
        except TopicsError as error:
            exchange.fail(error)
        except Exception as bug:  # noqa: BLE001 - the border: a bug answers 500 and is logged
            self.answer_bug(exchange, bug)

    def _comes_early(self, exchange: Exchange) -> bool:
        """Tell whether this is for a stream that can be had soon.

        A browser's `EventSource` takes a 503 for the end and never asks again, so that a restart
        would lose whoever comes back while the log is replayed.
        """
        return (
            self.log is None
            and not self.stopping
            and exchange.route.is_stream
            and accepts_events(exchange)
            and len(self._early_streams) < EARLY_STREAMS
        )

    def _may_go_on(self, exchange: Exchange) -> bool:
        """Refuse what cannot be served now; False for what waits until it can."""
        if self._comes_early(exchange):
            exchange.is_slow = True
            exchange.drop_body()  # nobody reads it, and the log may take its time
            exchange.caller.requests -= 1
            self._early_streams[exchange] = None
            return False
        if exchange.route.needs_log and self.stopping:
            raise Closed(STOPPING)
        if exchange.route.needs_log and self.log is None:
            raise NotReady(self.replay_progress)
        if not exchange.caller.is_anonymous:
            raise LimitReached("max_inflight_per_key", self.inflight_max)
        return True

    def answer_bug(self, exchange: Exchange, bug: Exception) -> None:
        self.request_log.bug(exchange, bug)
        exchange.fail(TopicsError("something went wrong here: the server's log has the details"))

    # What exchanges tell.

    def on_answered(self, exchange: Exchange, status: int) -> None:
        if exchange in self._early_streams:
            del self._early_streams[exchange]  # its reader has left, and it was not counted
        else:
            exchange.caller.requests -= 1
        if exchange.kept_bytes:
            exchange.drop_body()
        seconds = self.clock.monotonic_s() - exchange.started_s
        self.metrics.observe(exchange.route, status, seconds)
        if seconds > self.slow_s and not exchange.route.may_wait:
            self.request_log.slow(exchange, status, seconds)

    def name_largest(self, error: DiskFull, caller: Caller) -> DiskFull:
        """Say where the room is, as far as the caller may see it."""
        largest = () if self.log is None else self.engine.largest
        seen = [topic for topic in largest if caller.sees(topic.name)][:NAMED_LARGEST]
        if not seen:
            return error
        named = ", ".join(f"{topic.name} ({topic.live_bytes // MIB} MiB)" for topic in seen)
        return DiskFull(
            f"{error}. The largest topics: {named}",
            free_bytes=error.free_bytes,
            needed_bytes=error.needed_bytes,
            largest=[topic.name for topic in seen],
        )

    def on_failed(self, exchange: Exchange, error: TopicsError, status: int) -> str:
        """Log a failure that is ours; return the id the caller may quote."""
        return self.request_log.failed(exchange, error, status)

    # Time.

    def renew_date(self) -> None:
        self.date = date = formatdate(self.clock.now_ms() / 1000, usegmt=True).encode()
        self.date_line = b"Date: %b\r\n\r\n" % date
        self.closing_line = b"Connection: close\r\nDate: %b\r\n\r\n" % date
        self.ok_heads.clear()

    def make_ok_head(self, size: int) -> bytes:
        """Make the head of a small JSON answer, and keep it: many in a row are of one size."""
        head = self.ok_heads[size] = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b"
            % (size, self.date_line)
        )
        return head

    def take_http2(self, transport: asyncio.Transport, data: bytes) -> None:
        """Let a connection that began as HTTP/2 go on as such."""
        from topics.api.http2 import Http2Connection  # noqa: PLC0415 - h2 is slow to import

        connection = Http2Connection(self)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)

    @property
    def _has_streams(self) -> bool:
        return self._live is not None and bool(self._live.streams)

    async def drain(self) -> None:
        """Wait for what is under way, as long as the budget lasts."""
        self.stopping = True
        self.open_early_streams()  # they are told so
        for stop in list(self.on_stop):
            stop()
        reason = Closed(STOPPING)
        deadline_s = self.clock.monotonic_s() + self.config.drain_ms / 1000
        while self.clock.monotonic_s() < deadline_s:
            for connection in list(self.connections):
                connection.wind_up(reason)
            if not self.connections and not self._has_streams:
                return
            await asyncio.sleep(0.01)
        if self._live is not None:
            self._live.stop_streams()
        for connection in list(self.connections):
            connection.abort()


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


def _may_be_remembered(head: Head) -> bool:
    """Tell whether the same bytes mean the same again: a ticket is good once, a session ends."""
    return (
        head.refusal is None
        and head.route is not None
        and head.session is None
        and not (head.route.is_stream and head.query)
        and not head.chunked
    )


def _check_name(head: Head) -> None:
    route, caller = head.route, head.caller
    assert route is not None
    assert caller is not None
    if route.names_topic and not route.is_page:  # a page says it in its own way
        caller.check_name(check_topic_name(head.name))
    elif route.names_router:
        caller.check_name(check_router_name(head.name))
    elif route.names_group:
        caller.check_name(check_group_name(head.name))


def _check_body(head: Head) -> None:
    assert head.route is not None
    if head.is_encoded and head.route.is_keyless:
        raise UnsupportedMediaType("this route takes no Content-Encoding: send the body as it is")
    check_body_size(head, head.content_length)


def _check_media_type(head: Head) -> None:
    if head.method not in ("POST", "PUT"):
        return
    media_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if head.route is not None and head.route.is_form:
        if media_type != FORM:
            raise UnsupportedMediaType(f"send the form with Content-Type: {FORM}")
    elif media_type != "application/json":
        raise UnsupportedMediaType("send the body with Content-Type: application/json")
