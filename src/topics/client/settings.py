"""How to reach a server: from arguments, else from the environment. The token is never shown."""

import os
import ssl
from urllib.parse import urlsplit

from topics.errors import ConfigError

DEFAULT_URL = "http://127.0.0.1:4000"
PORTS = {"http": 80, "https": 443}


class ClientSettings:
    """Where the server is, who we are, and how long we wait."""

    def __init__(
        self,
        url: str | None,
        *,
        token: str | None,
        timeout_s: float,
        retry_for_s: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        environ = os.environ  # noqa: TID251 - a client is configured where its program runs
        self.url = (url or environ.get("TOPICS_URL") or DEFAULT_URL).rstrip("/")
        self._token = (environ.get("TOPICS_TOKEN") if token is None else token) or None
        self.timeout_s = timeout_s
        self.retry_for_s = retry_for_s
        self.scheme, self.host, self.port, self.prefix = parse_url(self.url)
        self.ssl_context = None
        if self.scheme == "https":
            self.ssl_context = ssl_context or ssl.create_default_context()
        _check_token(self._token)

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of every request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        shown = host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"
        headers = [("Host", shown), ("User-Agent", "topics-client")]
        if self._token is not None:
            headers.append(("Authorization", f"Bearer {self._token}"))
        return headers

    def __repr__(self) -> str:
        return f"ClientSettings({self.url!r})"


def parse_url(url: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and the path before `/v0`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # a name that no resolver takes
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("a URL must not carry a user or password: give the key as the token")
    if parts.scheme not in PORTS or not host or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is not a server's URL: it looks like {DEFAULT_URL}")
    return parts.scheme, host, port or PORTS[parts.scheme], parts.path.rstrip("/")


def _check_token(token: str | None) -> None:
    """Refuse what cannot stand in a header, without showing it."""
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError("the token holds characters that no key has")
