"""A server with keys: who may do what, and what others are told."""

import asyncio

import pytest

from topics.client import AsyncTopics, Topics
from topics.errors import Forbidden, Unauthorized
from topics.testing.server_process import ServerProcess

KEYS = "all-of-it,reader:read,team:rw:team-"


def test_a_key_opens_what_it_may(server: ServerProcess) -> None:
    with Topics(server.url, token="all-of-it") as client:
        client.append("orders", [{"data": 1}])
    with Topics(server.url, token="reader") as client:
        assert client.diff("orders").count == 1
        with pytest.raises(Forbidden):
            client.append("orders", [{"data": 2}])
    with Topics(server.url, token="team") as client:
        client.append("team-a", [{"data": 1}])
        assert client.topics() == ["team-a"]
        with pytest.raises(Forbidden):
            client.diff("orders")


@pytest.mark.parametrize("token", ["", "not-a-key"])
def test_without_a_key_nothing_opens(server: ServerProcess, token: str) -> None:
    with Topics(server.url, token=token) as client:
        assert client.health().status == "ok"
        with pytest.raises(Unauthorized):
            client.topics()


def test_the_environment_has_the_key(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_URL", server.url)
    monkeypatch.setenv("TOPICS_TOKEN", "reader")

    async def look() -> str:
        async with AsyncTopics() as client:
            return await client.metrics()

    assert "topics_ready 1" in asyncio.run(look())
