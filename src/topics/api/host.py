"""Which names a Host header may have: a page on another name must not reach a local server."""

from topics.errors import RequestError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", "[::]", ""})


class HostRule:
    """The allow-list of one server."""

    def __init__(self, allowed: str | None, *, bind_host: str) -> None:
        names = {name.strip().lower() for name in (allowed or "").split(",") if name.strip()}
        # Bound to every address, the names of this machine are not known: keys guard it then.
        self._any = "*" in names or (not names and bind_host in _ANY_ADDRESS)
        self._names = (names or {bind_host.lower()}) | _LOOPBACK

    def check(self, host: str) -> None:
        if self._any or not host:
            return
        name = host.lower()
        name = name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]
        if name not in self._names:
            raise RequestError(
                "this Host name is not served here: add it to TOPICS_ALLOWED_HOSTS if it is yours"
            )
