"""Where a watch stands: events in, items out, and what to ask for to go on. No I/O.

Keeps: the last id is that of the last event whose items were given out, so that a stream opened
with it goes on exactly behind them.
"""

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from topics.client import calls, failures
from topics.client.replies import decoder
from topics.client.request import Call, Request
from topics.client.sse import Event
from topics.errors import RequestError, TopicNotFound, TopicsError, Unreachable
from topics.model.diff import Record
from topics.model.stream import (
    CaughtUp,
    TopicDeleted,
    WatchedRecord,
    WatchedTombstone,
    WatchItem,
)
from topics.model.watch import HEARTBEAT_MS, WatchedTopic

EVENT_STREAM: Final = "text/event-stream"
MAX_ID_BYTES: Final = 8 * 1024
"""A longer one may be too much for a header: a new session has the places in its body."""
LATE_S: Final = 1.0
_LIFE: Final = "@"
_GONE: Final = 0
_log = logging.getLogger("topics.watch")


class Wanted(Struct, frozen=True, kw_only=True):
    """What is watched, from where on (None: what comes), and how."""

    starts: dict[str, int | None]
    limit: int
    node: str | Sequence[str]
    match: object
    until_caught_up: bool
    heartbeat_ms: int

    @property
    def silence_s(self) -> float:
        """How long a stream that lives says nothing: a heartbeat may be late, two are not."""
        low, high = HEARTBEAT_MS
        return 2 * min(max(self.heartbeat_ms, low), high) / 1000 + LATE_S


def starts_of(topics: Mapping[str, int | None] | Sequence[str]) -> dict[str, int | None]:
    """Return where to begin, by name or pattern."""
    if isinstance(topics, str):
        raise RequestError(f"give the topics to watch as a list: [{topics!r}]")
    return dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics)


class Made(Struct, frozen=True):
    """The answer to a request for a watch."""

    wid: str
    topics: dict[str, WatchedTopic]


class _Records(Struct, frozen=True):
    topic: str
    records: list[Record]


class _Gap(Struct, frozen=True):
    topic: str
    reason: str
    gap_from: int
    gap_to: int
    earliest_seq: int
    head_seq: int


class _Head(Struct, frozen=True):
    topic: str
    head_seq: int


class _Trouble(Struct, frozen=True):
    code: str = ""
    error: str = ""
    retry_after_ms: int = 0
    topics: list[str] = []


