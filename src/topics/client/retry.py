"""When a call is sent again: the policy, as a coroutine without I/O that both faces drive.

What a server refused for now it did not do, so that may always be sent again. What was lost on the
way may have been done: only a repeatable call is sent again then.
"""

from collections.abc import Generator
from random import Random
from typing import Any

from msgspec import Struct

from topics.client.failures import failure_of
from topics.client.request import Call, Request, Response
from topics.clock import Clock
from topics.errors import (
    Closed,
    LimitReached,
    NotReady,
    PartlyWritten,
    RetryLater,
    ShardReadOnly,
    Throttled,
    TooManyFiles,
    TopicsError,
    Unreachable,
)

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
PASSING_LIMITS = {"max_connections", "max_inflight_per_key"}
"""Limits that free themselves; of the others something has to be removed first."""


class Send(Struct, frozen=True):
    """Send this, and wait that long for the answer."""

    request: Request
    timeout_s: float


class Pause(Struct, frozen=True):
    """Wait before the next try."""

    seconds: float


Attempts = Generator[Send | Pause, Response | Unreachable | None, Response]


def attempt(
    call: Call[Any], *, timeout_s: float, retry_for_s: float, clock: Clock, random: Random
) -> Attempts:
    """Yield what to do next until there is an answer; raise when there is no use in trying on."""
    deadline_s = clock.monotonic_s() + retry_for_s
    pause_s = FIRST_PAUSE_S
    while True:
        outcome = yield Send(call.request, timeout_s + call.wait_ms / 1000)
        assert outcome is not None
        if isinstance(outcome, Unreachable):
            error: TopicsError | None = outcome
            asked_s = None
        else:
            error = failure_of(outcome, name=call.name)
            if error is None:
                return outcome
            asked_s = outcome.retry_after_s
        assert error is not None
        wait_s = plan_pause(error, asked_s=asked_s, pause_s=pause_s * (0.5 + random.random() / 2))
        if not may_repeat(error, repeatable=call.repeatable):
            raise error
        if clock.monotonic_s() + wait_s > deadline_s:
            raise error
        yield Pause(wait_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def may_repeat(error: TopicsError, *, repeatable: bool) -> bool:
    """Tell whether the same call may be sent again."""
    match error:
        case Unreachable():
            return repeatable or not error.sent
        case PartlyWritten():  # the rest is written, and nothing twice
            return repeatable and may_repeat(error.cause, repeatable=True)
        case LimitReached():
            return error.limit in PASSING_LIMITS
        case Throttled() | NotReady() | Closed():
            return True
        case _:  # a write may be found after a restart; what a proxy says was perhaps done
            return repeatable and isinstance(error, RetryLater | ShardReadOnly | TooManyFiles)


def plan_pause(error: TopicsError, *, asked_s: float | None, pause_s: float) -> float:
    """Return how long to wait: what the server asked for, to the millisecond if it said so."""
    if isinstance(error, PartlyWritten):
        error = error.cause
    if isinstance(error, Throttled):
        return max(error.retry_after_ms / 1000, pause_s)
    return pause_s if asked_s is None else max(asked_s, pause_s)
