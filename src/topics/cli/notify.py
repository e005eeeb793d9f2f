"""Tell the service manager how we are: systemd's `Type=notify`, without a library.

Where nobody asked (`NOTIFY_SOCKET` is not set) every call does nothing. A word that cannot be
delivered is dropped: a server that works is not stopped by who watches it.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

from topics.errors import ConfigError

REPORT_S: Final = 1.0
"""How often the progress of a replay is told."""
BEATS_PER_TIMEOUT: Final = 3


class Notifier:
    """Sends datagrams to the socket that the service manager named; made by `from_environment`."""

    def __init__(self, address: str = "", *, watchdog_s: float = 0.0) -> None:
        if address and address[0] not in "/@":
            raise ConfigError("NOTIFY_SOCKET is neither a path nor an abstract socket (@…)")
        # An abstract socket is written with @ and addressed with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s if address else 0.0
        """How long the manager waits for a sign of life; 0: it does not."""

    def send(self, **fields: str) -> None:
        """Send `KEY=value` lines in one datagram."""
        if not self._address:
            return
        text = "\n".join(f"{key}={' '.join(value.split())}" for key, value in fields.items())
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
            sender.sendto(text.encode(), self._address)

    def ready(self, status: str) -> None:
        self.send(READY="1", STATUS=status)

    def stopping(self) -> None:
        self.send(STOPPING="1", STATUS="draining, then a snapshot")


def from_environment(environ: MutableMapping[str, str]) -> Notifier:
    """Take what systemd says out of the environment: children must not speak for us."""
    address = environ.pop("NOTIFY_SOCKET", "")
    timeout_us = environ.pop("WATCHDOG_USEC", "")
    pid = environ.pop("WATCHDOG_PID", "")
    is_ours = not pid or pid == str(os.getpid())
    watched = is_ours and timeout_us.isdecimal()
    return Notifier(address, watchdog_s=int(timeout_us) / 1e6 if watched else 0.0)


class Heartbeat:
    """A timer on the event loop: tells the replay's progress, and then that the loop still turns.

    It says nothing about a loop that is stuck: that is what the watchdog is for.
    """

    def __init__(self, notifier: Notifier, progress: Callable[[], float | None]) -> None:
        self._notifier = notifier
        self._progress = progress
        beat_s = notifier.watchdog_s / BEATS_PER_TIMEOUT
        self._every_s = min(beat_s, REPORT_S) if beat_s else REPORT_S
        self._loop = asyncio.get_running_loop()
        self._beat()

    def _beat(self) -> None:
        share = self._progress()
        fields = {} if share is None else {"STATUS": f"replaying the log: {share:.0%}"}
        if self._notifier.watchdog_s:
            fields["WATCHDOG"] = "1"
        if fields:
            self._notifier.send(**fields)
        if share is not None or self._notifier.watchdog_s:
            self._loop.call_later(self._every_s, self._beat)
