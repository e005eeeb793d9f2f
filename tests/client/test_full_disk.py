"""A disk without room is told by its own error, in the process and over HTTP."""

import asyncio

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
