"""The frames of a stream as bytes: server-sent events, and the messages of a WebSocket.

A body is the JSON of one frame and the same for both; a format wraps it.
"""

from typing import Protocol

import msgspec
from msgspec import Struct

from topics.errors import TopicsError
from topics.model.diff import Page, Tombstone

RETRY = b"retry: 2000\n\n"
RECORD, TOMBSTONE, CAUGHT_UP, TOPIC_DELETED = (
    b"record", b"tombstone", b"caught-up", b"topic-deleted",
)  # fmt: skip
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class Trouble(Struct, frozen=True, kw_only=True):
    """What an `error` frame says."""

    code: str
    message: str
    retry_after_ms: int | None = None
    topics: list[str] | None = None

    @classmethod
    def of(cls, error: TopicsError, *, topics: list[str] | None = None) -> "Trouble":
        return cls(code=error.code, message=str(error), topics=topics)

    def more(self) -> dict[str, object]:
        """Return the fields that are there only sometimes."""
        fields = {"retry_after_ms": self.retry_after_ms, "topics": self.topics}
        return {name: value for name, value in fields.items() if value is not None}


class Format(Protocol):
    """How a body becomes a frame of one protocol."""

    share_key: object
    """Watchers with the same key get the same bytes for the same body and id; None: not shared."""

    def wrap(self, kind: bytes, body: bytes, event_id: bytes) -> bytes: ...

    def error(self, trouble: Trouble) -> bytes: ...


class Sse:
    """`event`, `id` and `data` lines."""

    share_key: object = "sse"

    def wrap(self, kind: bytes, body: bytes, event_id: bytes) -> bytes:
        return b"event: %b\nid: %b\ndata: %b\n\n" % (kind, event_id, body)

    def error(self, trouble: Trouble) -> bytes:
        fields = {"code": trouble.code, "error": trouble.message, **trouble.more()}
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(fields)


class WebSocketMessages:
    """JSON objects with an `op`, and the `request_id` of the subscription if it had one."""

    def __init__(self, request_id: bytes | None = None) -> None:
        self.share_key: object = None if request_id is not None else "ws"
        self._middle = b'",' if request_id is None else b'","request_id":%b,' % request_id

    def wrap(self, kind: bytes, body: bytes, event_id: bytes) -> bytes:
        del event_id  # a WebSocket does not reconnect by itself: its client knows the seqs
        return b'{"op":"%b%b%b' % (kind.replace(b"-", b"_"), self._middle, body[1:])

    def error(self, trouble: Trouble) -> bytes:
        fields = {"code": trouble.code, "message": trouble.message, **trouble.more()}
        return self.wrap(b"error", msgspec.json.encode(fields), b"")


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def one_line(json: bytes) -> bytes:
    """Return JSON without line ends, which would cut a frame.

    It holds what was sent, and JSON allows line ends between its tokens, never inside of a string:
    a space is as good there.
    """
    if b"\n" in json or b"\r" in json:
        return json.translate(_LINE_ENDS)
    return json


def job_frame(topic: str, job: bytes, *, seq: int) -> bytes:
    """Return the event of one job of a queue, from its JSON."""
    body = b'{"topic":"%b",%b' % (topic.encode(), one_line(job)[1:])
    return b"event: job\nid: %d\ndata: %b\n\n" % (seq, body)


def record_body(page: Page, *, from_seq: int) -> bytes:
    """Return the body of a `record` frame."""
    records = one_line(page.records_json)
    return b'{"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
        page.topic.encode(),
        records,
        from_seq,
        page.next_from_seq,
        page.head_seq,
    )


def tombstone_body(topic: str, gap: Tombstone, *, reason: str) -> bytes:
    return msgspec.json.encode(
        {
            "topic": topic,
            "reason": reason,
            "gap_from": gap.gap_from,
            "gap_to": gap.gap_to,
            "earliest_seq": gap.earliest_seq,
            "head_seq": gap.head_seq,
        }
    )


def caught_up_body(topic: str, *, head_seq: int, until_reached: bool = False) -> bytes:
    until = b',"until_reached":true' if until_reached else b""
    return b'{"topic":"%b","head_seq":%d%b}' % (topic.encode(), head_seq, until)


def topic_deleted_body(topic: str, *, head_seq: int, reason: str) -> bytes:
    return msgspec.json.encode({"topic": topic, "head_seq": head_seq, "reason": reason})
