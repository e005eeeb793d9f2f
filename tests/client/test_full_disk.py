"""A disk without room is told by its own error, in the process and over HTTP."""

import asyncio

import httpx
import pytest

from topics.client import AsyncTopics, Topics
from topics.errors import DiskFull
from topics.testing.forked_server import ForkedServer


def test_both_clients_raise_what_the_embedded_log_does(topics_server: ForkedServer) -> None:
    async def awaited() -> None:
        async with AsyncTopics(topics_server.url) as client:
            await client.append("t", [{"data": 3}])

    with Topics(topics_server.url) as client:
        client.append("t", [{"data": 1}])
        with topics_server.disk_full():
            with pytest.raises(DiskFull, match="no space left"):
                client.append("t", [{"data": 2}])
            with pytest.raises(DiskFull, match="no space left"):
                asyncio.run(awaited())
        asyncio.run(awaited())
        assert [record.data for record in client.diff("t").records] == [1, 3]


def test_the_server_says_how_much_is_free_and_what_to_do(
    topics_server: ForkedServer,
) -> None:
    with Topics(topics_server.url) as client:
        client.append("t", [{"data": 1}])
        with topics_server.disk_full():
            with pytest.raises(DiskFull):
                client.append("t", [{"data": 2}])
            with pytest.raises(DiskFull) as raised:
                client.append("t", [{"data": 2}])
            answer = httpx.post(
                f"{topics_server.url}/v0/topics/t", json={"records": [{"data": 2}]}, timeout=10
            )
            ready = httpx.get(f"{topics_server.url}/v0/ready", timeout=10)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (507, "disk_full")
        assert "delete topics or records" in error["message"]
        assert error["detail"]["reason"] == "disk_full"
        assert error["detail"]["free_bytes"] == raised.value.free_bytes == 0
        assert error["detail"]["needed_bytes"] == raised.value.needed_bytes
        assert (ready.status_code, ready.json()["disk_full"]) == (200, True)
        client.append("t", [{"data": 3}])
        assert "disk_full" not in httpx.get(f"{topics_server.url}/v0/ready", timeout=10).json()
