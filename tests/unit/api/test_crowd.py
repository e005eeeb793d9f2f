"""When every place for a connection is taken: who goes, who may come, and what he is told."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.api.test_server import READY, Client, until
from tests.unit.api.wire import HEALTH

from topics.api import server as server_module
from topics.api.auth import parse_keys
from topics.api.server import Server
from topics.broker.listener import BrokerListener
from topics.clock import SystemClock
from topics.config import ServerConfig
from topics.descriptors import plan_connections
from topics.errors import DiskFailed

WAIT = b"GET /v0/topics/jobs/work?node=n HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"


def run(
    path: Path, scenario: Callable[[Server], Awaitable[None]], *, most: int, keys: str = ""
) -> None:
    async def main() -> None:
        config = ServerConfig(
            data_dir=str(path), port=0, max_connections=most, allowed_hosts="*", wal_shards=1
        )
        server = Server(config, parse_keys(keys), write_log=print)
        await server.listen()
        try:
            await server.open_log()
            await scenario(server)
        finally:
            await server.stop()

    asyncio.run(main())


async def connect_from(server: Server, address: str) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
    return writer


def test_a_newcomer_gets_the_place_of_who_has_been_idle_for_longest(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as first, Client(server) as second:
            for client in (second, first, second):
                assert (await client.ask(HEALTH)).status == 200
            async with Client(server) as third:
                assert (await third.ask(HEALTH)).status == 200
                assert await first.ended() == b""
                assert (await second.ask(HEALTH)).status == 200
            assert (server.app.crowd.ended, server.app.crowd.refused) == (1, 0)

    run(tmp_path, scenario, most=2)


def test_who_finds_everybody_busy_is_told_to_come_again(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        log = server.app.ready_log
        await log.create("jobs", type="queue")
        async with Client(server) as worker:
            worker.writer.write(WAIT)
            assert (await worker.reader.readline()).startswith(b"HTTP/1.1 200")
            async with Client(server) as late:
                answer = await late.read()
                assert await late.ended() == b""
        assert answer.status == 503
        error = json.loads(answer.body)["error"]
        assert error["code"] == "not_ready"
        assert error["detail"] == {"limit": "max_connections", "max": 1}
        assert answer.headers["retry-after"] == "1"
        assert server.app.crowd.refused == 1
        await until(lambda: not server.app.connections)
        async with Client(server) as again:
            assert (await again.ask(READY)).status == 200

    run(tmp_path, scenario, most=1)


def test_an_address_that_takes_all_it_can_get_pays_for_it_alone(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as modest:
            assert (await modest.ask(HEALTH)).status == 200
            greedy = [await connect_from(server, "127.0.0.2") for _ in range(40)]
            assert (await modest.ask(HEALTH)).status == 200
            assert server.app.crowd.ended >= 40 - 8
            assert len(server.app.connections) <= 10
            for writer in greedy:
                writer.close()

    run(tmp_path, scenario, most=8)


def test_a_connection_that_speaks_http2_is_counted(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
        async with Client(server) as first:
            first.writer.write(preface)
            assert await first.reader.readexactly(9)
            assert len(server.app.crowd) == 1
            async with Client(server) as second:
                assert (await second.ask(HEALTH)).status == 200
                await first.ended()
                assert server.app.crowd.ended == 1

    run(tmp_path, scenario, most=1)


def test_a_shard_that_takes_no_writes_is_not_ready(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            assert (await client.ask(READY)).status == 200
            log = server.app.engine.shards[0].commit.log
            log.fail(DiskFailed("wal/wal-1.log: Input/output error"))
            answer = await client.ask(READY)
            error = json.loads(answer.body)["error"]
            assert (answer.status, error["code"]) == (503, "not_ready")
            assert error["detail"] == {"reason": "read_only"}
            assert "restart" in error["message"]
            assert not server.app.is_ready
            log.failed = None  # so that it closes as it began

    run(tmp_path, scenario, most=0)


def test_there_are_fewer_places_than_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "descriptor_limit", lambda: 1024)

    async def scenario(server: Server) -> None:
        assert server.app.crowd.most == plan_connections(1024, shards=1) == 584

    run(tmp_path, scenario, most=0)
    run(tmp_path, scenario, most=900)


def test_lines_and_requests_share_the_places(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        crowd = server.app.crowd
        broker = BrokerListener(
            ServerConfig(), parse_keys(""), clock=SystemClock(), report=print, crowd=crowd
        )
        await broker.listen()
        await broker.open(server.app.ready_log)
        async with Client(server) as client:
            await client.ask(HEALTH)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(b"V1|1|OFFSET|g t 0\n")
            assert (await reader.readline()).startswith(b"V1|1|OK")
            assert await client.ended() == b""
            assert (len(crowd), crowd.ended) == (1, 1)
            writer.close()
        await broker.close()

    run(tmp_path, scenario, most=1)


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /v0/health HTT",
        b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 60000\r\n\r\n{",
    ],
    ids=["half a head", "a body without a key"],
)
def test_who_sends_slowly_what_nobody_wants_holds_no_place(tmp_path: Path, begun: bytes) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as slow:
            slow.writer.write(begun)
            await until(lambda: any(c.received_bytes for c in server.app.connections))
            async with Client(server) as other:
                assert (await other.ask(HEALTH)).status == 200
            assert server.app.crowd.ended == 1

    run(tmp_path, scenario, most=1, keys="secret")
