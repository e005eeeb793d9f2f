"""Who is signed in to the console: a cookie that stands for a key.

Owns the sessions. Keeps: only digests of their ids; their number is bounded; each ends after its
time; whatever a cookie opens, its key must be able to open; a page of another origin gets nothing
with somebody's cookie.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

from topics.api.auth import Caller
from topics.api.head import Head
from topics.api.origin import check_same_origin
from topics.clock import Clock
from topics.errors import Forbidden, Throttled

COOKIE = "topics_session"
SESSION_S = 12 * 3600
MAX_SESSIONS = 1000
ATTEMPTS = 10
"""Wrong keys in a row, then …"""
ATTEMPT_S = 1.0
"""… one a second: a person does not notice."""
_COOKIE_PAIR = re.compile(rf"(?:^|[;,])\s*{COOKIE}=([A-Za-z0-9_-]+)")


class Session:
    """One browser that showed a key."""

    __slots__ = ("caller", "csrf", "deadline_s")

    def __init__(self, caller: Caller, *, deadline_s: float) -> None:
        self.caller = caller
        self.csrf = secrets.token_urlsafe(24)
        self.deadline_s = deadline_s

    def check_token(self, token: str) -> None:
        """Refuse what does not come from a page that was made for this session."""
        if not hmac.compare_digest(self.csrf.encode(), token.encode(errors="surrogateescape")):
            raise Forbidden("this request lacks the token of its page: load the page again")


class Sessions:
    """Every session of one server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[bytes, Session] = {}
        """Oldest first: all last equally long."""
        self._attempts = Attempts(clock)

    def __len__(self) -> int:
        return len(self._open)

    def check_attempt(self) -> None:
        """Refuse to look at a key after too many wrong ones."""
        self._attempts.check()

    def count_failure(self) -> None:
        self._attempts.take()

    def start(self, caller: Caller) -> str:
        """Return the id of a new session; where there are too many, the oldest ends."""
        self._forget_old()
        while len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        session_id = secrets.token_urlsafe(32)
        deadline_s = self._clock.monotonic_s() + SESSION_S
        self._open[_digest(session_id)] = Session(caller, deadline_s=deadline_s)
        return session_id

    def find(self, session_id: str) -> Session | None:
        session = self._open.get(_digest(session_id))
        if session is None or session.deadline_s <= self._clock.monotonic_s():
            return None
        return session

    def end(self, session: Session) -> None:
        self._open = {name: kept for name, kept in self._open.items() if kept is not session}

    def identify(self, head: Head) -> Session | None:
        """Return the session of a request, if it has one that counts; refuse a forged request."""
        session_id = session_id_of(head.cookie)
        session = self.find(session_id) if session_id else None
        if session is None or not _comes_from_here(head.headers):
            return None
        assert head.route is not None
        if head.method != "GET" or head.upgrade:
            check_same_origin(head.headers)
            if not head.route.is_form:  # a form has the token in its body
                session.check_token(head.csrf)
        return session

    def _forget_old(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest].deadline_s > now_s:
                return
            del self._open[oldest]


class Attempts:
    """So many at once, then one a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(ATTEMPTS)
        self._since_s = clock.monotonic_s()

    def check(self) -> None:
        self._refill()
        if self._left < 1:
            raise Throttled(int(ATTEMPT_S * 1000))

    def take(self) -> None:
        self._refill()
        self._left -= 1

    def _refill(self) -> None:
        now_s = self._clock.monotonic_s()
        self._left = min(ATTEMPTS, self._left + (now_s - self._since_s) / ATTEMPT_S)
        self._since_s = now_s


def session_id_of(cookie: str) -> str:
    found = _COOKIE_PAIR.search(cookie)
    return "" if found is None else found[1]


def _comes_from_here(headers: Mapping[str, str]) -> bool:
    """Tell whether a page of ours asks; ports share their cookies, and so do their pages."""
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
