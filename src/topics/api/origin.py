"""Which web pages may open a WebSocket here while there are no keys.

A browser lets any page connect anywhere and only says where the page came from. Without keys that
is all there is to tell the own page from a hostile one.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from topics.errors import Forbidden

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuse pages of other hosts; a client that is no browser sends no Origin."""
    origin = headers.get("origin")
    if origin is None:
        return
    try:
        page = urlsplit(origin).hostname
        here = urlsplit("//" + headers.get("host", "")).hostname
    except ValueError:
        page = here = None
    if page is None or (page != here and page not in _LOOPBACK):
        raise Forbidden("a page of another host may not connect while the server has no keys")


def check_same_origin(headers: Mapping[str, str]) -> None:
    """Refuse what no page of this very host and port has sent."""
    try:
        page = urlsplit(headers.get("origin", "")).netloc.lower()
    except ValueError:
        page = ""
    if not page or page != headers.get("host", "").lower():
        raise Forbidden("a page of another origin may not do this")
