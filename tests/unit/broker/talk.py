"""A listener in this process, on a disk and a clock that the test holds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress

from topics.aio import AsyncLog
from topics.api.auth import parse_keys
from topics.broker.listener import BrokerListener
from topics.clock import SystemClock
from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import TopicsError
from topics.testing.hostile_disk import HostileDisk

DEADLINE_S = 10.0


class Talk:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *lines: str) -> None:
        self.writer.write("".join(line + "\n" for line in lines).encode())

    async def read(self) -> str:
        """Return the next reply; nothing where the other side has hung up."""
        try:
            line = await asyncio.wait_for(self._reader.readline(), DEADLINE_S)
        except ConnectionError:
            return ""
        return line.decode().rstrip("\n")

    async def ask(self, line: str) -> str:
        self.send(line)
        return await self.read()


class Broker:
    """What the test holds."""

    def __init__(self, log: AsyncLog, listener: BrokerListener, disk: HostileDisk) -> None:
        self.log = log
        self.listener = listener
        self.disk = disk
        self.reported: list[TopicsError] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Talk]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.listener.port, limit=1 << 22
        )
        try:
            yield Talk(reader, writer)
        finally:
            writer.close()


def with_broker(
    scenario: Callable[[Broker], Awaitable[None]],
    *,
    background: bool = True,
    breaks_disk: bool = False,
    **settings: object,
) -> None:
    """Run a scenario against a fresh log; one whose disk broke cannot be closed cleanly."""

    async def main() -> None:
        config = ServerConfig(wal_shards=1, wal_file_bytes=65_536, **settings)  # type: ignore[arg-type] # any setting
        disk = HostileDisk()
        log = AsyncLog(Log(config, disk=disk, background=background))
        reported: list[TopicsError] = []
        listener = BrokerListener(
            config, parse_keys(""), clock=SystemClock(), report=reported.append
        )
        await listener.listen()
        await listener.open(log)
        broker = Broker(log, listener, disk)
        broker.reported = reported
        try:
            await scenario(broker)
        finally:
            await listener.close()
            with suppress(TopicsError) if breaks_disk else nullcontext():
                await log.close()

    asyncio.run(main())
