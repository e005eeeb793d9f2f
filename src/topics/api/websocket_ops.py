"""What the messages of a WebSocket mean: subscribe, unsubscribe, publish, ping.

Owns the subscriptions of one connection. Keeps: every message is answered, with the `request_id`
it had; each is checked against the key on its own.
"""

from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from topics.api.auth import Caller
from topics.api.connection import STOPPING
from topics.api.error_response import describe_error
from topics.api.watch import build_watcher, describe_places
from topics.api.watch_room import WatchShare
from topics.engine.partitions import Spread
from topics.engine.request import Write, read_write
from topics.engine.topics.topic import Topic
from topics.engine.watch.frames import WebSocketMessages
from topics.engine.watch.watcher import Sink, Watcher
from topics.errors import Closed, LimitReached, RequestError, TopicsError
from topics.limits import KIB, LISTED_BYTES
from topics.model.append import Appended
from topics.model.explain import decode_kind, explain
from topics.model.watch import WILDCARD
from topics.model.websocket import Asked, ClientOp, PublishOp
from topics.storage.wal.group_commit import Commitment

if TYPE_CHECKING:
    from topics.api.app import App

T = TypeVar("T")
NOBODY = Asked()
MAX_OP_BYTES = 128 * KIB
"""Of a message that brings no records."""
MAX_CONFIG_BYTES = 16 * KIB
_PUBLISH_NAME = b'"publish"'
_DECODE: Callable[[bytes], ClientOp] = msgspec.json.Decoder(ClientOp).decode
_DECODE_ASKED: Callable[[bytes], Asked] = msgspec.json.Decoder(Asked).decode
_DECODE_PUBLISH: Callable[[bytes], PublishOp] = msgspec.json.Decoder(PublishOp).decode
_DECODE_CONFIG: Callable[[bytes], dict[str, Any] | None] = msgspec.json.Decoder(
    dict[str, Any] | None
).decode
_READ, _WRITE, _PUBLISH_CONFIG = (
    frozenset({"read"}), frozenset({"write"}), frozenset({"write", "admin"}),
)  # fmt: skip
Waits = Coroutine[Any, Any, None] | None


class Peer(Sink, Protocol):
    """The connection."""

    def on_settled(self) -> None: ...


