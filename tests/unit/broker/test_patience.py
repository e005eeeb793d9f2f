"""How long a connection may keep the server waiting, on a clock that the test holds."""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from tests.unit.api.wire import Wire

from topics.aio import AsyncLog
from topics.api.auth import parse_keys
from topics.broker.desk import Desk
from topics.broker.session import Session
from topics.config import ServerConfig
from topics.embedded import Log
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

CONFIG = ServerConfig(wal_shards=1, wal_file_bytes=65_536)


class Line(Wire):
    """A wire under a session, and the clock that it lives by."""

    def __init__(self, log: AsyncLog, *, keys: str = "", high_water: int = 1 << 30) -> None:
        super().__init__(high_water=high_water)
        self.clock = ManualClock()
        self.options: list[tuple[int, ...]] = []
        desk = Desk(log, parse_keys(keys), config=CONFIG, clock=self.clock, report=lambda _: None)
        self.session = Session(desk, on_gone=lambda _: None)
        self.protocol = self.session
        self.session.connection_made(cast("asyncio.Transport", self))

    def get_extra_info(self, name: str) -> "Line | None":
        return self if name == "socket" else None

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)

    def wait(self, ms: int) -> bool:
        """Let time pass; tell whether the connection is still there."""
        self.clock.advance_ms(ms)
        self.session.check_patience(self.clock.monotonic_s())
        return not self.aborted


def with_log(scenario: Callable[[AsyncLog], None]) -> None:
    async def main() -> None:
        log = AsyncLog(Log(CONFIG, disk=HostileDisk(), background=False))
        scenario(log)
        await log.close()

    asyncio.run(main())


def test_a_quiet_peer_may_stay_and_half_a_line_may_not() -> None:
    def scenario(log: AsyncLog) -> None:
        line = Line(log)
        assert line.options == [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        assert line.wait(100 * CONFIG.idle_timeout_ms)
        line.session.data_received(b"V1|1|OFF")
        assert line.wait(CONFIG.idle_timeout_ms - 1)
        line.session.data_received(b"SET|g ")
        assert line.wait(CONFIG.idle_timeout_ms - 1)
        assert not line.wait(2)

    with_log(scenario)


def test_a_stranger_has_the_time_of_a_head_however_much_it_talks() -> None:
    def scenario(log: AsyncLog) -> None:
        line = Line(log, keys="secret")
        line.session.data_received(b"V1|1|OFFSET|g t 0\n")
        assert line.take().startswith(b"V1|1|ERR|BAD_REQUEST|")
        assert line.wait(CONFIG.head_timeout_ms - 1)
        line.session.data_received(b"V1|1|AUTH|guess\n")
        assert not line.wait(2)
        known = Line(log, keys="secret")
        known.session.data_received(b"V1|1|AUTH|secret\n")
        assert known.take() == b"V1|1|OK\n"
        assert known.wait(100 * CONFIG.head_timeout_ms)

    with_log(scenario)


def test_who_reads_slowly_may_stay_and_who_reads_nothing_may_not() -> None:
    def scenario(log: AsyncLog) -> None:
        line = Line(log, high_water=100)
        line.session.data_received(b"V1|1|FLY|\n" * 10)
        assert line.unread > 100
        taken = line.sent
        line.session.data_received(b"V1|1|FLY|\n" * 10)
        assert line.sent == taken  # nothing more is done for it now
        for _ in range(10):
            line.unread -= 1
            assert line.wait(CONFIG.slow_reader_ms)
        assert not line.wait(CONFIG.slow_reader_ms + 1)

    with_log(scenario)


def test_who_hangs_up_halfway_and_does_not_read_the_rest_may_not_stay() -> None:
    async def main() -> None:
        log = AsyncLog(Log(CONFIG, disk=HostileDisk(), background=False))
        line = Line(log)
        line.session.data_received(b"V1|1|FLY|\n")
        assert line.session.eof_received()
        await asyncio.sleep(0)  # its turn
        assert line.closed
        assert line.wait(CONFIG.slow_reader_ms)
        assert not line.wait(1)
        await log.close()

    asyncio.run(main())
