"""Tickets: what a browser puts into the URL of a stream instead of a key.

Owns the tickets that were given out. Keeps: each opens one stream, once, within its 30 seconds,
with the rights of whoever asked for it; one key cannot use up those of all others; no call forgets
more than a few that are too old.
"""

import hashlib
import secrets
from collections import Counter, OrderedDict

from topics.api.auth import Caller
from topics.clock import Clock
from topics.errors import LimitReached, Unauthorized

TICKET_MS = 30_000
MAX_TICKETS = 100_000
MAX_TICKETS_PER_KEY = 10_000
FORGOTTEN_A_CALL = 4
"""Of those that are too old: more than are given, so that none stays for long."""


class Tickets:
    """The tickets that may still be used; only their digests are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        """Oldest first: all last equally long. The first of a plain dict is slow to find."""
        self._counts: Counter[Caller] = Counter()

    def give(self, caller: Caller) -> tuple[str, int]:
        """Return a new ticket and how many milliseconds it is good for."""
        self._forget_old()
        if len(self._given) >= MAX_TICKETS:
            raise LimitReached("max_tickets", MAX_TICKETS)
        if self._counts[caller] >= MAX_TICKETS_PER_KEY:
            raise LimitReached("max_tickets_per_key", MAX_TICKETS_PER_KEY)
        self._counts[caller] += 1
        ticket = "ticket_" + secrets.token_urlsafe(24)
        self._given[_digest(ticket)] = caller, self._clock.monotonic_s() + TICKET_MS / 1000
        return ticket, TICKET_MS

    def use(self, ticket: str) -> Caller:
        caller, deadline_s = self._given.pop(_digest(ticket), (None, 0.0))
        if caller is not None:
            self._count_off(caller)
        if caller is None or self._clock.monotonic_s() > deadline_s:
            raise Unauthorized("this ticket was used, is too old, or never was: ask for a new one")
        return caller

    def _forget_old(self) -> None:
        now_s = self._clock.monotonic_s()
        for _ in range(FORGOTTEN_A_CALL):
            if not self._given:
                return
            caller, deadline_s = next(iter(self._given.values()))
            if deadline_s > now_s:
                return
            self._given.popitem(last=False)
            self._count_off(caller)

    def _count_off(self, caller: Caller) -> None:
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode(errors="surrogateescape")).digest()
