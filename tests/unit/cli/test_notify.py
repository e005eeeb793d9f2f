"""What the service manager is told, and what it is not."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.cli.notify import Heartbeat, Notifier, from_environment
from topics.errors import ConfigError


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Listen as systemd does; return the socket and how the environment names it."""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        is_path = request.param == "path"
        listener.bind(name if is_path else f"\0topics-test-{os.getpid()}")
        listener.settimeout(5)
        yield listener, name if is_path else f"@topics-test-{os.getpid()}"


def test_words_arrive_in_one_datagram(manager: tuple[socket.socket, str]) -> None:
    listener, address = manager
    Notifier(address).ready("serving 3 topics")
    assert listener.recv(4096) == b"READY=1\nSTATUS=serving 3 topics"


def test_a_status_cannot_say_more_than_one_line(manager: tuple[socket.socket, str]) -> None:
    listener, address = manager
    Notifier(address).ready("one\nSTOPPING=1")
    assert listener.recv(4096) == b"READY=1\nSTATUS=one STOPPING=1"


def test_a_manager_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "nobody")).ready("serving")


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="NOTIFY_SOCKET"):
        Notifier("vsock:2:1234")


def test_the_environment_is_read_once_and_left_without_it() -> None:
    environ = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "3000000", "HOME": "/"}
    assert from_environment(environ).watchdog_s == 3.0
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize(
    "environ",
    [
        {"WATCHDOG_USEC": "3000000"},
        {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"},
    ],
)
def test_a_watchdog_that_is_not_ours_is_not_fed(environ: dict[str, str]) -> None:
    assert from_environment(environ).watchdog_s == 0


def test_progress_is_told_until_it_is_ready_and_the_watchdog_is_fed_on(
    manager: tuple[socket.socket, str],
) -> None:
    listener, address = manager
    listener.settimeout(0)
    shares: list[float | None] = [0.25, 0.5, None, None]

    async def hear() -> list[bytes]:
        Heartbeat(Notifier(address, watchdog_s=0.03), lambda: shares.pop(0) if shares else None)
        loop = asyncio.get_running_loop()
        return [await asyncio.wait_for(loop.sock_recv(listener, 4096), 5) for _ in range(4)]

    assert asyncio.run(hear()) == [
        b"STATUS=replaying the log: 25%\nWATCHDOG=1",
        b"STATUS=replaying the log: 50%\nWATCHDOG=1",
        b"WATCHDOG=1",
        b"WATCHDOG=1",
    ]
