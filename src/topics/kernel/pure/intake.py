"""Whole small writes, read from many sockets with one call and gathered as they come."""

import errno
import select
import socket
from collections.abc import Callable
from typing import Any

from topics.kernel.pure.gather import Gathering

_EVENTS = 512
"""Who is not among these has his turn in the next call."""
_READ_BYTES = 80 * 1024
"""A head and a body of the largest size that is gathered."""
_NEWS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
"""What has come is told once: to look again whether it was read took 6 % of the event loop."""

Kind = tuple[object, int, int, Gathering, list[tuple[int, Any]]]
"""What the requests with one head have in common: a token for it, how many bytes their bodies
have, how many records at the most, where they are gathered, and where is noted how many records
came, from whom and with which token."""


class Intake:
    """Owns an epoll of sockets that most often hold one whole small write.

    Keeps: what was read is gathered as a whole, or returned as it came.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._members: dict[int, Any] = {}
        self._active: set[int] = set()

    def fileno(self) -> int:
        """Return a descriptor that can be read from whenever a member can."""
        return self._epoll.fileno()

    def join(self, descriptor: int, who: object) -> None:
        """Read from this socket from now on; it must not block, and must leave before it closes.

        Raises OSError for one that cannot be waited for.
        """
        if who is None:
            raise ValueError("nobody cannot join")
        if descriptor < 0:
            raise OSError(errno.EBADF, "the socket cannot be waited for")
        self._epoll.register(descriptor, _NEWS)
        self._members[descriptor] = who
        self._active.add(descriptor)

    def leave(self, descriptor: int) -> None:
        """Read from it no more; once is enough, twice does no harm."""
        if self._members.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def was_active(self, descriptor: int) -> bool:
        """Tell whether anything was read from this member since this was asked last."""
        was = descriptor in self._active
        self._active.discard(descriptor)
        return was

    def take(self, find: Callable[[bytes], Kind | None]) -> list[tuple[Any, bytes]]:
        """Read once from each member that has something, and gather what are whole small writes.

        `find` is asked once for each head, and must not raise; None is for one whose requests are
        not taken here. Returns who sent anything else, and what; nothing, if he is gone.
        """
        kinds: dict[bytes, Kind | None] = {}
        others = []
        for descriptor, news in self._epoll.poll(0, _EVENTS):
            who = self._members.get(descriptor)
            data = None if who is None else _receive(descriptor)
            if data is None:
                continue
            if len(data) == _READ_BYTES or news & ~select.EPOLLIN:
                self._epoll.modify(descriptor, _NEWS)  # what is left there is told again
            self._active.add(descriptor)
            if not self._take_write(data, who, kinds, find):
                others.append((who, data))
        return others

    def _take_write(
        self,
        data: bytes,
        who: object,
        kinds: dict[bytes, Kind | None],
        find: Callable[[bytes], Kind | None],
    ) -> bool:
        head_bytes = data.find(b"\r\n\r\n") + 4
        raw = data[:head_bytes]
        if head_bytes < 4:
            return False
        if raw not in kinds:
            kinds[raw] = find(raw)
        kind = kinds[raw]
        if kind is None:
            return False
        token, body_bytes, max_records, gathering, writers = kind
        body = data[head_bytes:]
        count = gathering.add_small(body, max_records=max_records) if len(body) == body_bytes else 0
        if count:
            writers.append((count, (who, token)))
        return count > 0


def _receive(descriptor: int) -> bytes | None:
    """Read once; None if there is nothing to read, nothing if there never will be."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        return borrowed.recv(_READ_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""
    finally:
        borrowed.detach()
