"""Networks fail in the middle: what is sent again, what is told, and what is never shown."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.bad_server import BadServer, reply, serving

from topics.client import AsyncTopics, Topics
from topics.errors import Closed, ConfigError, NotReady, TopicsError, Unreachable
from topics.model.append import Appended

SECRET = "sk-very-secret"
APPENDED = (
    b'{"topic":"t","first_seq":1,"last_seq":1,"head_seq":1,"count":1,"created":false,'
    b'"deduped":false,"new_field":1}'
)
RECORDS = [{"data": 1}]

Face = Callable[..., Appended]


@pytest.fixture(params=["plain", "awaited"])
def append(request: pytest.FixtureRequest) -> Face:
    """Append one record with a fresh client of either kind."""

    def plain(url: str, *, options: dict[str, Any] | None = None, **fields: str) -> Appended:
        with Topics(url, **(options or {})) as client:
            return client.append("t", RECORDS, idempotency_key=fields.get("idempotency_key"))

    def awaited(url: str, *, options: dict[str, Any] | None = None, **fields: str) -> Appended:
        async def run() -> Appended:
            async with AsyncTopics(url, **(options or {})) as client:
                return await client.append(
                    "t", RECORDS, idempotency_key=fields.get("idempotency_key")
                )

        return asyncio.run(run())

    return plain if request.param == "plain" else awaited


def hang_up_once(connection: socket.socket, number: int) -> None:
    if number == 1:
        connection.shutdown(socket.SHUT_RDWR)
    else:
        connection.sendall(reply(200, APPENDED))


def test_a_write_that_may_repeat_survives_a_lost_answer(append: Face) -> None:
    with serving(hang_up_once) as server:
        assert append(server.url, idempotency_key="k").first_seq == 1
        assert len(server.requests) == 2
        assert server.requests[0] == server.requests[1]


def test_a_write_without_a_key_is_not_sent_twice(append: Face) -> None:
    with serving(hang_up_once) as server:
        with pytest.raises(Unreachable) as caught:
            append(server.url)
        assert caught.value.sent
        assert len(server.requests) == 1


def test_a_write_is_sent_again_when_the_server_says_later(append: Face) -> None:
    body = b'{"error":{"code":"throttled","message":"x","detail":{"retry_after_ms":1}}}'

    def busy_once(connection: socket.socket, number: int) -> None:
        connection.sendall(reply(429, body) if number == 1 else reply(200, APPENDED))

    with serving(busy_once) as server:
        assert append(server.url).count == 1
        assert len(server.requests) == 2


def test_nobody_there_is_told_as_not_sent(append: Face) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Unreachable) as caught:
        append(url, options={"retry_for_s": 0.2, "token": SECRET})
    assert not caught.value.sent
    assert url in str(caught.value)


def test_silence_ends_with_the_timeout(append: Face) -> None:
    with serving(lambda _connection, _number: None) as server:
        with pytest.raises(Unreachable, match="timed out") as caught:
            append(server.url, options={"timeout_s": 0.1})
        assert caught.value.sent


@pytest.mark.parametrize(
    "answer",
    [
        b"220 smtp.example ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{",
    ],
    ids=["not HTTP", "cut short", "no length"],
)
def test_an_answer_that_is_none_is_told_as_lost(append: Face, answer: bytes) -> None:
    def script(connection: socket.socket, _number: int) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    with serving(script) as server, pytest.raises(Unreachable) as caught:
        append(server.url)
    assert caught.value.sent


@pytest.mark.parametrize("status", [200, 404, 500])
def test_an_answer_of_somebody_else_is_an_error_of_ours(append: Face, status: int) -> None:
    def script(connection: socket.socket, _number: int) -> None:
        connection.sendall(reply(status, b"<html>"))

    with serving(script) as server, pytest.raises(TopicsError):
        append(server.url)


def test_a_starting_server_is_told_with_its_progress(append: Face) -> None:
    body = b'{"error":{"code":"not_ready","message":"x","detail":{"replay_progress":0.25}}}'

    def script(connection: socket.socket, _number: int) -> None:
        connection.sendall(reply(503, body, b"Retry-After: 1"))

    with serving(script) as server, pytest.raises(NotReady) as caught:
        append(server.url, options={"retry_for_s": 0.0})
    assert caught.value.progress == 0.25


def test_the_token_goes_to_the_server_and_nowhere_else(
    append: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_TOKEN", SECRET)
    body = b'{"error":{"code":"unauthorized","message":"who are you"}}'

    def script(connection: socket.socket, _number: int) -> None:
        connection.sendall(reply(401, body))

    with serving(script) as server, pytest.raises(TopicsError) as caught:
        append(server.url)
    assert b"Authorization: Bearer " + SECRET.encode() in server.requests[0]
    assert SECRET not in server.requests[0].decode().partition("\r\n")[0]
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in repr(error)
        error = error.__cause__ or error.__context__


def test_a_client_shows_its_url_and_not_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_URL", "http://10.0.0.1:4000/")
    client = Topics(token=SECRET)
    assert repr(client) == "Topics('http://10.0.0.1:4000')"
    assert SECRET not in repr(vars(client))


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:4000",
        "ftp://x",
        "http://",
        "http://a:b@x",
        "http://x:port",
        "http://x?q=1",
        "http://a..b",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Topics(url)
    assert "a:b" not in str(caught.value)


def test_a_token_that_no_header_takes_is_refused_unseen() -> None:
    with pytest.raises(ConfigError) as caught:
        Topics(token=f"{SECRET}\r\nX-Evil: 1")
    assert SECRET not in str(caught.value)


def test_connections_are_used_again_but_not_those_that_were_closed() -> None:
    def script(connection: socket.socket, number: int) -> None:
        connection.sendall(reply(200, APPENDED))
        if number == 2:
            connection.shutdown(socket.SHUT_RDWR)

    with serving(script) as server, Topics(server.url) as client:
        for _ in range(4):  # no key: a try on a dead connection would be an error
            client.append("t", RECORDS)
            wait_until_closed(server, client)
        assert server.connections == 2


def wait_until_closed(server: BadServer, client: Topics) -> None:
    """Wait for the end of the stream to arrive after the second answer."""
    if len(server.requests) == 2:
        resting = client._transport._resting[0].socket
        resting.settimeout(5.0)
        assert resting.recv(1, socket.MSG_PEEK) == b""


def test_a_closed_client_says_so() -> None:
    client = Topics("http://127.0.0.1:9")
    client.close()
    with pytest.raises(Closed):
        client.health()