class WebSocketOps:
    """One connection's conversation."""

    def __init__(self, app: "App", caller: Caller, peer: Peer) -> None:
        self._app = app
        self._caller = caller
        self._peer = peer
        self._watchers: dict[Watcher, WatchShare] = {}
        self.under_way = 0
        """Writes that were not answered yet."""
        self._names_max = app.config.max_watch_topics
        self._op_max = max(MAX_OP_BYTES, LISTED_BYTES * self._names_max)
        self._handlers: dict[str, Callable[[ClientOp], None]] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "ping": self._ping,
        }

    def handle(self, raw: bytes) -> Waits:
        """Answer a message, or return what will."""
        asked = NOBODY
        try:
            asked = _decode(_DECODE_ASKED, raw)
            if bytes(asked.op) == _PUBLISH_NAME:
                self._check_running()
                return self._publish(_decode(_DECODE_PUBLISH, raw), raw)
            self._handle_small(raw)
        except TopicsError as error:
            self._fail(asked, error)
        except Exception as bug:  # noqa: BLE001 - the border: a bug is answered and logged
            self._fail_bug(asked, bug)
        return None

    def _handle_small(self, raw: bytes) -> None:
        if len(raw) > self._op_max:
            raise RequestError(f"a message may have {self._op_max} bytes, unless it is a publish")
        op = _decode(_DECODE, raw)
        handler = self._handlers.get(op.op)
        if handler is None:
            raise RequestError(f"op must be one of {', '.join([*self._handlers, 'publish'])}")
        if len(op.names) > self._names_max:
            raise RequestError(f"a message may name {self._names_max} topics or patterns")
        self._check_running()
        handler(op)

    def _check_running(self) -> None:
        if self._app.stopping:
            raise Closed(STOPPING)

    def close(self) -> None:
        for watcher in list(self._watchers):
            self._end(watcher)

    def pump_blocked(self) -> None:
        for watcher in self._watchers:
            if watcher.meet_end() or watcher.blocked:
                self._app.live.schedule(watcher)

    # The ops.

    def _ping(self, op: ClientOp) -> None:
        self._reply("pong", op, {"ts": self._app.clock.now_ms()})

    def _subscribe(self, op: ClientOp) -> None:
        self._caller.check_scopes(_READ)
        share = WatchShare(self._app.watches.room, self._caller)
        try:
            watcher = self._build(op, share)
        except TopicsError:
            share.end()
            raise
        self._reply("subscribed", op, {"topics": describe_places(watcher)})
        if not (watcher.places or watcher.patterns):
            share.end()  # all that was named was left out
            return
        self._watchers[watcher] = share
        watcher.on_behind = self._app.live.schedule
        watcher.open(self._peer)

    def _build(self, op: ClientOp, share: WatchShare) -> Watcher:
        starts = op.starts()
        share.take_watch(op, starts)
        share.check()
        watcher = build_watcher(
            self._app,
            self._caller,
            starts,
            op,
            lenient=op.lenient,
            frame_format=WebSocketMessages(_encode_id(op)),
            share=share,
        )
        share.check()
        self._make_room(watcher)
        return watcher

    def _make_room(self, watcher: Watcher) -> None:
        """End what is asked for again: it begins where it says now."""
        again = _names_of([watcher])
        limit = self._app.config.max_watch_topics
        if len({*_names_of(self._watchers), *again}) > limit:
            raise LimitReached("max_watch_topics", limit)
        for name in again:
            self._drop(name)

    def _unsubscribe(self, op: ClientOp) -> None:
        names = op.names or [*_names_of(self._watchers)]
        self._reply("unsubscribed", op, {"topics": [name for name in names if self._drop(name)]})

    def _publish(self, op: PublishOp, raw: bytes) -> Waits:
        if op.topic is None:
            raise RequestError("publish needs a topic")
        config_json = bytes(op.config)
        if len(config_json) > MAX_CONFIG_BYTES:
            raise RequestError(f"the config of a topic may have {MAX_CONFIG_BYTES} bytes")
        config = _decode(_DECODE_CONFIG, config_json)
        self._caller.check_scopes(_WRITE if config is None else _PUBLISH_CONFIG)
        self._caller.check_name(op.topic)
        self._caller.check_config(config or {})
        topic = self._app.engine.find_topic(op.topic)
        parent = None if topic is not None else self._app.engine.find_partitioned(op.topic)
        write = read_write(raw, self._app.config, keyed=parent is not None, message=True)
        if parent is not None:
            self._submit_spread(op, self._app.engine.plan_spread(parent, write))
            return None
        if topic is None:
            return self._create_and_publish(op, write)
        self._submit(op, topic, write, created=False)
        return None

    async def _create_and_publish(self, op: PublishOp, write: Write) -> None:
        assert op.topic is not None
        try:
            topic, created = await self._app.ready_log.topic_for_write(op.topic, write)
            self._submit(op, topic, write, created=created)
        except TopicsError as error:
            self._fail(op, error)
        except Exception as bug:  # noqa: BLE001 - the border: a bug is answered and logged
            self._fail_bug(op, bug)

    def _submit(self, op: PublishOp, topic: Topic, write: Write, *, created: bool) -> None:
        waiter = self._app.ready_log.waiter_of(topic)
        waiter.submit_gathered()  # asked for before this write
        _, ticket = self._app.engine.submit_append(topic, write, waiter=waiter)
        self.under_way += 1

        def done(ticket: Commitment) -> None:
            self.under_way -= 1
            if ticket.error is not None:
                self._fail(op, ticket.error)
            else:
                assert isinstance(ticket.answer, Appended)
                fields = msgspec.structs.asdict(ticket.answer)
                del fields["placements"], fields["places"]
                self._reply("ack", op, {**fields, "created": created, "seqs": ticket.answer.seqs})
            self._peer.on_settled()

        waiter.tell(ticket, done)

    def _submit_spread(self, op: PublishOp, spread: Spread) -> None:
        self.under_way += 1

        def done(spread: Spread) -> None:
            self.under_way -= 1
            try:
                appended = spread.answer()
                fields = msgspec.structs.asdict(appended)
                for name in ("first_seq", "last_seq", "head_seq", "places"):
                    del fields[name]
                self._reply("ack", op, {**fields, "seqs": appended.placed})
            except TopicsError as error:
                self._fail(op, error)
            spread.end()
            self._peer.on_settled()

        spread.on_done = done
        self._app.ready_log.submit_parts(spread, spread.parts)

    def _drop(self, name: str) -> bool:
        """End what is named, a topic or a pattern; tell whether there was such."""
        found = False
        for watcher in list(self._watchers):
            if name.endswith(WILDCARD):
                found |= watcher.drop_pattern(name[:-1])
            else:
                found |= watcher.drop(name)
            if not watcher.places and not watcher.patterns:
                self._end(watcher)
        return found

    def _end(self, watcher: Watcher) -> None:
        watcher.close()
        self._watchers.pop(watcher).end()

    # Answers.

    def _reply(self, op_name: str, op: ClientOp | PublishOp, fields: dict[str, object]) -> None:
        body = msgspec.json.encode(fields)
        self._peer.write(WebSocketMessages(_encode_id(op)).wrap(op_name.encode(), body, b""))

    def _fail(self, op: Asked | PublishOp, error: TopicsError) -> None:
        _, fields = describe_error(error)
        body = msgspec.json.encode(fields)
        self._peer.write(WebSocketMessages(_encode_id(op)).wrap(b"error", body, b""))

    def _fail_bug(self, op: Asked | PublishOp, bug: Exception) -> None:
        self._app.request_log.stream_bug(bug)
        self._fail(op, TopicsError("something went wrong here: the server's log has the details"))


def _decode(decoder: Callable[[bytes], T], raw: bytes) -> T:
    try:
        return decoder(raw)
    except msgspec.ValidationError as error:
        raise explain(error, decode_kind(decoder), where="message: ") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(f"a message is a JSON object with an op: {error}") from None
    except RecursionError:
        raise RequestError("the message is nested too deep") from None


def _encode_id(op: Asked | ClientOp | PublishOp) -> bytes | None:
    return None if op.request_id is None else msgspec.json.encode(op.request_id)


def _names_of(watchers: Collection[Watcher]) -> list[str]:
    names = [name for watcher in watchers for name in watcher.places]
    return names + [prefix + WILDCARD for watcher in watchers for prefix in watcher.patterns]
