"""The server's life: refuse exposure, listen, replay, serve, lose patience, drain."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import pytest
from tests.unit.api.wire import HEALTH, Answer, answers, post

from topics.aio import AsyncLog
from topics.api.auth import parse_keys
from topics.api.server import Server, check_exposure, is_loopback, serve
from topics.config import ServerConfig
from topics.errors import ConfigError, DirectoryLocked
from topics.testing.manual_clock import ManualClock

BODY = b'{"records":[{"data":1}]}'
READY = HEALTH.replace(b"health", b"ready")
PATIENCE_S = 10


class Client:
    """One connection to a server."""

    def __init__(self, server: Server) -> None:
        self._port = server.port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, data: bytes) -> Answer:
        self.writer.write(data)
        return await self.read()

    async def read(self) -> Answer:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return answers(head + await self.reader.readexactly(length))[0]

    async def ended(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()


def run(
    path: Path,
    scenario: Callable[[Server], Awaitable[None]],
    *,
    replay: bool = True,
    keys: str = "",
) -> list[str]:
    """Run a scenario on a listening server; return its log lines."""
    lines: list[str] = []

    async def main() -> None:
        config = ServerConfig(data_dir=str(path), port=0)
        server = Server(config, parse_keys(keys), write_log=lines.append)
        await server.listen()
        try:
            if replay:
                await server.open_log()
            await scenario(server)
        finally:
            await server.stop()

    asyncio.run(main())
    return lines


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_an_open_bind_without_keys_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_API_KEYS"):
        check_exposure(ServerConfig(host=host), parse_keys(""))
    check_exposure(ServerConfig(host=host), parse_keys("k"))
    check_exposure(ServerConfig(host=host, allow_insecure_no_auth=True), parse_keys(""))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
     ("0.0.0.0", False), ("localhost.example", False)],
)  # fmt: skip
def test_loopback_is_known(host: str, *, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def congestion_controls(path: Path) -> list[bytes]:
    """Return those of the connections that a server took."""
    found: list[bytes] = []

    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            await client.ask(HEALTH)
            for connection in server.app.connections:
                with socket.socket(fileno=os.dup(connection.descriptor)) as taken:  # type: ignore[attr-defined] # HTTP/1
                    found.append(congestion_control(taken))

    run(path, scenario, keys="k")  # without one, no other machine may be let in
    return found


def congestion_control(taken: socket.socket) -> bytes:
    return taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def test_connections_on_this_machine_are_sent_to_in_the_plainest_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as fresh:
        usual = congestion_control(fresh)
    assert congestion_controls(tmp_path) == [b"reno"]
    monkeypatch.setattr("topics.api.server.is_loopback", lambda _host: False)
    assert congestion_controls(tmp_path) == [usual], "elsewhere as the system does"


def test_until_the_log_is_replayed_requests_are_told_how_far_it_is(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        server.app.replay_progress = 0.25
        async with Client(server) as client:
            assert (await client.ask(HEALTH)).status == 200
            waiting = await client.ask(READY)
            assert waiting.status == 503
            assert waiting.headers["retry-after"] == "1"
            assert b'"replay_progress":0.25' in waiting.body
            assert (await client.ask(post("/v0/topics/a", BODY))).status == 503
            await server.open_log()
            assert (await client.ask(READY)).status == 200
            assert (await client.ask(post("/v0/topics/a", BODY))).status == 201

    run(tmp_path, scenario, replay=False)


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    async def write(server: Server) -> None:
        async with Client(server) as client:
            assert (await client.ask(post("/v0/topics/a", BODY))).status == 201

    async def read(server: Server) -> None:
        async with Client(server) as client:
            assert b'"data":1' in (await client.ask(post("/v0/topics/a/diff", b"{}"))).body

    run(tmp_path, write)
    run(tmp_path, read)


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        config = ServerConfig(data_dir=str(tmp_path / "other"), port=server.port)
        second = Server(config, parse_keys(""), write_log=print)
        with pytest.raises(ConfigError, match="cannot listen"):
            await second.listen()
        await second.stop()

    run(tmp_path, scenario, replay=False)


def test_a_directory_that_is_open_is_told_before_anybody_listens(tmp_path: Path) -> None:
    listening: list[Server] = []

    async def scenario(_: Server) -> None:
        with pytest.raises(DirectoryLocked, match="this process already has"):
            await serve(
                ServerConfig(data_dir=str(tmp_path), port=0),
                parse_keys(""),
                write_log=pytest.fail,
                on_listening=listening.append,
                on_ready=lambda _: None,
            )

    run(tmp_path, scenario)
    assert listening == []


def test_a_port_that_is_taken_leaves_the_directory_to_others(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        config = ServerConfig(data_dir=str(tmp_path / "other"), port=server.port)
        for _ in range(2):
            with pytest.raises(ConfigError, match="cannot listen"):
                await serve(
                    config,
                    parse_keys(""),
                    write_log=pytest.fail,
                    on_listening=lambda _: None,
                    on_ready=lambda _: None,
                )

    run(tmp_path, scenario, replay=False)


def test_a_stop_ends_idle_connections_and_answers_what_was_asked(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as idle, Client(server) as busy:
            await idle.ask(HEALTH)
            busy.writer.write(post("/v0/topics/new", BODY))
            await until(lambda: not all(c.is_idle for c in server.app.connections))
            await server.stop()
            assert (await busy.read()).status == 201
            assert await idle.ended() == b""
            assert await busy.ended() == b""

    run(tmp_path, scenario)


def sweep_after(tmp_path: Path, sent: bytes, *waits_ms: float) -> list[bytes]:
    """Return what a client got after each wait, by a clock of the test's own."""
    got: list[bytes] = []

    async def main() -> None:
        clock = ManualClock()
        config = ServerConfig(data_dir=str(tmp_path), port=0)
        server = Server(config, parse_keys(""), write_log=lambda _: None, clock=clock)
        await server.listen()
        async with Client(server) as client:
            client.writer.write(HEALTH)
            await client.read()
            client.writer.write(sent)
            (connection,) = server.app.connections
            await until(
                lambda: not sent or connection.is_reading_head or connection.is_reading_body
            )
            for wait_ms in waits_ms:
                clock.advance_ms(wait_ms)
                server._sweep_once()
                await asyncio.sleep(0)
                got.append(bytes(client.reader._buffer))  # type: ignore[attr-defined] # not yet read
            client.writer.write_eof()
            got.append(await client.ended())
        await server.stop()

    asyncio.run(main())
    return got


