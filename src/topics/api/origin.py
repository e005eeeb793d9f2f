"""Which web pages may write here, or open a stream.

A browser lets any page send requests anywhere, and only says where the page came from. On whoever
may reach the port without a key that is all there is to tell one's own page from a hostile one.
Keeps: one rule for every route that writes or streams, decided with the head.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from topics.errors import ConfigError, Forbidden

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OPAQUE = "null"
"""The origin of a page that has none: a file, a sandboxed frame."""


class OriginRule:
    """The pages that one server takes writes from; a client that is no browser is no page."""

    def __init__(self, allowed: str | None = None, *, hosts: str | None = None) -> None:
        listed = {_parse_origin(text) for text in _split(allowed)}
        self._any = "*" in listed
        self._listed = listed
        # Behind a proxy that sends another Host these are the names a page has.
        self._names = {name.lower() for name in _split(hosts)} | _LOOPBACK

    def check(self, headers: Mapping[str, str]) -> None:
        """Refuse a page of another host, whatever it shows to be let in."""
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if (origin is None and site == "none") or site == "same-origin" or self._any:
            return
        if origin is None or not self._may(origin.lower(), headers.get("host", "")):
            raise Forbidden(
                "a page of another origin may not write here or open a stream: if it is yours, "
                "add its origin to TOPICS_ALLOWED_ORIGINS"
            )

    def _may(self, origin: str, host: str) -> bool:
        if origin in self._listed:
            return True
        try:
            page, here = urlsplit(origin).hostname, urlsplit("//" + host).hostname
        except ValueError:
            return False
        return page is not None and (page == here or page in self._names)


def check_same_origin(headers: Mapping[str, str]) -> None:
    """Refuse what no page of this very host and port has sent."""
    try:
        page = urlsplit(headers.get("origin", "")).netloc.lower()
    except ValueError:
        page = ""
    if not page or page != headers.get("host", "").lower():
        raise Forbidden("a page of another origin may not do this")


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _parse_origin(text: str) -> str:
    """Return an origin as a browser spells it; one that could never match stops the start."""
    origin = text.lower()
    try:
        parts = urlsplit(origin)
        is_origin = bool(parts.hostname) and origin == f"{parts.scheme}://{parts.netloc}"
        is_origin = is_origin and parts.port not in (
            0,
            {"http": 80, "https": 443}.get(parts.scheme),
        )
    except ValueError:
        is_origin = False
    if not is_origin and origin not in ("*", _OPAQUE):
        raise ConfigError(
            f"TOPICS_ALLOWED_ORIGINS takes origins as https://app.example.org or "
            f"http://localhost:3000, without a path or the scheme's own port, not {text!r}"
        )
    return origin
