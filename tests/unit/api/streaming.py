"""A server in this process, and clients that read its streams byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from topics.api.auth import parse_keys
from topics.api.server import Server
from topics.config import ServerConfig

DEADLINE_S = 10.0


class Event:
    """One frame of a stream; a comment has only `comment`."""

    def __init__(self, text: str) -> None:
        self.kind = self.id = self.comment = ""
        self.data: Any = None
        for line in text.split("\n"):
            name, _, value = line.partition(": ")
            if name == "event":
                self.kind = value
            elif name == "id":
                self.id = value
            elif name == "data":
                self.data = msgspec.json.decode(value)
            elif name == "":
                self.comment = value

    @property
    def seqs(self) -> list[int]:
        return [record["$seq"] for record in self.data["records"]]


class EventReader:
    """An open event stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self._text = ""

    async def read_head(self) -> None:
        head = await within(self.reader.readuntil(b"\r\n\r\n"))
        first, *lines = head.decode().strip().split("\r\n")
        self.status = int(first.split(" ")[1])
        for line in lines:
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value

    async def next_text(self) -> str:
        """Return the next block of lines; '' at the end of the stream."""
        while "\n\n" not in self._text:
            chunk = await within(self._read_chunk())
            if not chunk:
                return ""
            self._text += chunk.decode()
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def next(self) -> Event:
        """Return the next frame, heartbeats and the retry line left out."""
        while True:
            block = await self.next_text()
            if block == "" or block.startswith("event: "):
                return Event(block)

    async def _read_chunk(self) -> bytes:
        size = int(await self.reader.readline() or b"0", 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def close(self) -> None:
        self.writer.close()


class Place:
    """A running server and how to talk to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.app = server.app
        self.port = server.port
        self.writers: list[asyncio.StreamWriter] = []

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,  # noqa: ANN401 - any JSON
        **headers: str,
    ) -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        payload = b"" if body is None else msgspec.json.encode(body)
        writer.write(self._head(method, path, len(payload), headers) + payload)
        raw = await within(reader.read())
        writer.close()
        head, _, answer = raw.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), msgspec.json.decode(answer)

    async def append(self, topic: str, *data: Any, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        records = [{"data": value, **fields} for value in data]
        status, answer = await self.call("POST", f"/v0/topics/{topic}", {"records": records})
        assert status in (200, 201), answer
        return answer  # type: ignore[no-any-return] # a JSON object

    async def watch(self, topics: dict[str, Any], *, query: str = "", **fields: Any) -> str:  # noqa: ANN401 - any JSON
        status, answer = await self.call("POST", "/v0/watch" + query, {"topics": topics, **fields})
        assert status == 200, answer
        return str(answer["stream_url"])

    async def stream(self, url: str, *, rcvbuf: int = 0, **headers: str) -> EventReader:
        reader, writer = await self._connect(rcvbuf)
        headers.setdefault("Accept", "text/event-stream")
        writer.write(self._head("GET", url, 0, headers))
        self.writers.append(writer)
        stream = EventReader(reader, writer)
        await stream.read_head()
        return stream

    async def _connect(self, rcvbuf: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        import socket  # noqa: PLC0415 - only for readers with a small window

        sock = socket.socket()
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.setblocking(False)  # noqa: FBT003 - the name of the call says it
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return await asyncio.open_connection(sock=sock, limit=rcvbuf or 2**16)

    def _head(self, method: str, path: str, size: int, headers: dict[str, str]) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        if method != "GET":
            lines += ["Content-Type: application/json", f"Content-Length: {size}"]
        if headers.get("Accept") != "text/event-stream":
            lines.append("Connection: close")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()


async def within(work: Coroutine[Any, Any, Any], seconds: float = DEADLINE_S) -> Any:  # noqa: ANN401 - what the work gives
    async with asyncio.timeout(seconds):
        return await work


async def until(true: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
    """Wait for a state of the server that it has no event for."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(
    path: Path,
    *,
    keys: str = "",
    **settings: Any,  # noqa: ANN401 - settings of ServerConfig
) -> AsyncIterator[Place]:
    config = ServerConfig(data_dir=str(path), port=0, wal_shards=1, drain_ms=500, **settings)
    logged: list[str] = []
    server = Server(config, parse_keys(keys), write_log=logged.append)
    await server.listen()
    await server.open_log()
    place = Place(server)
    try:
        yield place
    finally:
        await server.stop()
        for writer in place.writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    assert [line for line in logged if '"bug"' in line] == []


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())