async def until(happened: Callable[[], bool]) -> None:
    """Turn the event loop until something happened, not for ever."""
    for _ in range(100_000):
        if happened():
            return
        await asyncio.sleep(0)
    pytest.fail("it did not happen")


@pytest.mark.parametrize(
    ("sent", "patience_ms", "status"),
    [
        (b"GET /", 5_000, b"408"),
        (post("/v0/topics/a", BODY)[:-1], 5_030, b"408"),
        (b"", 75_000, b""),
    ],
    ids=["head", "body", "idle"],
)  # fmt: skip
def test_patience_ends(tmp_path: Path, sent: bytes, patience_ms: int, status: bytes) -> None:
    before, *_, end = sweep_after(tmp_path, sent, patience_ms - 100, 200)
    assert before == b""
    assert end[9:12] == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    seen: list[str] = []

    async def main() -> None:
        await serve(
            ServerConfig(data_dir=str(tmp_path), port=0),
            parse_keys(""),
            write_log=seen.append,
            on_listening=lambda server: seen.append(server.url),
            on_ready=lambda _: os.kill(os.getpid(), number),
        )

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert seen[0].startswith("http://127.0.0.1:")
    assert [json.loads(line)["event"] for line in seen[1:]] == ["ready", "stopping"]


def test_a_signal_ends_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def open_log(*, progress: Callable[[float], None], **_: object) -> None:
        def replay() -> None:
            for _ in range(1_000):  # it would take ten seconds
                progress(0.5)
                time.sleep(0.01)

        await asyncio.get_running_loop().run_in_executor(None, replay)
        raise AssertionError("nobody has stopped the replay")

    monkeypatch.setattr(AsyncLog, "open", open_log)

    async def main() -> None:
        await serve(
            ServerConfig(data_dir=str(tmp_path), port=0),
            parse_keys(""),
            write_log=seen.append,
            on_listening=lambda _: os.kill(os.getpid(), signal.SIGTERM),
            on_ready=lambda _: pytest.fail("it was never ready"),
        )

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert [json.loads(line)["event"] for line in seen] == ["stopping"]


def test_a_log_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "meta").write_text("not a directory", encoding="utf-8")
    seen: list[str] = []

    async def main() -> None:
        await serve(
            ServerConfig(data_dir=str(tmp_path), port=0),
            parse_keys(""),
            write_log=seen.append,
            on_listening=lambda _: None,
            on_ready=lambda _: None,
        )

    with pytest.raises(Exception, match="meta"):
        asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert seen == []  # whoever serves says it, once
