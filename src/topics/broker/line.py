"""The envelope of the line protocol: bytes in, values out. No I/O.

`V1|<id>|<COMMAND>|<args>` → `V1|<id>|OK[|payload]` or `V1|<id>|ERR|<CODE>|<message>`.
Keeps: whatever the bytes are, there is an answer of one line; of a line that is too long no more
is held than its beginning.
"""

import re
from typing import Final, Literal

from msgspec import Struct

MAX_LINE_BYTES: Final = 1 << 20
"""Without its line break."""
MAX_ID_BYTES: Final = 128
NO_ID: Final = "0"
"""Echoed where the line has no id that could be."""
_HEAD_BYTES: Final = MAX_ID_BYTES + 16
"""Of a line that is too long: enough to tell its id."""
_VERSION: Final = b"V1"
_BEGINNING: Final = _VERSION + b"|"
_CONTROLS: Final = "\x00-\x1f\x7f-\x9f"
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")
_UNSAFE_IN_VALUE: Final = re.compile(f"[,%{_CONTROLS}]")

Code = Literal[
    "BAD_REQUEST", "UNKNOWN_COMMAND", "GENERATION_MISMATCH", "NOT_LEADER", "REPLICATION_TIMEOUT"
]


class Request(Struct, frozen=True):
    """A line that is an envelope."""

    id: str
    command: str
    """In capitals; it need not be one we know."""
    args: str


class Refusal(Struct, frozen=True):
    """Why a request is not done."""

    id: str
    code: Code
    message: str

    def format(self) -> bytes:
        message = _CONTROL.sub(" ", self.message)
        text = f"V1|{self.id}|ERR|{self.code}|{message}\n"
        return text.encode(errors="backslashreplace")


NO_ENVELOPE: Final = Refusal(NO_ID, "BAD_REQUEST", "a request is V1|<id>|<COMMAND>|<args>")


class TooLong(Struct, frozen=True):
    """A line above the limit: how it began."""

    head: bytes


class LineBuffer:
    """Cuts bytes into lines; LF ends one, and where a CR before it is no part of the line, CRLF."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES, *, crlf: bool = True) -> None:
        self.limit_bytes = limit_bytes
        self._crlf = crlf
        self._bytes = bytearray()
        self._scanned = 0
        """No line break before this place."""
        self._skipping = False
        """Inside a line that is too long and was told so."""

    def feed(self, data: bytes) -> None:
        self._bytes += data

    @property
    def held_bytes(self) -> int:
        return len(self._bytes)

    @property
    def may_be_envelope(self) -> bool:
        """Tell whether the next line, as far as it is here, begins as an envelope does."""
        return _BEGINNING.startswith(self._bytes[: len(_BEGINNING)])

    @property
    def is_inside_line(self) -> bool:
        return self._skipping or bool(self._bytes)

    def take(self) -> bytes | TooLong | None:
        """Return the next line without its end, or None while it is not all here."""
        held = self._bytes
        end = held.find(b"\n", self._scanned)
        if self._skipping:
            self._drop(len(held) if end < 0 else end + 1)
            if end < 0:
                return None
            self._skipping = False
            end = held.find(b"\n")
        if end < 0 and len(held) <= self.limit_bytes + 1:  # the last one may be the CR of CRLF
            self._scanned = len(held)
            return None
        line = held[: end if end >= 0 else None]
        if self._crlf and line.endswith(b"\r"):
            del line[-1]
        self._skipping = end < 0
        self._drop(end + 1 if end >= 0 else len(held))
        return bytes(line) if len(line) <= self.limit_bytes else TooLong(bytes(line[:_HEAD_BYTES]))

    def _drop(self, size: int) -> None:
        del self._bytes[:size]
        self._scanned = 0


def parse_request(line: bytes) -> Request | Refusal:
    """Read one line; what is wrong with it is a value, too."""
    parts = line.split(b"|", 3)
    if parts[0] != _VERSION or len(parts) < 3:
        return NO_ENVELOPE
    request_id = _parse_id(parts[1])
    if request_id is None:
        rule = f"an id has 1 to {MAX_ID_BYTES} bytes of UTF-8 without control characters"
        return Refusal(NO_ID, "BAD_REQUEST", rule)
    try:
        command = parts[2].decode().strip(" ")
        args = parts[3].decode() if len(parts) > 3 else ""
    except UnicodeDecodeError:
        return Refusal(request_id, "BAD_REQUEST", "the line is not valid UTF-8")
    return Request(request_id, command.upper(), args)


def refuse_too_long(line: TooLong, limit_bytes: int) -> Refusal:
    """Answer under the id of the line, if its beginning tells one."""
    parts = line.head.split(b"|", 2)
    known = _parse_id(parts[1]) if parts[0] == _VERSION and len(parts) == 3 else None
    return Refusal(known or NO_ID, "BAD_REQUEST", f"a line may have {limit_bytes} bytes")


def format_ok(request_id: str, payload: str = "") -> bytes:
    text = f"V1|{request_id}|OK|{payload}\n" if payload else f"V1|{request_id}|OK\n"
    return text.encode()


def encode_value(value: str) -> str:
    """Percent-encode what would break a list of messages: `,`, `%` and control characters."""
    return _UNSAFE_IN_VALUE.sub(_percent, value)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _parse_id(raw: bytes) -> str | None:
    if not 1 <= len(raw) <= MAX_ID_BYTES:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text
