"""What a watch does next, without a network: a script plays the server."""

import json
import math
from base64 import urlsafe_b64encode
from random import Random
from typing import Any

import pytest

from topics.client.request import Response
from topics.client.retry import Pause, Send
from topics.client.watch_flow import Give, Open, Patience, Read, Step, follow
from topics.client.watching import MAX_ID_BYTES, Wanted, Watching
from topics.errors import TopicsError, Unauthorized, Unreachable
from topics.model.stream import CaughtUp, TopicDeleted
from topics.testing.manual_clock import ManualClock

LOST = Unreachable("lost", sent=True)


class Played:
    """A watch whose server is the test."""

    def __init__(self, starts: dict[str, int | None], **options: Any) -> None:  # noqa: ANN401
        wanted = Wanted(
            starts=starts,
            limit=1,
            node=(),
            match=None,
            until_caught_up=options.get("until_caught_up", False),
            heartbeat_ms=15_000,
        )
        patience = Patience(timeout_s=9.0, start_s=0.0, away_s=options.get("away_s", math.inf))
        self.clock = ManualClock()
        self._steps = follow(Watching(wanted), patience, clock=self.clock, random=Random(1))
        self.step: Step = next(self._steps)

    def answer(self, outcome: object) -> Step:
        self.step = self._steps.send(outcome)
        return self.step

    def make(self, topics: dict[str, int], *, wid: str = "w") -> Step:
        """Answer the request for a session."""
        assert isinstance(self.step, Send)
        places = {
            name: {"from_seq": seq, "head_seq": seq, "earliest_seq": 1}
            for name, seq in topics.items()
        }
        return self.answer(answered(200, {"wid": wid, "topics": places}))

    def asked(self) -> dict[str, Any]:
        """Return the topics that a session is asked for."""
        assert isinstance(self.step, Send)
        assert self.step.request.body is not None
        found: dict[str, Any] = json.loads(self.step.request.body)["topics"]
        return found

    def opened_with(self) -> str | None:
        """Return the id with which a stream is asked for."""
        assert isinstance(self.step, Open)
        return self.step.request.last_event_id

    def pause(self) -> float:
        assert isinstance(self.step, Pause)
        seconds = self.step.seconds
        self.clock.sleep(seconds)
        self.answer(None)
        return seconds


def answered(status: int, body: object) -> Response:
    return Response(status=status, retry_after_s=None, body=json.dumps(body).encode())


def refused(status: int, code: str) -> Response:
    return answered(status, {"error": {"code": code, "message": "no"}})


def event_id(cursors: dict[str, int]) -> str:
    text = json.dumps(cursors, separators=(",", ":")).encode()
    return urlsafe_b64encode(text).decode().rstrip("=")


def event(kind: str, cursors: dict[str, int] | None = None, **fields: object) -> bytes:
    line = "" if cursors is None else f"id: {event_id(cursors)}\n"
    return f"event: {kind}\n{line}data: {json.dumps(fields)}\n\n".encode()


def test_two_heartbeats_that_do_not_come_are_a_lost_connection() -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    step = played.answer(None)
    assert isinstance(step, Read)
    assert 30.0 < step.timeout_s < 40.0
    played.answer(LOST)
    assert played.pause() <= 0.05
    assert played.opened_with() == event_id({"t": 0})


def test_pauses_grow_while_nothing_comes_and_begin_anew_after_an_event() -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    pauses = []
    for _ in range(9):
        played.answer(LOST)
        pauses.append(played.pause())
    assert pauses[0] <= 0.05
    assert 1.0 <= pauses[-1] <= 2.0
    played.answer(None)
    played.answer(event("caught-up", {"t": 0}, topic="t", head_seq=0))
    played.answer(None)
    played.answer(LOST)
    assert played.pause() <= 0.05


def test_the_server_says_when_to_come_back() -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    played.answer(None)
    played.answer(event("error", code="shutting_down", error="stops", retry_after_ms=1500))
    assert played.pause() == 1.5
    assert isinstance(played.step, Open)


def test_one_that_ends_gives_up_after_its_time() -> None:
    played = Played({"t": 0}, until_caught_up=True, away_s=1.0)
    played.make({"t": 0})
    while played.clock.monotonic_s() < 0.4:
        played.answer(LOST)
        played.pause()
    played.clock.sleep(0.6)
    with pytest.raises(Unreachable):
        played.answer(LOST)


def test_nothing_to_catch_up_with_is_the_end() -> None:
    played = Played({"t*": 0}, until_caught_up=True)
    with pytest.raises(StopIteration):
        played.make({})


def test_a_session_that_is_gone_is_made_again_where_it_was() -> None:
    played = Played({"b": None, "a.*": None})
    assert played.asked() == {"b": {"tail": True}, "a.*": {"tail": True}}
    played.make({"b": 7, "a.1": 3, "a.2": 2})
    played.answer(None)
    cursors = {"b": 8, "a.1": 3, "a.2": 0, "@a.2": 0, "a.3": 1}
    played.answer(event("topic-deleted", cursors, topic="a.2", head_seq=2))
    assert played.step == Give([TopicDeleted(topic="a.2", head_seq=2)])
    played.answer(None)
    played.answer(LOST)
    played.pause()
    played.answer(refused(404, "not_found"))
    played.pause()
    assert played.asked() == {
        "b": {"from_seq": 8},
        "a.1": {"from_seq": 3},
        "a.3": {"from_seq": 1},
        "a.*": {"from_seq": 0},
    }
    played.make({"b": 8, "a.1": 3}, wid="second")
    assert played.step == Give([TopicDeleted(topic="a.3", head_seq=1)])
    step = played.answer(None)
    assert isinstance(step, Open)
    assert step.request.path == "/v0/watch/second"
    assert played.opened_with() is None


def test_an_id_too_long_for_a_header_goes_in_a_body() -> None:
    names = {f"{number}-{'n' * 200}": number for number in range(60)}
    played = Played({"*": 0})
    played.make(names)
    assert len(event_id(names)) > MAX_ID_BYTES
    assert played.opened_with() is None
    played.answer(None)
    played.answer(LOST)
    played.pause()
    assert played.asked() == {name: {"from_seq": seq} for name, seq in names.items()} | {
        "*": {"from_seq": 0}
    }


def test_catching_up_is_told_once_for_one_head() -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    played.answer(None)
    told = CaughtUp(topic="t", from_seq=0, head_seq=0)
    assert played.answer(event("caught-up", {"t": 0}, topic="t", head_seq=0)) == Give([told])
    played.answer(None)
    played.answer(LOST)
    played.pause()
    played.answer(None)
    again = played.answer(event("caught-up", {"t": 0}, topic="t", head_seq=0))
    assert isinstance(again, Read)


def test_an_event_that_nobody_knows_is_passed_over() -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    played.answer(None)
    assert isinstance(played.answer(event("weather", {"t": 1}, sun=True)), Read)


@pytest.mark.parametrize("code", ["internal", "unheard_of"])
def test_a_topic_that_cannot_be_read_ends_the_watch(code: str) -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    played.answer(None)
    with pytest.raises(TopicsError, match="damaged"):
        played.answer(event("error", code=code, error="damaged", topics=["t"]))


def test_a_key_that_is_no_longer_good_ends_the_watch() -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    with pytest.raises(Unauthorized):
        played.answer(refused(401, "unauthorized"))


def test_nonsense_in_an_event_is_told() -> None:
    played = Played({"t": 0})
    played.make({"t": 0})
    played.answer(None)
    with pytest.raises(TopicsError, match="cannot be read"):
        played.answer(b"event: record\ndata: {\n\n")
