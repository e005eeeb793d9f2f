"""How a watch goes on through breaks: a coroutine without I/O that both faces drive."""

from collections.abc import Generator
from random import Random
from typing import Any

from msgspec import Struct

from topics.client.failures import failure_of
from topics.client.request import Request, Response
from topics.client.retry import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Pause,
    Send,
    attempt,
    may_repeat,
    plan_pause,
)
from topics.client.sse import EventParser
from topics.client.watching import Ended, Watching
from topics.clock import Clock
from topics.errors import RouteNotFound, TopicsError, Unreachable
from topics.model.stream import WatchItem


class Open(Struct, frozen=True):
    """Open a stream; answer with None, or with why there is none."""

    request: Request


class Read(Struct, frozen=True):
    """Read from the stream; answer with bytes, or Unreachable."""

    timeout_s: float


class Give(Struct, frozen=True):
    """Hand these out, all of them, before the next step."""

    items: list[WatchItem]


Step = Send | Pause | Open | Read | Give
Steps = Generator[Step, Any, None]


class Patience(Struct, frozen=True, kw_only=True):
    """How long one try may take, all tries at the start, and all while the server is away."""

    timeout_s: float
    start_s: float
    away_s: float


class _Away:
    """Since when nothing came, and how long to wait before the next try."""

    def __init__(self, patience: Patience, clock: Clock, random: Random) -> None:
        self.patience = patience
        self.clock = clock
        self.random = random
        self.end()

    def end(self) -> None:
        """Note that the server is there."""
        self._since_s = self.clock.monotonic_s()
        self._pause_s = FIRST_PAUSE_S

    def pause(self, error: TopicsError, *, asked_s: float | None) -> Pause:
        """Return the next pause; raise the error if there were enough of them."""
        pause_s = self._pause_s * (0.5 + self.random.random() / 2)
        wait_s = plan_pause(error, asked_s=asked_s, pause_s=pause_s)
        if self.clock.monotonic_s() + wait_s > self._since_s + self.patience.away_s:
            raise error
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return Pause(wait_s)


def follow(watching: Watching, patience: Patience, *, clock: Clock, random: Random) -> Steps:
    """Yield what to do next, until a watch is over; raise when there is no use in trying on."""
    away = _Away(patience, clock, random)
    yield from _make(watching, away, retry_for_s=patience.start_s)
    while not watching.done:
        if watching.is_lost:
            yield from _make(watching, away, retry_for_s=patience.away_s)
        outcome: Response | Unreachable | None = yield Open(watching.stream())
        if outcome is None:
            lost = yield from _read(watching, away)
            if lost is not None:
                asked_s = lost.retry_after_s if isinstance(lost, Ended) else None
                yield away.pause(lost, asked_s=asked_s)
            continue
        error = _refusal(outcome)
        if isinstance(error, RouteNotFound):
            watching.lose()
        elif not may_repeat(error, repeatable=True):
            raise error
        asked_s = outcome.retry_after_s if isinstance(outcome, Response) else None
        yield away.pause(error, asked_s=asked_s)


def _make(watching: Watching, away: _Away, *, retry_for_s: float) -> Steps:
    call = watching.make()
    answer = yield from attempt(
        call,
        timeout_s=away.patience.timeout_s,
        retry_for_s=retry_for_s,
        clock=away.clock,
        random=away.random,
    )
    items = list(watching.made(call.decode(answer.body)))
    if items:
        yield Give(items)


def _read(watching: Watching, away: _Away) -> Generator[Step, Any, Unreachable | None]:
    """Give out what comes; return why nothing more does, None if the watch is over."""
    parser = EventParser()
    while True:
        data: bytes | Unreachable = yield Read(watching.wanted.silence_s)
        if isinstance(data, Unreachable):
            return data
        for event in parser.feed(data):
            try:
                items = list(watching.take(event))
            except Ended as ended:
                return ended
            away.end()
            if items:
                yield Give(items)
            if watching.done:
                return None


def _refusal(outcome: Response | Unreachable) -> TopicsError:
    if isinstance(outcome, Unreachable):
        return outcome
    error = failure_of(outcome, name="")
    return error or TopicsError("the server's answer is no stream of events")
