"""A reader goes on where it was, whatever happens to the server."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.faces import DEADLINE_S

from topics.client import AsyncTopics, Topics
from topics.model.diff import Record
from topics.testing.server_process import ServerProcess

LIVES = 3
BATCH = 40


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(str(tmp_path / "data")) as process:
        yield process


def write_and_kill(server: ServerProcess) -> None:
    """Write through several lives of the server; every write is acknowledged in the end."""
    with Topics(server.url) as client:
        for life in range(LIVES):
            for n in range(BATCH):
                number = life * BATCH + n
                client.append("t", [{"data": number}], idempotency_key=str(number))
            server.kill9()
            server.start()


@pytest.mark.crash
def test_a_tail_survives_kills_and_neither_skips_nor_repeats(mortal: ServerProcess) -> None:
    with Topics(mortal.url) as client:
        client.create("t", durability="fsync")
        items = client.topic("t").tail(from_seq=0, limit=7)
        killer = threading.Thread(target=write_and_kill, args=(mortal,))
        killer.start()
        got: list[tuple[int, Any]] = []
        for item in items:
            if isinstance(item, Record):
                got.append((item.seq, item.data))
            if len(got) == LIVES * BATCH:
                break
        killer.join(DEADLINE_S)
    assert [data for _, data in got] == list(range(LIVES * BATCH))
    assert [seq for seq, _ in got] == sorted({seq for seq, _ in got})


@pytest.mark.crash
def test_an_awaited_tail_survives_kills(mortal: ServerProcess) -> None:
    async def read() -> list[Any]:
        got: list[Any] = []
        async with AsyncTopics(mortal.url) as client:
            await client.create("t", durability="fsync")
            work = asyncio.create_task(asyncio.to_thread(write_and_kill, mortal))
            async for item in client.topic("t").tail(from_seq=0):
                if isinstance(item, Record):
                    got.append(item.data)
                if len(got) == LIVES * BATCH:
                    break
            await work
        return got

    assert asyncio.run(read()) == list(range(LIVES * BATCH))
