"""When a call is sent again, told by the policy alone: no sockets, a clock set by hand."""

import math
from random import Random
from typing import Any

import msgspec
import pytest

from topics import errors
from topics.client.request import Call, Request, Response
from topics.client.retry import Pause, Send, attempt
from topics.testing.manual_clock import ManualClock

Outcome = Response | errors.Unreachable
OK = Response(status=200, retry_after_s=None, body=b"{}")
LOST = errors.Unreachable("gone", sent=True)
NOT_REACHED = errors.Unreachable("refused", sent=False)


def refusal(status: int, code: str, **detail: object) -> Response:
    body = {"error": {"code": code, "message": "no", "detail": detail}}
    return Response(status=status, retry_after_s=1.0, body=msgspec.json.encode(body))


THROTTLED = refusal(429, "throttled", retry_after_ms=250)
STARTING = refusal(503, "not_ready", replay_progress=0.5)
STOPPING = refusal(503, "shutting_down")
READ_ONLY = refusal(503, "not_ready")
PARTLY = refusal(429, "throttled", retry_after_ms=9, placements=[{"partition": 0}], failed=[1])
CROWDED = refusal(429, "throttled", limit="max_inflight_per_key", max=1)
PROXY = Response(status=503, retry_after_s=2.0, body=b"<html>")
FULL = refusal(429, "throttled", limit="max_topics", max=1)


class Trial:
    """Drives the policy with outcomes, in order; keeps what it did."""

    def __init__(self, *outcomes: Outcome, repeatable: bool, retry_for_s: float = 10.0) -> None:
        self.clock = ManualClock()
        self.sends = 0
        self.pauses: list[float] = []
        request = Request(method="POST", path="/v0/topics/t")
        call = Call(request=request, decode=bytes, repeatable=repeatable, wait_ms=500)
        self._attempts = attempt(
            call, timeout_s=2.0, retry_for_s=retry_for_s, clock=self.clock, random=Random(1)
        )
        self._outcomes = iter(outcomes)

    def run(self) -> Response:
        answer: Any = None
        try:
            while True:
                step = self._attempts.send(answer)
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.clock.sleep(step.seconds)
                    answer = None
                else:
                    assert isinstance(step, Send)
                    assert step.timeout_s == 2.5, "a call that waits gets its wait on top"
                    self.sends += 1
                    answer = next(self._outcomes)
        except StopIteration as end:
            response: Response = end.value
            return response


@pytest.mark.parametrize(
    "outcome",
    [NOT_REACHED, THROTTLED, STARTING, STOPPING, CROWDED],
    ids=["not reached", "throttled", "starting", "stopping", "crowded"],
)
@pytest.mark.parametrize("repeatable", [True, False])
def test_what_was_surely_not_done_is_sent_again(outcome: Outcome, repeatable: bool) -> None:  # noqa: FBT001 - a case
    trial = Trial(outcome, OK, repeatable=repeatable)
    assert trial.run() is OK
    assert trial.sends == 2


@pytest.mark.parametrize("outcome", [LOST, READ_ONLY, PARTLY], ids=["lost", "read only", "partly"])
def test_what_may_have_been_done_is_sent_again_only_if_that_is_harmless(outcome: Outcome) -> None:
    assert Trial(outcome, OK, repeatable=True).run() is OK
    trial = Trial(outcome, OK, repeatable=False)
    with pytest.raises(errors.TopicsError):
        trial.run()
    assert trial.sends == 1


@pytest.mark.parametrize(
    "outcome", [FULL, refusal(404, "topic_not_found"), refusal(500, "internal")]
)
def test_what_cannot_help_is_not_tried(outcome: Outcome) -> None:
    trial = Trial(outcome, OK, repeatable=True)
    with pytest.raises(errors.TopicsError):
        trial.run()
    assert (trial.sends, trial.pauses) == (1, [])


def test_a_server_is_given_the_time_it_asks_for() -> None:
    trial = Trial(THROTTLED, STOPPING, OK, repeatable=False)
    trial.run()
    assert trial.pauses[0] == pytest.approx(0.25)
    assert trial.pauses[1] == pytest.approx(1.0)


def test_pauses_grow_up_to_a_bound_and_end_before_the_deadline() -> None:
    trial = Trial(*[NOT_REACHED] * 100, repeatable=True, retry_for_s=30.0)
    with pytest.raises(errors.Unreachable):
        trial.run()
    assert trial.pauses[0] <= 0.05
    assert 1.0 <= max(trial.pauses) <= 2.0
    assert 27.0 <= sum(trial.pauses) <= 30.0


def test_a_patient_call_has_no_deadline() -> None:
    trial = Trial(*[LOST] * 500, OK, repeatable=True, retry_for_s=math.inf)
    assert trial.run() is OK
    assert trial.sends == 501


def test_a_write_that_is_partly_there_says_what_is() -> None:
    with pytest.raises(errors.PartlyWritten) as caught:
        Trial(PARTLY, repeatable=False).run()
    error = caught.value
    assert isinstance(error.cause, errors.Throttled)
    assert (error.placements, error.failed) == ([{"partition": 0}], [1])


def test_what_a_proxy_puts_off_is_asked_again_when_it_says_if_that_changes_nothing() -> None:
    trial = Trial(PROXY, OK, repeatable=True)
    assert trial.run() is OK
    assert trial.pauses == [2.0]
    with pytest.raises(errors.RetryLater):
        Trial(PROXY, OK, repeatable=False).run()
