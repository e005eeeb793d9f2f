"""Who is asking, and what they may do: keys, scopes, prefixes.

Owns the keyring. Keeps: a key is held only as its SHA-256; every entry is compared, each in
constant time; nothing here can be printed back into a key.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence

import msgspec

from topics.errors import ConfigError, Forbidden, Unauthorized
from topics.model.routers import RouterDefinition
from topics.model.topic_config import TopicConfig

ALL_SCOPES = frozenset({"read", "consume", "write", "delete", "admin"})
_LETTERS = {"r": "read", "c": "consume", "w": "write", "d": "delete", "a": "admin"}
_BEARER = "bearer "


class Caller:
    """A key as the server knows it; also counts what it has under way."""

    __slots__ = ("_digest", "is_anonymous", "name", "prefixes", "requests", "scopes", "streams")

    def __init__(
        self, name: str, digest: bytes, *, scopes: frozenset[str], prefixes: tuple[str, ...]
    ) -> None:
        self.name = name
        """The start of the digest: tells keys apart in logs, opens nothing."""
        self._digest = digest
        self.is_anonymous = not digest
        self.scopes = scopes
        self.prefixes = prefixes
        self.requests = 0
        self.streams = 0

    def owns(self, digest: bytes) -> bool:
        return hmac.compare_digest(self._digest, digest)

    def sees(self, name: str) -> bool:
        return not self.prefixes or name.startswith(self.prefixes)

    def sees_router(self, name: str, definition: RouterDefinition) -> bool:
        """Tell whether a router and both its ends may be seen."""
        return self.sees(name) and self.sees(definition.source) and self.sees(definition.dest)

    def sees_pattern(self, prefix: str) -> bool:
        """Tell whether every name that begins with `prefix` may be seen."""
        return not self.prefixes or prefix.startswith(self.prefixes)

    def prefixes_within(self, prefix: str) -> list[str]:
        """Return how the names begin that may be seen and begin with `prefix`, ascending."""
        if not self.prefixes:
            return [prefix]
        found: list[str] = []
        for own in sorted(self.prefixes):
            wanted = own if own.startswith(prefix) else prefix
            if wanted.startswith(own) and not (found and wanted.startswith(found[-1])):
                found.append(wanted)
        return found

    def check_scopes(self, wanted: frozenset[str]) -> None:
        missing = wanted - self.scopes
        if missing:
            raise Forbidden(f"this key lacks the scope {' and '.join(sorted(missing))}")

    def check_name(self, name: str) -> None:
        if not self.sees(name):
            raise Forbidden("this key may not use this name: its prefixes do not cover it")

    def check_config(self, config: Mapping[str, object]) -> None:
        """Check the name that a topic's config holds; what is no name is refused elsewhere."""
        dead_letter = config.get("dead_letter")
        if isinstance(dead_letter, str):
            self.check_name(dead_letter)

    def shown_config(self, config: TopicConfig) -> TopicConfig:
        """Return what may be seen of a topic's config: no name beyond the prefixes."""
        if config.dead_letter is None or self.sees(config.dead_letter):
            return config
        return msgspec.structs.replace(config, dead_letter=None)


class Keyring:
    """Every key of one server."""

    def __init__(self, callers: Sequence[Caller]) -> None:
        self._callers = list(callers)
        self.anonymous = Caller("anonymous", b"", scopes=ALL_SCOPES, prefixes=())
        self.nobody = Caller("nobody", b"", scopes=frozenset(), prefixes=())
        """Whoever was refused: may do nothing."""

    @property
    def is_open(self) -> bool:
        """Tell whether there are no keys, and so no questions."""
        return not self._callers

    def identify(self, key: str) -> Caller:
        digest = _digest(key)
        found = None
        for caller in self._callers:  # all of them: the time tells nothing
            if caller.owns(digest):
                found = caller
        if found is None:
            raise Unauthorized("this key is not known here")
        return found

    def named(self, name: str) -> Caller | None:
        """Return the caller of a name that was kept, if there still is one."""
        known = [self.anonymous] if self.is_open else self._callers
        return next((caller for caller in known if caller.name == name), None)

    def identify_header(self, authorization: str) -> Caller:
        """Return who sent an `Authorization` header."""
        if self.is_open:
            return self.anonymous
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise Unauthorized("send the header Authorization: Bearer KEY")
        return self.identify(authorization[len(_BEARER) :].strip())


def parse_keys(text: str) -> Keyring:
    """Read what `TOPICS_API_KEYS` holds: `key`, `key:scopes`, `key:scopes:prefixes`, by comma."""
    callers: list[Caller] = []
    entries = text.split(",") if text.strip() else []
    for number, raw in enumerate(entries, start=1):
        caller = _parse_entry(raw.strip(), number)
        if any(caller.owns(other._digest) for other in callers):  # noqa: SLF001 - of its own class
            raise ConfigError(f"TOPICS_API_KEYS: entry {number} repeats the key of another entry")
        callers.append(caller)
    return Keyring(callers)


def _parse_entry(entry: str, number: int) -> Caller:
    key, *rest = entry.split(":", 2)
    if not key:
        raise ConfigError(f"TOPICS_API_KEYS: entry {number} has no key before its first colon")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"TOPICS_API_KEYS: the key of entry {number} has characters that no header carries as "
            "they are: make it of printable ASCII"
        )
    scopes = _parse_scopes(rest[0], number) if rest else ALL_SCOPES
    prefixes: tuple[str, ...] = ()
    if len(rest) > 1 and rest[1]:
        prefixes = tuple(rest[1].split("|"))
        if not all(prefixes):
            raise ConfigError(f"TOPICS_API_KEYS: entry {number} has an empty prefix")
    digest = _digest(key)
    return Caller(digest.hex()[:8], digest, scopes=scopes, prefixes=prefixes)


def _parse_scopes(text: str, number: int) -> frozenset[str]:
    if not text:
        return ALL_SCOPES
    found: set[str] = set()
    for word in text.split("+"):
        if word in ALL_SCOPES:
            found.add(word)
        elif word and set(word) <= set(_LETTERS):
            found.update(_LETTERS[letter] for letter in word)
        else:
            raise ConfigError(
                f"TOPICS_API_KEYS: entry {number} has a scope that is none of "
                "read consume write delete admin (r c w d a), joined by +"
            )
    return frozenset(found | {"consume"} if "write" in found else found)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
