"""A thousand watchers, a hundred of which never read: memory is bounded, nobody else is slowed."""

import asyncio
import re
import socket
import time
from pathlib import Path

import httpx
import pytest
from tests.load.meters import median_ms, p99_ms, rss_bytes

from topics.testing.server_process import ServerProcess

READERS, SLEEPERS = 900, 100
BUFFER_BYTES = 256 * 1024
PAD = "x" * 16_000
FRAMES = 30
FAT_PAD = "y" * 200_000
FAT_RECORDS = 60
PAUSE_S = 0.15
SLACK_BYTES = 96 * 1024 * 1024
SETTINGS = {
    "TOPICS_STREAM_BUFFER_BYTES": str(BUFFER_BYTES),
    "TOPICS_SLOW_READER_MS": "6000",
    "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY": "0",
}
SENT = re.compile(rb'"sent":(\d+)')


class Reader(asyncio.Protocol):
    """Reads all the time and notes how long each record took."""

    def __init__(self, latencies_s: list[float]) -> None:
        self.frames = 0
        self._latencies_s = latencies_s

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        for sent in SENT.findall(data):
            self.frames += 1
            self._latencies_s.append((now_ns - int(sent)) / 1e9)


def head(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()


class Crowd:
    """All watchers of one server, and the one who writes."""

    def __init__(self, server: ServerProcess, client: httpx.AsyncClient) -> None:
        self.latencies_s: list[float] = []
        self.readers: list[Reader] = []
        self.sleepers: list[socket.socket] = []
        self._transports: list[asyncio.Transport] = []
        self._server = server
        self._client = client

    async def session(self, *topics: str) -> str:
        body = {"topics": {topic: {"tail": True} for topic in topics}}
        response = await self._client.post("/v0/watch", json=body)
        path: str = response.raise_for_status().json()["stream_url"]
        return path.removeprefix(self._server.url)

    async def add_reader(self) -> None:
        loop = asyncio.get_running_loop()
        transport, reader = await loop.create_connection(
            lambda: Reader(self.latencies_s), "127.0.0.1", self._server.port
        )
        transport.write(head(await self.session("t")))
        self._transports.append(transport)
        self.readers.append(reader)

    async def add_sleeper(self) -> None:
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect(("127.0.0.1", self._server.port))
        sleeper.sendall(head(await self.session("t", "fat")))
        self.sleepers.append(sleeper)

    async def write(self) -> None:
        """Append as a steady writer does, then wait until every reader has everything."""
        start = [reader.frames for reader in self.readers]
        for _ in range(FRAMES):
            body = {"records": [{"data": {"sent": time.monotonic_ns(), "pad": PAD}}]}
            (await self._client.post("/v0/topics/t", json=body)).raise_for_status()
            await asyncio.sleep(PAUSE_S)  # the rate of the load
        deadline_s = time.monotonic() + 30
        while any(r.frames < s + FRAMES for r, s in zip(self.readers, start, strict=True)):
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.05)

    async def write_fat(self) -> None:
        """Give the sleepers more than the kernel's buffers hold."""
        for _ in range(FAT_RECORDS):
            body = {"records": [{"data": FAT_PAD}]}
            (await self._client.post("/v0/topics/fat", json=body)).raise_for_status()

    def take_latencies(self) -> list[float]:
        taken, self.latencies_s[:] = list(self.latencies_s), []
        return taken

    async def streams(self) -> int:
        text = (await self._client.get("/v0/metrics")).text
        found = re.search(r"^topics_sse_connections (\d+)", text, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def close(self) -> None:
        for transport in self._transports:
            transport.abort()
        for sleeper in self.sleepers:
            sleeper.close()


async def measure(server: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30, trust_env=False) as client:
        for topic in ("t", "fat"):
            reply = await client.put(f"/v0/topics/{topic}", json={"cap_records": 100})
            reply.raise_for_status()
        crowd = Crowd(server, client)
        try:
            for _ in range(READERS):
                await crowd.add_reader()
            await crowd.write()
            before, memory = crowd.take_latencies(), rss_bytes(server)
            for _ in range(SLEEPERS):
                await crowd.add_sleeper()
            assert await crowd.streams() == READERS + SLEEPERS
            await crowd.write_fat()
            await crowd.write()
            await crowd.write()
            after, grown = crowd.take_latencies(), rss_bytes(server) - memory
            deadline_s = time.monotonic() + 30
            while await crowd.streams() > READERS:
                assert time.monotonic() < deadline_s, "a sleeper was never closed"
                await asyncio.sleep(0.2)
        finally:
            crowd.close()
    assert grown < SLEEPERS * BUFFER_BYTES + SLACK_BYTES
    assert median_ms(after) < 2 * median_ms(before) + 20
    assert p99_ms(after) < 2 * p99_ms(before) + 100


@pytest.mark.slow
def test_watchers_that_never_read_cost_the_others_nothing(tmp_path: Path) -> None:
    with ServerProcess(str(tmp_path / "data"), settings=SETTINGS) as server:
        asyncio.run(measure(server))
