"""How a handle reads, without I/O: it waits for its topic, and merges partitions into one stream.

The steps of `plan_reading` are what to ask (a page, a look at the topic), how long to pause, or
items to hand out. It is sent the answer of each, or the error. All faces drive the same ones.

Partitions are merged in rounds. Each begins with a look at their heads; what came up to there is
handed out by `ts`, then by partition, then by seq, and a loss before what comes after it.
Reference: docs/reference/partitions.md.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topics.errors import (
    RequestError,
    RetryLater,
    TopicExistsIncompatible,
    TopicNotFound,
    TopicPartitioned,
    TopicsError,
)
from topics.handles.absent import LOOK_S, Absence, Pause
from topics.handles.cursor import Cursor
from topics.handles.payload import Payload
from topics.model.diff import Page, Record, Tombstone
from topics.model.partitions import PartitionState
from topics.model.stream import CaughtUp, GroupRecord, GroupTombstone, Item, PageRequest
from topics.model.topics import TopicState

T = TypeVar("T")
LOGGER = logging.getLogger("topics.reader")
NEWS_S: Final = 0.2
"""How long between two looks at partitions that had nothing new."""
LANE_LIMIT_MIN: Final = 64
"""The pages of many partitions are in memory together: each is smaller, but not this small."""
Start = int | Mapping[str, int]
"""After which seq to begin; of a partitioned topic 0, or by the names of its partitions."""


class Look(Struct, frozen=True):
    """Ask for the state of a topic."""

    topic: str


Ask = PageRequest | Look | Pause
Steps = Generator[Ask | Iterator[Item[T]], Any, None]


def start_now(state: TopicState) -> Start:
    """Return where to begin for what comes from now on."""
    if state.partitions is None:
        return state.head_seq
    return {partition.topic: partition.head_seq for partition in state.partitions}


def plan_reading(
    payload: Payload[T], first: PageRequest, start: Start, *, until_caught_up: bool
) -> Steps[T]:
    """Yield all that a reader of one topic does, from the first page to the last."""
    whole = not isinstance(start, int)
    page: Page | None = None
    if isinstance(start, int):
        first = replace(first, from_seq=start)
        try:
            page = yield from _first_page(first)
        except TopicPartitioned:
            if start:
                raise
            whole = True
    if whole:
        merged = _Merged(payload, first, {} if isinstance(start, int) else start)
        yield from merged.read(until_caught_up=until_caught_up)
        return
    cursor = Cursor(payload, first, until_caught_up=until_caught_up)
    while page is not None:
        yield cursor.take(page)
        page = None if cursor.done else (yield from _page(cursor.request))


def _page(request: PageRequest) -> Generator[Ask, Any, Page]:
    outcome: Page | TopicsError = yield request
    if isinstance(outcome, TopicsError):
        raise outcome
    return outcome


def _first_page(request: PageRequest) -> Generator[Ask, Any, Page]:
    absence = Absence(LOGGER)
    while True:
        try:
            return (yield from _page(request))
        except TopicNotFound as missing:
            if not request.patient:
                raise
            absence.say(missing)
        yield Pause(LOOK_S)


class _Lane:
    """One partition: how far it was read, and what of it waits for its turn."""

    def __init__(self, number: int, request: PageRequest) -> None:
        self.number = number
        self.request = request
        self.done = False
        self._waiting: deque[tuple[int, Record | Tombstone]] = deque()

    @property
    def turn(self) -> tuple[int, int]:
        """When its next item is due: a loss before all records."""
        return self._waiting[0][0], self.number

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def has_news(self, head_seq: int) -> bool:
        behind = self.request.from_seq != head_seq  # lower: another life of the topic
        return not self.done and (behind or bool(self.request.until_ts))

    def fill(self, head_seq: int) -> Generator[Ask, Any, None]:
        """Read until something waits, or all up to this head was read."""
        while self.is_empty and not self.done:
            page = yield from _page(self.request)
            self._take(page)
            if self.request.from_seq >= head_seq or page.caught_up:
                return

    def pop_until(self, turn: tuple[int, int] | None) -> list[Record | Tombstone]:
        """Take out all that is due before the next lane."""
        found = []
        while self._waiting and (turn is None or self.turn < turn):
            found.append(self._waiting.popleft()[1])
        return found

    def _take(self, page: Page) -> None:
        if page.tombstone is not None:
            self._waiting.append((0, page.tombstone))
        self._waiting.extend((record.ts, record) for record in page.records)
        self.request = replace(self.request, from_seq=page.next_from_seq)
        self.done = bool(page.until_reached)


class _Merged(Generic[T]):
    """The partitions of one topic, also those that come later, as one stream."""

    def __init__(self, payload: Payload[T], first: PageRequest, start: Mapping[str, int]) -> None:
        self._payload = payload
        self._first = first
        self._start = start
        self._lanes: dict[int, _Lane] = {}

    def read(self, *, until_caught_up: bool) -> Steps[T]:
        is_live = False
        while True:
            state = yield from self._look()
            partitions = self._find(state)
            news = [(self._lanes[p.partition], p.head_seq) for p in partitions]
            news = [(lane, head_seq) for lane, head_seq in news if lane.has_news(head_seq)]
            yield from self._round(dict(news))
            if not is_live:
                yield iter([self._caught_up(state.head_seq)])
                is_live = True
            if until_caught_up or all(lane.done for lane in self._lanes.values()):
                return
            yield Pause(NEWS_S)

    def _look(self) -> Generator[Ask, Any, TopicState]:
        absence = Absence(LOGGER)
        while True:
            outcome: TopicState | TopicsError = yield Look(self._first.topic)
            match outcome:
                case TopicState():
                    return outcome
                case TopicNotFound() if self._first.patient and not self._lanes:
                    absence.say(outcome)
                case RetryLater() if self._first.patient:
                    pass
                case _:
                    raise outcome
            yield Pause(LOOK_S)

    def _find(self, state: TopicState) -> list[PartitionState]:
        """Return the partitions; each has its lane from now on."""
        if state.partitions is None:
            if self._lanes:
                raise TopicExistsIncompatible(f"topic {state.topic!r} has no partitions any more")
            raise RequestError(
                f"topic {state.topic!r} has no partitions: give from_seq as one number"
            )
        limit = max(self._first.limit // len(state.partitions), LANE_LIMIT_MIN)
        for partition in state.partitions:
            if partition.partition not in self._lanes:
                name, start = partition.topic, self._start.get(partition.topic, 0)
                request = replace(
                    self._first, topic=name, from_seq=start, limit=min(limit, self._first.limit)
                )
                self._lanes[partition.partition] = _Lane(partition.partition, request)
        return state.partitions

    def _round(self, heads: dict[_Lane, int]) -> Steps[T]:
        """Hand out what these lanes have up to their heads, in order."""
        due = []
        for lane, head_seq in heads.items():
            yield from lane.fill(head_seq)
            if not lane.is_empty:
                due.append((*lane.turn, lane))
        heapify(due)
        while due:
            *_, lane = heappop(due)
            found = lane.pop_until(due[0][:2] if due else None)
            yield (self._shown(lane, item) for item in found)
            if lane.is_empty and lane.request.from_seq < heads[lane]:
                yield from lane.fill(heads[lane])
            if not lane.is_empty:
                heappush(due, (*lane.turn, lane))

    def _shown(self, lane: _Lane, item: Record | Tombstone) -> Item[T]:
        topic, number = lane.request.topic, lane.number
        fields: dict[str, Any] = {"topic": topic, "partition": number}
        if isinstance(item, Tombstone):
            return GroupTombstone(**msgspec.structs.asdict(item), **fields)
        typed = self._payload.typed(topic, item)
        return GroupRecord(**msgspec.structs.asdict(typed), **fields)

    def _caught_up(self, head_seq: int) -> CaughtUp:
        read = sum(lane.request.from_seq for lane in self._lanes.values())
        return CaughtUp(topic=self._first.topic, from_seq=read, head_seq=head_seq)
