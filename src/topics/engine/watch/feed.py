"""Reads for watchers: one read and one encoding for all who stand at the same place.

Owns the steps read during one turn, and the convoys of those who wait for more. Keeps: a step is
shared only within the turn in which it was read, so that no watcher is sent what was deleted
before its turn began; a turn tells when it has taken its time.
"""

import hashlib
from collections.abc import Callable
from typing import Protocol, Self

import msgspec

from topics.engine.delivery.scheduler import Delivery
from topics.engine.diff import DiffRequest
from topics.engine.engine import Engine
from topics.engine.topics.topic import Topic
from topics.engine.watch.convoy import Convoy, Seat, Standing, Way
from topics.engine.watch.frames import record_body, tombstone_body
from topics.engine.watch.patterns import Newcomers
from topics.errors import TopicsError
from topics.model.diff import Page
from topics.model.watch import Window

TOO_OLD = "from_seq_too_old"
_INVOLUNTARY = frozenset({"cap", "ttl", "mixed"})
MAX_SHARED = 1024
"""Steps kept in one turn; whoever comes later reads for himself."""
MAX_SHARED_BYTES = 16 * 1024 * 1024
TURN_S = 0.005
"""After so long a turn serves nobody else."""

ColdDone = Callable[[Page | TopicsError], None]
ColdRead = Callable[[Topic, DiffRequest, ColdDone], None]


class Counters(Protocol):
    """What is counted for the metrics."""

    records_delivered: int
    tombstones: int


class Options:
    """What a watcher wants to see, and a name for it that is quick to compare."""

    def __init__(self, request: DiffRequest, *, filter_key: str | None = None) -> None:
        self.request = request
        self._filter_key = _filter_key(request) if filter_key is None else filter_key
        """In place of the filters, which may be long, while every watcher has a key."""
        bare = msgspec.structs.replace(request, nodes=(), match=None)
        self.key = f"{self._filter_key} {bare}"
        self._everyone = (
            self if not request.nodes else Options(msgspec.structs.replace(request, nodes=()))
        )

    def within(self, window: Window) -> "Options":
        """Return the same between two times."""
        return Options(
            msgspec.structs.replace(self.request, from_ts=window.from_ts, until_ts=window.until_ts),
            filter_key=self._filter_key,
        )

    def of(self, topic: Topic) -> "Options":
        """Return the options as the config of a topic has them."""
        return self if topic.config.dedupe_node else self._everyone


class Step:
    """One page on its way to watchers: the bodies of its frames, and where it leads."""

    __slots__ = (
        "caught_up", "count", "framed", "gap_body", "gap_seq", "head_seq", "is_plain",
        "next_seq", "record_body", "until_reached",
    )  # fmt: skip

    def __init__(self, page: Page, *, from_seq: int, fresh: bool) -> None:
        self.gap_body: bytes | None = None
        self.gap_seq = from_seq
        gap = page.tombstone
        if gap is not None:
            too_old = fresh and gap.reason in _INVOLUNTARY
            self.gap_body = tombstone_body(
                page.topic, gap, reason=TOO_OLD if too_old else gap.reason
            )
            self.gap_seq = gap.behind
        self.count = page.count
        self.record_body = record_body(page, from_seq=self.gap_seq) if page.count else b""
        self.next_seq = page.next_from_seq
        self.head_seq = page.head_seq
        self.caught_up = page.caught_up
        self.until_reached = page.until_reached is True
        self.is_plain = page.caught_up and page.count > 0 and gap is None
        """Nothing but records, and nothing behind them."""
        self.framed: dict[object, tuple[bytes, ...]] = {}
        """Whole frames, for watchers that share even the id."""


class Ready:
    """The frame for everybody who had read a topic up to a seq when news came; in one turn."""

    __slots__ = ("count", "frame", "next_seq", "seq", "topic")

    def __init__(self, topic: Topic, seq: int, step: Step, frame: bytes) -> None:
        self.topic = topic
        self.seq = seq
        self.next_seq = step.next_seq
        self.count = step.count
        self.frame = frame


