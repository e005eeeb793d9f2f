"""The calls to a server: patient while it is away, clear when it refuses, silent about keys."""

import json
from itertools import pairwise
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.client.bad_server import reply as http_reply
from tests.client.bad_server import serving
from tests.pipeline.answers import Answer, Answers, refusal, reply

from topics.client.request import Request, Response
from topics.errors import (
    ConfigError,
    PinNotFound,
    ServerRefused,
    TopicNotFound,
    TopicRecreated,
    Unreachable,
    UploadNotFound,
)
from topics.pipeline.catalog import ServerCatalog
from topics.pipeline.offsets import Part
from topics.pipeline.options import Token
from topics.pipeline.server import PAUSE_S, Server
from topics.testing.manual_clock import ManualClock


def open_server(answer: Answer, clock: ManualClock | None = None) -> Server:
    return Server(
        "http://h", Token("secret"), clock=clock or ManualClock(), transport=Answers(answer)
    )


def test_a_busy_or_absent_server_is_asked_again_when_it_says() -> None:
    answers = iter([429, 503, None, 200])
    clock = ManualClock()
    asked_s = []

    def answer(_: Request) -> Response:
        asked_s.append(clock.monotonic_s())
        status = next(answers)
        if status is None:
            raise Unreachable("refused")
        if status == 200:
            return reply({"count": 2, "deduped": False})
        return Response(status=status, retry_after_s=float(3), body=b"{}")

    assert open_server(answer, clock).append("a", b"{}") == 2
    pauses_s = [later - earlier for earlier, later in pairwise(asked_s)]
    assert pauses_s == pytest.approx([3.0, 3.0, PAUSE_S])


def test_patience_ends_and_says_for_what_it_waited() -> None:
    def answer(_: Request) -> Response:
        raise Unreachable("http://h cannot be reached")

    with pytest.raises(ServerRefused, match=r"GET /v0/topics/a for 60 s: http://h cannot") as told:
        open_server(answer).topic("a")
    assert "secret" not in str(told.value)


def test_a_repeat_wrote_nothing() -> None:
    assert open_server(lambda _: reply({"count": 2, "deduped": True})).append("a", b"{}") == 0


def test_the_key_goes_into_the_header_and_nowhere_else() -> None:
    """As bytes on a socket; the answer is a refusal, which does not show the key either."""
    body = b'{"error": {"code": "forbidden", "message": "no"}}'
    with serving(lambda sock, _: sock.sendall(http_reply(403, body))) as told:
        opened = Server(told.url, Token("secret"))
        with pytest.raises(ServerRefused, match="403 forbidden: no") as refused:
            opened.manifest("a", pin_ms=5)
        opened.close()
    line, *headers = told.requests[0].decode().splitlines()
    assert line == "GET /v0/topics/a/segments?pin_ms=5 HTTP/1.1"
    assert [header for header in headers if "secret" in header] == ["Authorization: Bearer secret"]
    assert "secret" not in str(refused.value)


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="characters that no key has") as refused:
        Server("http://h", Token("sec ret\n"))
    assert "ret" not in str(refused.value)


def test_the_environment_of_an_executor_gives_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_TOKEN", "no key at all\n")
    Server("http://h").close()


def test_refusals_become_errors_that_tell_what_happened() -> None:
    with pytest.raises(TopicNotFound, match="'a'"):
        open_server(lambda _: refusal(404, "topic_not_found")).topic("a")
    with pytest.raises(TopicRecreated):
        open_server(
            lambda _: refusal(409, "topic_exists_incompatible", reason="recreated")
        ).read_range("a", epoch=1, from_seq=0, to_seq=1, max_bytes=1)
    gone = str(UploadNotFound())
    with pytest.raises(UploadNotFound):
        open_server(lambda _: refusal(404, "not_found", said=gone)).abandon_upload("u")
    with pytest.raises(ServerRefused, match="404 not_found"):
        open_server(lambda _: refusal(404, "not_found", said=str(PinNotFound()))).release_pin("p")
    with pytest.raises(ServerRefused, match="400 invalid_request: the server answered"):
        open_server(lambda _: Response(status=400, retry_after_s=None, body=b"<html>")).topic("a")


def topic(name: str, **more: object) -> dict[str, object]:
    state = {"topic": name, "head_seq": 4, "earliest_seq": 1, "count": 4, "bytes": 40, "epoch": 7}
    return state | more


def test_a_prefix_is_listed_page_by_page_and_partitions_are_topics_of_their_own() -> None:
    partitions = [{"partition": n, "topic": f"b-{n}"} for n in range(2)]

    def answer(request: Request) -> Response:
        asked = urlsplit(request.path)
        if asked.path == "/v0/topics":
            if "cursor" in parse_qs(asked.query):
                return reply({"topics": [{"topic": "b-0"}, {"topic": "gone"}]})
            return reply({"topics": [{"topic": "a"}, {"topic": "b"}], "next_cursor": "x"})
        name = asked.path.rpartition("/")[2]
        if name == "gone":
            return refusal(404, "topic_not_found")
        more = {"partitions": partitions} if name == "b" else {}
        return reply(topic(name, **more))

    states = ServerCatalog(open_server(answer)).states(["*"])
    assert [state.part for state in states] == [
        Part("a", "a"), Part("b-0", "b", 0), Part("b-1", "b", 1),
    ]  # fmt: skip
    assert states[0].record_bytes == 10


def test_progress_is_committed_to_a_group() -> None:
    seen = []

    def answer(request: Request) -> Response:
        seen.append((request.path, json.loads(request.body or b"")))
        return reply({})

    open_server(answer).commit_group("g", {"a": {"0": 5}})
    assert seen == [("/v0/groups/g/commit", {"offsets": {"a": {"0": 5}}})]
