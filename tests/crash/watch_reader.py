"""What the other end of a stream remembers, and the bytes on their way to it."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.watcher import Watcher
from topics.testing.crash_observe import Violation

LATE_WEIGHT = 4096


def require(holds: bool, what: str) -> None:  # noqa: FBT001 - a sentence and whether it is true
    if not holds:
        raise Violation(what)


@dataclass
class View:
    """One life of a topic, as its reader was told of it."""

    records: dict[int, int] = field(default_factory=dict)
    """Seq → number."""
    lost: dict[int, str] = field(default_factory=dict)
    """Seq → why."""
    at: int = 0
    ended: bool = False


class Reader:
    """What the other end of a stream remembers. Keeps: what it is given only ever ascends."""

    def __init__(self) -> None:
        self.views: dict[str, list[View]] = {}
        self.last_id: str | None = None

    def take(self, frame: bytes) -> None:
        lines = dict(line.split(": ", 1) for line in frame.decode().strip().split("\n"))
        require(lines["event"] != "error", f"the stream says {lines['data']}")
        body: dict[str, Any] = msgspec.json.decode(lines["data"])
        view = self._view(body["topic"])
        cursors = decode_event_id(lines["id"])
        at = cursors[body["topic"]]
        match lines["event"]:
            case "record":
                for record in body["records"]:
                    self._pass(view, record["$seq"], body)
                    view.records[record["$seq"]] = record["data"]
                require(view.at <= at == body["to_seq"], f"the id says {at}: {body}")
            case "tombstone":
                require(body["reason"] != "recreated", f"the life is known: {body}")
                for seq in range(body["gap_from"], body["gap_to"] + 1):
                    self._pass(view, seq, body)
                    view.lost[seq] = body["reason"]
                require(at == body["gap_to"], f"the id says {at}: {body}")
            case "topic-deleted":
                view.ended = True
                at = view.at
            case kind:
                require(kind == "caught-up", f"what is a {kind}?")
                require(at == body["head_seq"], f"caught up at {at}: {body}")
        view.at = at
        self._remember(lines["id"], cursors)

    def _view(self, topic: str) -> View:
        views = self.views.setdefault(topic, [])
        if not views or views[-1].ended:
            views.append(View())
        return views[-1]

    def _pass(self, view: View, seq: int, body: dict[str, Any]) -> None:
        require(seq > view.at, f"seq {seq} after {view.at}: {body}")
        view.at = seq

    def _remember(self, last_id: str, cursors: dict[str, int]) -> None:
        """Note where the other topics stand: what was deleted is passed without a frame."""
        self.last_id = last_id
        for topic, views in self.views.items():
            view = views[-1]
            if not view.ended:
                require(cursors[topic] >= view.at, f"the id puts {topic} back: {cursors}")
                view.at = cursors[topic]


class Line:
    """The bytes between a watcher and its reader: nothing arrives before it is taken.

    A thin line counts its bytes as so many more that a frame or two fill it.
    """

    def __init__(self, weight: int = 1) -> None:
        self.frames: deque[bytes] = deque()
        self._weight = weight

    def write(self, data: bytes, /) -> None:
        self.frames.append(data)

    def has_room(self, limit_bytes: int, /) -> bool:
        return self.buffered_bytes <= limit_bytes

    def offer(self, data: bytes, limit_bytes: int, /) -> bool:
        if self.buffered_bytes > limit_bytes:
            return False
        self.write(data)
        return True

    @property
    def buffered_bytes(self) -> int:
        return sum(map(len, self.frames)) * self._weight


class Counters:
    """Nobody looks at these."""

    records_delivered = 0
    tombstones = 0


@dataclass
class Stream:
    """A watcher, its reader, and what is between them."""

    name: str
    watcher: Watcher
    reader: Reader
    is_late: bool

    def __post_init__(self) -> None:
        self.line = Line(weight=LATE_WEIGHT if self.is_late else 1)

    def take(self, frames: int) -> None:
        for _ in range(min(frames, len(self.line.frames))):
            self.reader.take(self.line.frames.popleft())
