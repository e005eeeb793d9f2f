"""The calls to a server: patient while it is away, clear when it refuses, silent about keys."""

import json
from collections.abc import Callable

import httpx
import pytest

from topics.errors import ServerRefused, TopicNotFound, TopicRecreated
from topics.pipeline.catalog import ServerCatalog
from topics.pipeline.offsets import Part
from topics.pipeline.options import Token
from topics.pipeline.server import Server
from topics.testing.manual_clock import ManualClock

Answer = Callable[[httpx.Request], httpx.Response]


def open_server(answer: Answer) -> Server:
    return Server(
        "http://h", Token("secret"), clock=ManualClock(), transport=httpx.MockTransport(answer)
    )


def refusal(status: int, code: str, **detail: object) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": "no", "detail": detail}})


def test_a_busy_or_absent_server_is_asked_again() -> None:
    answers = iter([429, 503, None, 200])

    def answer(_: httpx.Request) -> httpx.Response:
        status = next(answers)
        if status is None:
            raise httpx.ConnectError("refused")
        if status == 200:
            return httpx.Response(200, json={"count": 2, "deduped": False})
        return httpx.Response(status, headers={"Retry-After": "1"}, json={})

    assert open_server(answer).append("a", b"{}") == 2


def test_patience_ends_and_says_for_what_it_waited() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ServerRefused, match=r"GET /v0/topics/a for 60 s: ConnectError") as refused:
        open_server(answer).topic("a")
    assert "secret" not in str(refused.value)


def test_a_repeat_wrote_nothing() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"count": 2, "deduped": True})

    assert open_server(answer).append("a", b"{}") == 0


def test_the_key_goes_into_the_header_and_nowhere_else() -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.headers["Authorization"], str(request.url)))
        return refusal(403, "forbidden")

    with pytest.raises(ServerRefused, match="403 forbidden") as refused:
        open_server(answer).manifest("a", pin_ms=5)
    assert seen == [("Bearer secret", "http://h/v0/topics/a/segments?pin_ms=5")]
    assert "secret" not in str(refused.value)


def test_refusals_become_errors_that_tell_what_happened() -> None:
    with pytest.raises(TopicNotFound, match="'a'"):
        open_server(lambda _: refusal(404, "topic_not_found")).topic("a")
    with pytest.raises(TopicRecreated):
        open_server(
            lambda _: refusal(409, "topic_exists_incompatible", reason="recreated")
        ).read_range("a", epoch=1, from_seq=0, to_seq=1, max_bytes=1)
    with pytest.raises(ServerRefused, match="400 unknown: <html>"):
        open_server(lambda _: httpx.Response(400, text="<html>")).topic("a")


def topic(name: str, **more: object) -> dict[str, object]:
    state = {"topic": name, "head_seq": 4, "earliest_seq": 1, "count": 4, "bytes": 40, "epoch": 7}
    return state | more


def test_a_prefix_is_listed_page_by_page_and_partitions_are_topics_of_their_own() -> None:
    partitions = [{"partition": n, "topic": f"b-{n}"} for n in range(2)]

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v0/topics":
            if "cursor" in request.url.params:
                return httpx.Response(200, json={"topics": [{"topic": "b-0"}, {"topic": "gone"}]})
            listed = [{"topic": "a"}, {"topic": "b"}]
            return httpx.Response(200, json={"topics": listed, "next_cursor": "x"})
        name = path.rpartition("/")[2]
        if name == "gone":
            return refusal(404, "topic_not_found")
        more = {"partitions": partitions} if name == "b" else {}
        return httpx.Response(200, json=topic(name, **more))

    states = ServerCatalog(open_server(answer)).states(["*"])
    assert [state.part for state in states] == [
        Part("a", "a"), Part("b-0", "b", 0), Part("b-1", "b", 1),
    ]  # fmt: skip
    assert states[0].record_bytes == 10


def test_progress_is_committed_to_a_group() -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={})

    open_server(answer).commit_group("g", {"a": {"0": 5}})
    assert seen == [("/v0/groups/g/commit", {"offsets": {"a": {"0": 5}}})]
