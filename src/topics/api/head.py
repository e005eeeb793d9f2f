"""The head of a request: read once, checked once, remembered while a client repeats it.

`read_head` takes what httptools accepts and refuses what httptools forgets to.
Keeps: a head says how its body is framed in exactly one way; no header value is kept that is a
secret.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httptools

from topics.api.auth import Caller
from topics.errors import RequestError, TopicsError

if TYPE_CHECKING:
    from topics.api.routes import Route
    from topics.api.sessions import Session

MAX_HEAD_BYTES = 16 * 1024
MAX_WATCH_HEAD_BYTES = 128 * 1024
"""A stream may be resumed by an id that names 256 topics of 255 characters."""
MAX_HEADERS = 64
MAX_URL_BYTES = 8 * 1024
_ONCE = frozenset({"host", "content-length", "authorization", "transfer-encoding"})


class Head:
    """What one request says before its body."""

    __slots__ = (
        "authorization",
        "body_max",
        "caller",
        "chunked",
        "content_length",
        "cookie",
        "csrf",
        "expects_continue",
        "headers",
        "http10",
        "is_encoded",
        "is_plain_write",
        "keep_alive",
        "method",
        "name",
        "path",
        "query",
        "refusal",
        "route",
        "session",
        "upgrade",
    )

    def __init__(self, method: str, target: str, headers: dict[str, str]) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        """Still percent-encoded: a slash within a name is part of the name."""
        self.authorization = headers.pop("authorization", "")
        self.cookie = headers.pop("cookie", "")
        self.csrf = headers.pop("x-topics-csrf", "")
        """These three are forgotten as soon as they were compared."""
        self.headers = headers
        self.content_length = 0
        self.chunked = False
        self.keep_alive = True
        self.http10 = False
        self.upgrade = False
        self.is_encoded = "content-encoding" in headers
        self.expects_continue = headers.get("expect", "").lower() == "100-continue"
        # Filled by the app: what the head alone decides.
        self.route: Route | None = None
        self.body_max = 0
        self.name = ""
        self.caller: Caller | None = None
        self.session: Session | None = None
        """Of a browser that is signed in to the console."""
        self.refusal: TopicsError | None = None
        self.is_plain_write = False
        """Nothing but records, as far as the head tells."""

    def parameters(self) -> dict[str, str]:
        """Return the query as a map; the last of a repeated name counts."""
        if not self.query:
            return {}
        try:
            pairs = (pair.partition("=") for pair in self.query.split("&") if pair)
            return {_decode(name): _decode(value) for name, _, value in pairs}
        except UnicodeDecodeError:
            raise RequestError("the query is not percent-encoded UTF-8") from None


def _decode(text: str) -> str:
    return unquote(text.replace("+", " "), errors="strict")


class _Reading:
    """What httptools calls while it reads."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.done = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.done = True


def head_limit(raw: bytes | bytearray) -> int:
    """Return how long a head may be that begins like this."""
    return MAX_WATCH_HEAD_BYTES if raw.startswith(b"GET /v0/watch/") else MAX_HEAD_BYTES


def read_head(raw: bytes) -> Head:
    """Read one head, from its first byte to the empty line; raise RequestError if it is bad."""
    reading = _Reading()
    parser = httptools.HttpRequestParser(reading)
    upgrade = False
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        upgrade = True
    except httptools.HttpParserError as error:
        raise RequestError(f"this is not an HTTP request: {error}") from None
    if not reading.done:
        raise RequestError("the request head is cut short")
    if len(reading.url) > MAX_URL_BYTES:
        raise RequestError(f"the URL has more than {MAX_URL_BYTES} bytes")
    version = parser.get_http_version()
    head = build_head(parser.get_method().decode(), reading.url, reading.headers)
    _check_framing(head, version)
    head.http10 = version == "1.0"
    head.keep_alive = _keeps_alive(head)
    head.upgrade = upgrade
    return head


def build_head(method: str, url: bytes, pairs: Iterable[tuple[bytes, bytes]]) -> Head:
    """Make a head from the parts a parser found, whatever the protocol."""
    headers = _gather(list(pairs))
    try:
        head = Head(method, url.decode("ascii"), headers)
    except UnicodeDecodeError:
        raise RequestError("the URL is not percent-encoded UTF-8") from None
    if not head.path.startswith("/"):
        raise RequestError("the request target must be a path, beginning with /")
    length = headers.get("content-length")
    if length is not None:
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise RequestError("Content-Length must be a whole number")
        head.content_length = int(length)
    return head


def _gather(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name; a repeated one is joined by comma."""
    if len(pairs) > MAX_HEADERS:
        raise RequestError(f"a request may have {MAX_HEADERS} headers, not {len(pairs)}")
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name = raw_name.decode("latin-1").lower()
        value = raw_value.decode("latin-1").strip()
        if name in headers:
            if name in _ONCE:
                raise RequestError(f"the header {name} may come only once")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _keeps_alive(head: Head) -> bool:
    """Read it from the header: the parser has forgotten it when the request has no body."""
    words = {word.strip().lower() for word in head.headers.get("connection", "").split(",")}
    return "keep-alive" in words if head.http10 else "close" not in words


def _check_framing(head: Head, version: str) -> None:
    if version not in ("1.0", "1.1"):
        raise RequestError(f"HTTP/{version} is not spoken here: use HTTP/1.1 or HTTP/2")
    if version == "1.1" and not head.headers.get("host"):
        raise RequestError("a request needs one Host header")
    encoding = head.headers.get("transfer-encoding")
    if encoding is None:
        return
    if version == "1.0" or "content-length" in head.headers:
        raise RequestError("Transfer-Encoding does not go with HTTP/1.0 or with Content-Length")
    if encoding.lower() != "chunked":
        raise RequestError("the only Transfer-Encoding is chunked")
    head.chunked = True
