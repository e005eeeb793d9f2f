"""RFC 8259, read strictly and in place: where values begin and end, never what they mean.

Keeps: a body is accepted only if every byte of it is valid JSON in valid UTF-8, nested at most
256 deep. Numbers are grammar, whatever their size. Errors point at the token that is wrong.
"""

import json
import re
from collections.abc import Callable
from typing import NoReturn

from topics.kernel.layout import DEAD_LETTER_KEYS, JSON_DEPTH_MAX
from topics.kernel.refusals import (
    NOT_A_COLON,
    NOT_A_KEY,
    NOT_A_MEMBER_END,
    NOT_A_VALUE,
    NOT_AN_ELEMENT_END,
    TOO_DEEP,
    TRAILING,
    refusal,
)

# Possessive quantifiers (`++`, `*+`) keep a hostile body from making the matcher backtrack.
_WS = rb"[ \t\n\r]*+"
_STRING = rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = rb"(?:" + _STRING + rb"|" + _NUMBER + rb"|true|false|null)"


def _nest(value: bytes) -> bytes:
    """One level more than `value`: a scalar, or a container whose members are `value`s."""
    member = _STRING + _WS + rb":" + _WS + value + _WS
    element = value + _WS
    members = rb"\{" + _WS + rb"(?:" + member + rb"(?:," + _WS + member + rb")*+)?+\}"
    elements = rb"\[" + _WS + rb"(?:" + element + rb"(?:," + _WS + element + rb")*+)?+\]"
    return rb"(?:" + _SCALAR + rb"|" + members + rb"|" + elements + rb")"


_SHALLOW_DEPTH = 2
_match_ws = re.compile(_WS).match
_match_string = re.compile(_STRING).match
_match_scalar = re.compile(_SCALAR).match
_match_key = re.compile(_WS + rb"(" + _STRING + rb")" + _WS + rb":" + _WS).match
# Most payloads are at most two levels deep: one match skips them ten times faster than a loop.
_match_shallow = re.compile(_nest(_nest(_SCALAR))).match

_OBJECT, _ARRAY = b"{"[0], b"["[0]
_CLOSER = {_OBJECT: b"}", _ARRAY: b"]"}
_NOT_CLOSED = {_OBJECT: NOT_A_MEMBER_END, _ARRAY: NOT_AN_ELEMENT_END}
_match_empty = {
    _OBJECT: re.compile(rb"\{" + _WS + rb"\}").match,
    _ARRAY: re.compile(rb"\[" + _WS + rb"\]").match,
}
_match_separator = {
    _OBJECT: re.compile(_WS + rb"([,}])").match,
    _ARRAY: re.compile(_WS + rb"([,\]])").match,
}


class JsonReader:
    """A cursor over one body; every method leaves `at` behind what it read."""

    def __init__(self, body: bytes) -> None:
        self.size = len(body)
        self.text = body
        self.at = 0
        self.key = b""  # the last key that was read, as it was spelled
        try:
            body.decode()
        except UnicodeDecodeError as error:
            # Nothing that reaches the bad byte can be whole: cut there, and the grammar refuses.
            self.text = body[: error.start]

    def peek(self) -> bytes:
        """Show the byte at the cursor, nothing at the end."""
        return self.text[self.at : self.at + 1]

    def skip_ws(self) -> None:
        found = _match_ws(self.text, self.at)
        assert found is not None, "the pattern matches the empty string"
        self.at = found.end()

    def finish(self) -> None:
        """Refuse anything but whitespace up to the end of the body."""
        self.skip_ws()
        if self.at != self.size:
            raise refusal(TRAILING, self.at)

    def read_value(self, depth: int) -> bytes:
        """Pass the value at the cursor, inside `depth` open containers, and return its bytes."""
        start = self.at
        shallow = depth + _SHALLOW_DEPTH <= JSON_DEPTH_MAX and _match_shallow(self.text, start)
        if shallow:
            self.at = shallow.end()
            return shallow.group()
        self._skip_deep(depth)
        return self.text[start : self.at]

    def read_members(self, read_member: Callable[[str], object]) -> int:
        """Walk the object at the cursor; `read_member(key)` must pass its value. Count them."""
        if self._skip_empty(_OBJECT):
            return 0
        self.at += 1
        count = 1
        read_member(self._read_key())
        while not self._skip_separator(_OBJECT):
            read_member(self._read_key())
            count += 1
        return count

    def read_elements(self, read_element: Callable[[], object]) -> None:
        """Walk the array at the cursor; `read_element()` must pass each value."""
        if self._skip_empty(_ARRAY):
            return
        self.at += 1
        self.skip_ws()
        read_element()
        while not self._skip_separator(_ARRAY):
            self.skip_ws()
            read_element()

    def _read_key(self) -> str:
        """Pass a key, its colon and the whitespace around both."""
        found = _match_key(self.text, self.at)
        if found is None:
            self._refuse_key()
        self.at = found.end()
        self.key = found.group(1)
        return decode_string(self.key)

    def _refuse_key(self) -> NoReturn:
        self.skip_ws()
        found = _match_string(self.text, self.at)
        if found is None:
            raise refusal(NOT_A_KEY, self.at)
        self.at = found.end()
        self.skip_ws()
        raise refusal(NOT_A_COLON, self.at)

    def _skip_empty(self, opener: int) -> bool:
        found = _match_empty[opener](self.text, self.at)
        if found is None:
            return False
        self.at = found.end()
        return True

    def _skip_separator(self, opener: int) -> bool:
        """Pass the comma or the closer behind a value; True for the closer."""
        found = _match_separator[opener](self.text, self.at)
        if found is None:
            self.skip_ws()
            raise refusal(_NOT_CLOSED[opener], self.at)
        self.at = found.end()
        return found.group(1) != b","

    def _skip_deep(self, depth: int) -> None:
        """Pass any value with a stack of our own, never Python's."""
        openers = bytearray()
        while True:
            opened = self._skip_scalar_or_open(depth, openers)
            while openers and not opened:
                if not self._skip_separator(openers[-1]):
                    break
                openers.pop()
            if not openers:
                return
            if openers[-1] == _OBJECT:
                self._read_key()
            else:
                self.skip_ws()

    def _skip_scalar_or_open(self, depth: int, openers: bytearray) -> bool:
        """Return True if a container was entered and its first member has to be read next."""
        byte = self.peek()
        if byte not in (b"{", b"["):
            found = _match_scalar(self.text, self.at)
            if found is None:
                raise refusal(NOT_A_VALUE, self.at)
            self.at = found.end()
            return False
        if depth + len(openers) >= JSON_DEPTH_MAX:
            raise refusal(TOO_DEEP, self.at, JSON_DEPTH_MAX)
        if self._skip_empty(byte[0]):
            return False
        self.at += 1
        openers.append(byte[0])
        return True


def names_dead_letter(meta: bytes) -> bool:
    """Tell whether a whole object has a key of its own that only the server may write."""
    if b"$" not in meta and b"\\" not in meta:  # the plain case, in one look
        return False
    keys: list[str] = []
    reader = JsonReader(meta)

    def note(key: str) -> None:
        keys.append(key)
        reader.read_value(1)

    reader.read_members(note)
    return any(key.startswith(DEAD_LETTER_KEYS) for key in keys)


def decode_string(token: bytes) -> str:
    """Decode a string token with its quotes; half a surrogate pair stays half."""
    if b"\\" not in token:
        return token[1:-1].decode()
    decoded = json.loads(token)
    assert isinstance(decoded, str)
    return decoded
