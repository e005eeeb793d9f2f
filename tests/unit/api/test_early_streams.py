"""Event streams that are asked for before the log is replayed."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import pytest
from tests.unit.api.streaming import run, until, within

from topics.api import app as app_module
from topics.api.auth import parse_keys
from topics.api.exchange import Exchange
from topics.api.server import Server
from topics.config import ServerConfig

KEY = "early-key-0123456789"
WATCH = "/v0/watch/none"


class Door:
    """A server that listens and has not read its log, and those who ask it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.app = server.app
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def waiting(self) -> list[Exchange]:
        return list(self.app._early_streams)

    @property
    def requests(self) -> int:
        """How many requests of the key are under way."""
        return self.app.keyring.identify(KEY).requests

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        self._writers.append(writer)
        return reader, writer

    async def ask(
        self, path: str, *, accept: str = "text/event-stream", body: bytes = b""
    ) -> asyncio.StreamReader:
        reader, writer = await self.connect()
        head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
            f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        return reader

    def leave(self) -> None:
        """Let everybody leave."""
        while self._writers:
            self._writers.pop().close()


def at_the_door(
    path: Path,
    scenario: Callable[[Door], Coroutine[Any, Any, None]],
    *,
    max_inflight_per_key: int = 0,
) -> None:
    async def main() -> None:
        config = ServerConfig(data_dir=str(path), port=0, max_inflight_per_key=max_inflight_per_key)
        server = Server(config, parse_keys(KEY), write_log=lambda _: None)
        await server.listen()
        door = Door(server)
        try:
            await within(scenario(door))
        finally:
            door.leave()
            await server.stop()

    run(main)


async def status(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split()[1])


def test_they_are_answered_when_the_log_is_read_and_count_as_no_requests(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        asked = [await door.ask(WATCH) for _ in range(5)]
        await until(lambda: len(door.waiting) == 5)
        assert await status(await door.ask("/v0/metrics", accept="*/*")) == 200
        await door.server.open_log()
        assert [await status(one) for one in asked] == [404] * 5, "no watch has this name"
        assert not door.waiting
        await until(lambda: door.requests == 0)

    at_the_door(tmp_path, scenario, max_inflight_per_key=2)


def test_who_leaves_meanwhile_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "EARLY_STREAMS", 2)

    async def scenario(door: Door) -> None:
        for _ in range(3):
            await door.ask(WATCH, body=b"x" * 10_000)
            await until(lambda: len(door.waiting) == 1)
            assert door.waiting[0].body == b""
            door.leave()
            await until(lambda: not door.waiting)
        assert door.requests == 0
        asked = [await door.ask(WATCH) for _ in range(2)]
        await until(lambda: len(door.waiting) == 2)
        assert await status(await door.ask(WATCH)) == 503
        await door.server.open_log()
        assert [await status(one) for one in asked] == [404, 404]

    at_the_door(tmp_path, scenario)


def test_who_leaves_over_http2_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        _, writer = await door.connect()
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        peer.initiate_connection()
        head = [
            (":method", "GET"), (":scheme", "http"), (":authority", "127.0.0.1"),
            (":path", WATCH), ("accept", "text/event-stream"), ("authorization", f"Bearer {KEY}"),
        ]  # fmt: skip
        peer.send_headers(1, head, end_stream=True)
        writer.write(peer.data_to_send())
        await until(lambda: len(door.waiting) == 1)
        peer.reset_stream(1)
        writer.write(peer.data_to_send())
        await until(lambda: not door.waiting)
        assert door.requests == 0

    at_the_door(tmp_path, scenario)


def test_a_server_that_stops_before_it_is_ready_says_so(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        reader = await door.ask(WATCH)
        await until(lambda: len(door.waiting) == 1)
        stopping = asyncio.ensure_future(door.server.stop())
        assert await status(reader) == 503
        assert b"shutting_down" in await reader.readuntil(b"}}")
        door.leave()
        await stopping

    at_the_door(tmp_path, scenario)


def test_others_are_told_that_the_log_is_not_ready(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        assert await status(await door.ask(WATCH, accept="*/*")) == 503

    at_the_door(tmp_path, scenario)
