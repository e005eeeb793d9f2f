"""The files and sockets that this process may have open, and who gets them.

What the log needs is set apart first: a checkpoint that cannot open a file is worse than a client
that has to come again. Why so: docs/internals/decisions/0050-connections-below-the-descriptors.md.
"""

import ipaddress
import resource
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Protocol

NO_LIMIT: Final = 1 << 20
"""What a system that names no limit is taken for."""
DEFAULT_CONNECTIONS: Final = 20_000
MAPS_MAX: Final = 512
BACKLOG_MAX: Final = 4096
OF_PROCESS: Final = 48
"""Standard streams, event loop, listeners, lock, the reserve of the disk, and what a snapshot, a
rewrite, a flood, a backup and readers of the cold tier have open for a moment."""
OF_SHARD: Final = 8
"""Its file and the one before, a map of it, the spare, CURRENT, a segment on its way."""


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Take as many descriptors as the system lets us; return how many that is."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = NO_LIMIT if hard == resource.RLIM_INFINITY else hard
    if wanted > descriptor_limit():
        with suppress(ValueError, OSError):  # then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def plan_maps(limit: int) -> int:
    """Return how many files of segments may be open at once."""
    return max(32, min(MAPS_MAX, limit // 8))


def plan_backlog(limit: int) -> int:
    """Return how many connections may come in one turn: each has a descriptor before it is met."""
    return max(16, min(BACKLOG_MAX, limit // 8))


def plan_connections(limit: int, *, shards: int, wanted: int = 0) -> int:
    """Return how many connections there may be: `wanted`, and what the log needs is left over."""
    kept = OF_PROCESS + OF_SHARD * shards + plan_maps(limit) + 2 * plan_backlog(limit)
    return min(wanted or DEFAULT_CONNECTIONS, max(limit - kept, limit // 4))


class Transport(Protocol):
    """What asyncio and uvloop have in common of a connection."""

    def get_extra_info(self, name: str, /) -> object: ...


def peer_of(transport: Transport | None) -> str:
    """Return the address at the other end; of IPv6 the network, since a party has all of one."""
    name = None if transport is None else transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return ""  # no network is in between
    try:
        address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Guest(Protocol):
    """One connection, as far as its place is concerned."""

    @property
    def peer(self) -> str:
        """Where it comes from."""

    @property
    def since_s(self) -> float:
        """When it came to rest."""

    @property
    def is_at_rest(self) -> bool:
        """Tell whether it can be ended and nobody misses an answer."""

    def end(self) -> None: ...


class Crowd:
    """All connections of this process, whatever they speak, and how many there may be.

    Keeps: where all places are taken, one that has been at rest for longest is ended for whoever
    comes, out of those from the address that has most; nobody loses a place to an address that has
    more than he. If there is none, who comes is refused.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.refused = 0
        self.ended = 0
        """So many at rest were ended for others."""
        self._rooms: list[Collection[Guest]] = []
        self._others: list[Callable[[], int]] = []
        self._going: deque[Guest] = deque()
        """Ended, and perhaps still among the others."""

    def add(self, room: Collection[Guest]) -> None:
        """Count the connections in a collection."""
        self._rooms.append(room)

    def add_others(self, count: Callable[[], int]) -> None:
        """Count connections that are never at rest."""
        self._others.append(count)

    def __len__(self) -> int:
        return sum(map(len, self._rooms)) + sum(count() for count in self._others)

    @property
    def is_full(self) -> bool:
        return len(self) >= self.most

    def let_in(self, peer: str) -> bool:
        """Tell whether there is a place for one more, after making one if need be."""
        while self._going and not self._is_here(self._going[0]):
            self._going.popleft()
        if len(self) - len(self._going) < self.most or self._end_some(peer):
            return True
        self.refused += 1
        return False

    def _is_here(self, guest: Guest) -> bool:
        return any(guest in room for room in self._rooms)

    def _end_some(self, peer: str) -> bool:
        """End one in a hundred: looking at all of them for each who comes would take too long."""
        held = Counter(guest.peer for room in self._rooms for guest in room)
        going = set(map(id, self._going))
        resting = [
            guest
            for room in self._rooms
            for guest in room
            if held[guest.peer] >= held[peer] and guest.is_at_rest and id(guest) not in going
        ]
        resting.sort(key=lambda guest: (-held[guest.peer], guest.since_s))
        for guest in resting[: 1 + self.most // 100]:
            guest.end()
            self._going.append(guest)
            self.ended += 1
        return bool(resting)