class Ended(Unreachable):
    """The server ended the stream, and said when to come back."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message, sent=True)
        self.retry_after_s = retry_after_s


_read_made = decoder(Made)
_read_records = decoder(_Records)
_read_gap = decoder(_Gap)
_read_head = decoder(_Head)
_read_trouble = decoder(_Trouble)


class Watching:
    """One watch, through all its connections."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._wid = ""
        self._last_id: str | None = None
        self._is_new = False
        """No stream of this session was asked for: it stands where it should."""
        self._named: set[str] = set()
        """Topics that were asked for by their own name."""
        self._left: set[str] | None = None
        """Topics that have not caught up yet since the beginning."""
        self._caught_up: dict[str, int] = {}
        """The heads that were told, so that a reconnect does not tell them again."""

    @property
    def done(self) -> bool:
        return self.wanted.until_caught_up and not self._left

    @property
    def is_lost(self) -> bool:
        """Tell whether a new session is needed."""
        id_bytes = len(self._last_id or "")
        return not self._wid or (not self._is_new and id_bytes > MAX_ID_BYTES)

    def lose(self) -> None:
        """Note that the server does not know the session any more."""
        self._wid = ""

    # What to ask for.

    def make(self) -> Call[Made]:
        """Ask for a session, from the beginning or from where the last one ended."""
        wanted = self.wanted
        is_first = self._last_id is None
        starts = wanted.starts if is_first else self._places()
        fields = {
            "topics": {name: _start(seq) for name, seq in starts.items()},
            "limit": wanted.limit,
            "node": wanted.node if isinstance(wanted.node, str) else list(wanted.node) or None,
            "match": wanted.match,
            "include_tags": True,
            "heartbeat_ms": wanted.heartbeat_ms,
        }
        # What has gone meanwhile is found out by the answer.
        request = calls.post("/v0/watch" if is_first else "/v0/watch?lenient=true", fields)
        return Call(request=request, decode=_read_made, repeatable=True)

    def made(self, reply: Made) -> Iterator[WatchItem]:
        """Take up a session; yield the topics that have gone while there was none."""
        self._wid, self._is_new = reply.wid, True
        places = {name: place.from_seq for name, place in reply.topics.items()}
        if self._last_id is None:
            self._named = self.wanted.starts.keys() & places.keys()
            self._left = set(places)
        else:
            for name in sorted(self._named - places.keys()):
                raise TopicNotFound(name)  # nobody would follow its next life
            before = self._cursors()
            for name in sorted(self._living(before) - places.keys()):
                yield self._forget(TopicDeleted(topic=name, head_seq=before[name]))
        self._last_id = _encode_id(places)

    def stream(self) -> Request:
        """Ask for the stream of the session, behind the last event."""
        last_id = None if self._is_new else self._last_id
        self._is_new = False
        path = f"/v0/watch/{self._wid}"
        return Request(method="GET", path=path, accept=EVENT_STREAM, last_event_id=last_id)

    def _places(self) -> dict[str, int | None]:
        """Return where to begin again; what appeared since comes from its first record."""
        cursors = self._cursors()
        living = self._living(cursors)
        places: dict[str, int | None] = {name: cursors[name] for name in cursors if name in living}
        return places | {name: 0 for name in self.wanted.starts if name not in places}

    def _cursors(self) -> dict[str, int]:
        text = self._last_id or ""
        found: dict[str, int] = msgspec.json.decode(
            urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=dict[str, int]
        )
        return found

    def _living(self, cursors: Mapping[str, int]) -> set[str]:
        return {
            name
            for name in cursors
            if not name.startswith(_LIFE) and cursors.get(_LIFE + name, 1) != _GONE
        }

    # What came.

    def take(self, event: Event) -> Iterator[WatchItem]:
        """Yield what an event says; raise what ends the stream, or the watch."""
        match event.kind:
            case "record":
                yield from _records(_read_records(event.data))
            case "tombstone":
                yield _tombstone(_read_gap(event.data))
            case "caught-up":
                yield from self._catch_up(_read_head(event.data))
            case "topic-deleted":
                head = _read_head(event.data)
                yield self._forget(TopicDeleted(topic=head.topic, head_seq=head.head_seq))
            case "error":
                self._fail(_read_trouble(event.data))
            case _:  # a newer server may say more
                pass
        if event.id:
            self._last_id = event.id

    def _catch_up(self, head: _Head) -> Iterator[WatchItem]:
        if self._left is not None:
            self._left.discard(head.topic)
        if self._caught_up.get(head.topic) != head.head_seq:
            self._caught_up[head.topic] = head.head_seq
            yield CaughtUp(topic=head.topic, from_seq=head.head_seq, head_seq=head.head_seq)

    def _forget(self, deleted: TopicDeleted) -> TopicDeleted:
        self._caught_up.pop(deleted.topic, None)
        if self._left is not None:
            self._left.discard(deleted.topic)
        return deleted

    def _fail(self, trouble: _Trouble) -> None:
        if trouble.topics:
            raise _left_out(trouble, count=len(self._living(self._cursors())))
        if trouble.code == "slow_consumer":
            _log.warning("the server ended a watch that was read too slowly: it goes on")
        raise Ended(
            f"the server ended the stream: {trouble.error}",
            retry_after_s=trouble.retry_after_ms / 1000,
        )


def _start(seq: int | None) -> dict[str, Any]:
    return {"tail": True} if seq is None else {"from_seq": seq}


def _encode_id(places: Mapping[str, int]) -> str:
    return urlsafe_b64encode(msgspec.json.encode(places)).decode().rstrip("=")


def _records(frame: _Records) -> Iterator[WatchedRecord]:
    for record in frame.records:
        yield WatchedRecord(
            topic=frame.topic,
            seq=record.seq,
            ts=record.ts,
            node=record.node,
            tag=record.tag,
            meta_json=record.meta_json,
            data_json=record.data_json,
        )


def _tombstone(gap: _Gap) -> WatchedTombstone:
    return WatchedTombstone(
        topic=gap.topic,
        gap_from=gap.gap_from,
        gap_to=gap.gap_to,
        reason=gap.reason,
        missed_estimate=max(0, gap.gap_to - gap.gap_from + 1),
        earliest_seq=gap.earliest_seq,
        head_seq=gap.head_seq,
    )


def _left_out(trouble: _Trouble, *, count: int) -> TopicsError:
    """Return why topics are not watched any more: a watch that goes on without them would lie."""
    detail = {"limit": "max_watch_topics", "max": count} if trouble.code == "throttled" else {}
    return failures.error_of(trouble.code, trouble.error, detail, name=trouble.topics[0])