class Feed:
    """What watchers read from."""

    def __init__(
        self, engine: Engine, delivery: Delivery, *, counters: Counters, read_cold: ColdRead
    ) -> None:
        self.engine = engine
        self.delivery = delivery
        self.counters = counters
        self._read_cold = read_cold
        self.newcomers = Newcomers()
        self._clock = engine.clock
        self._turns = 0
        self._end_s = 0.0
        self._shared: dict[tuple[int, int, bool, str], Step] = {}
        self._shared_bytes = 0
        self.ready: dict[str, Ready] = {}
        """By the kind of watcher: what the last one of this turn was sent, for the next."""
        self.convoys: dict[tuple[str, Topic], Convoy] = {}
        """By kind of watcher and topic; none is empty."""
        self.encodings = 0
        """How many steps were read and encoded, shared or not."""

    def turn(self) -> Self:
        """Share steps among all watchers that are served inside of a `with`."""
        return self

    def __enter__(self) -> None:
        self._turns += 1
        if self._turns == 1:
            self._end_s = self._clock.monotonic_s() + TURN_S

    @property
    def is_late(self) -> bool:
        """Tell whether what is not served yet had better wait for another turn."""
        return self._turns > 0 and self._clock.monotonic_s() >= self._end_s

    def __exit__(self, *_: object) -> None:
        self._turns -= 1
        if not self._turns:
            self._shared.clear()
            self._shared_bytes = 0
            self.ready.clear()

    def keep_ready(self, kind: str, ready: Ready) -> None:
        """Have a frame sent to all who stand where it begins, some of them at once."""
        if self._turns:
            self.ready[kind] = ready
        convoy = self.convoys.get((kind, ready.topic))
        if convoy is not None and convoy.seq == ready.seq:
            self.counters.records_delivered += ready.count * len(convoy)
            convoy.send(ready.frame, ready.next_seq)

    def seat(self, kind: str, topic: Topic, place: Standing, way: Way) -> Seat | None:
        """Let a watcher that waits be served with all others at its place, if they are there."""
        key = kind, topic
        convoy = self.convoys.get(key)
        if convoy is None:
            convoy = Convoy(place.seq, on_empty=lambda: self.convoys.pop(key))
            self.convoys[key] = convoy
        return convoy.join(place, way) if convoy.seq == place.seq else None

    def step(self, topic: Topic, seq: int, options: Options, *, fresh: bool) -> Step | None:
        """Return what comes after a seq; None if it must be fetched: see `fetch`."""
        key = topic.id, seq, fresh, options.key
        step = self._shared.get(key)
        if step is not None:
            return step
        if self.engine.touches_cold(topic, seq, options.request.from_ts):
            return None
        page = self.engine.read(topic, _request(options, seq))
        step = self._encode(page, seq, fresh=fresh)
        size = len(step.record_body)
        if self._turns and len(self._shared) < MAX_SHARED and size < MAX_SHARED_BYTES:
            if self._shared_bytes + size > MAX_SHARED_BYTES:
                self._shared.clear()
                self._shared_bytes = 0
            self._shared[key] = step
            self._shared_bytes += size
        return step

    def fetch(
        self,
        topic: Topic,
        seq: int,
        options: Options,
        *,
        fresh: bool,
        done: Callable[[Step | TopicsError], None],
    ) -> None:
        """Read from the cold tier, beside everybody else; `done` is called on this thread."""

        def got(page: Page | TopicsError) -> None:
            done(page if isinstance(page, TopicsError) else self._encode(page, seq, fresh=fresh))

        self._read_cold(topic, _request(options, seq), got)

    def _encode(self, page: Page, seq: int, *, fresh: bool) -> Step:
        self.encodings += 1
        return Step(page, from_seq=seq, fresh=fresh)


def _filter_key(request: DiffRequest) -> str:
    if not (request.nodes or request.match):
        return ""
    digest = hashlib.blake2b(repr(request.match).encode(), digest_size=16)
    for node in request.nodes:
        digest.update(b"%d:%b" % (len(node), node))
    return digest.hexdigest()


def _request(options: Options, seq: int) -> DiffRequest:
    return msgspec.structs.replace(options.request, from_seq=seq)
