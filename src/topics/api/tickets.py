"""Tickets: what a browser puts into the URL of a stream instead of a key.

Owns the tickets that were given out. Keeps: each opens one stream, once, within its 30 seconds,
with the rights of whoever asked for it.
"""

import hashlib
import secrets

from topics.api.auth import Caller
from topics.clock import Clock
from topics.errors import LimitReached, Unauthorized

TICKET_MS = 30_000
MAX_TICKETS = 100_000


class Tickets:
    """The tickets that may still be used; only their digests are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: dict[bytes, tuple[Caller, float]] = {}

    def give(self, caller: Caller) -> tuple[str, int]:
        """Return a new ticket and how many milliseconds it is good for."""
        self._forget_old()
        if len(self._given) >= MAX_TICKETS:
            raise LimitReached("max_tickets", MAX_TICKETS)
        ticket = "ticket_" + secrets.token_urlsafe(24)
        self._given[_digest(ticket)] = caller, self._clock.monotonic_s() + TICKET_MS / 1000
        return ticket, TICKET_MS

    def use(self, ticket: str) -> Caller:
        caller, deadline_s = self._given.pop(_digest(ticket), (None, 0.0))
        if caller is None or self._clock.monotonic_s() > deadline_s:
            raise Unauthorized("this ticket was used, is too old, or never was: ask for a new one")
        return caller

    def _forget_old(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._given:  # oldest first
            digest, (_, deadline_s) = next(iter(self._given.items()))
            if deadline_s > now_s:
                return
            del self._given[digest]


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode(errors="surrogateescape")).digest()
