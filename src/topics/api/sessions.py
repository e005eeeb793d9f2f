"""Who is signed in to the console: a cookie that stands for a key.

Owns the sessions. Keeps: only digests of their ids; their number is bounded, for each key by
itself; each ends after its time; whatever a cookie opens, its key must be able to open; a page of
another origin gets nothing with somebody's cookie.
"""

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping

from topics.api.auth import Caller
from topics.api.head import Head
from topics.api.origin import check_same_origin
from topics.clock import Clock
from topics.errors import Forbidden, Throttled

COOKIE = "topics_session"
SESSION_S = 12 * 3600
MAX_SESSIONS_PER_KEY = 200
ATTEMPTS = 10
"""Wrong keys of one address in a row, then …"""
ATTEMPT_S = 1.0
"""… one a second: a person does not notice."""
MAX_ADDRESSES = 1024
"""That sent wrong keys; whoever was quiet for the longest is forgotten first."""
_COOKIE_PAIR = re.compile(rf"(?:^|[;,])\s*{COOKIE}=([A-Za-z0-9_-]+)")


class Session:
    """One browser that showed a key."""

    __slots__ = ("caller", "csrf", "deadline_s", "digest")

    def __init__(self, digest: bytes, caller: Caller, *, deadline_s: float) -> None:
        self.digest = digest
        """Of its id."""
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
        self._by_key: dict[Caller, OrderedDict[bytes, None]] = {}
        """Of each key the oldest first: all last equally long."""
        self._attempts = Attempts(clock)

    def __len__(self) -> int:
        return len(self._open)

    def count_failure(self, address: str) -> None:
        """Note a wrong key; `Throttled` after too many from this address."""
        self._attempts.take(address)

    def start(self, caller: Caller) -> str:
        """Return the id of a new session; where its key has too many, the oldest of them ends."""
        own = self._by_key.setdefault(caller, OrderedDict())
        while own and (len(own) >= MAX_SESSIONS_PER_KEY or self._is_over(next(iter(own)))):
            del self._open[own.popitem(last=False)[0]]
        session_id = secrets.token_urlsafe(32)
        digest = _digest(session_id)
        deadline_s = self._clock.monotonic_s() + SESSION_S
        self._open[digest] = Session(digest, caller, deadline_s=deadline_s)
        own[digest] = None
        return session_id

    def _is_over(self, digest: bytes) -> bool:
        return self._open[digest].deadline_s <= self._clock.monotonic_s()

    def find(self, session_id: str) -> Session | None:
        digest = _digest(session_id)
        return None if digest not in self._open or self._is_over(digest) else self._open[digest]

    def end(self, session: Session) -> None:
        if self._open.pop(session.digest, None) is not None:
            del self._by_key[session.caller][session.digest]

    def identify(self, head: Head) -> Session | None:
        """Return the session of a request, if it has one that counts; refuse a forged request."""
        session_id = session_id_of(head.cookie)
        session = self.find(session_id) if session_id else None
        if session is None or not _comes_from_here(head.headers):
            return None
        assert head.route is not None
        changes = head.method != "GET" or head.upgrade
        if changes or "origin" in head.headers:
            check_same_origin(head.headers)
        if changes and not head.route.is_form:  # a form has the token in its body
            session.check_token(head.csrf)
        return session


class Attempts:
    """Wrong keys, by the address they came from: so many at once, then one a while.

    Only wrong ones are counted, and only they are refused: many come from the address of a proxy,
    and what one of them guesses must not keep the others out.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Address → how many are left, and since when; the quietest first."""

    def __len__(self) -> int:
        return len(self._left)

    def take(self, address: str) -> None:
        now_s = self._clock.monotonic_s()
        left, since_s = self._left.pop(address, (float(ATTEMPTS), now_s))
        left = min(ATTEMPTS, left + (now_s - since_s) / ATTEMPT_S)
        self._left[address] = max(left - 1, 0), now_s
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)
        if left < 1:
            raise Throttled(int(ATTEMPT_S * 1000))


def session_id_of(cookie: str) -> str:
    found = _COOKIE_PAIR.search(cookie)
    return "" if found is None else found[1]


def _comes_from_here(headers: Mapping[str, str]) -> bool:
    """Tell whether a page of ours asks; ports share their cookies, and so do their pages."""
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
