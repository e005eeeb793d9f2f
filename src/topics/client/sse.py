"""Server-sent events out of bytes, wherever these are cut. No I/O.

Keeps: what it holds of an event that is not whole is bounded.
"""

from typing import Final

from msgspec import Struct

from topics.errors import TopicsError

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Far more than a server sends in one: a few records, each smaller than a request may be."""
_MARK: Final = b"\xef\xbb\xbf"


class Event(Struct, frozen=True):
    """One event; `id` is the last one that was given, with this event or before it."""

    kind: str
    data: bytes
    id: str


class EventParser:
    """Takes the bytes of one stream."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """Of the line that is not whole."""
        self._data: list[bytes] = []
        self._bytes = 0
        self._kind = ""
        self._id = ""
        self._is_first_line = True
        self._after_return = False

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes; return the events that they complete."""
        if not data:
            return []
        after_return, self._after_return = self._after_return, data.endswith(b"\r")
        if after_return and data.startswith(b"\n"):
            data = data[1:]  # the second half of a line end that was cut
        events = []
        for piece in data.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            self._pieces.append(line)
            self._grow(len(line))
            if len(line) < len(piece) and (event := self._end_line()) is not None:
                events.append(event)
        return events

    def _grow(self, more: int) -> None:
        self._bytes += more
        if self._bytes > MAX_EVENT_BYTES:
            raise TopicsError(f"the server sent an event of more than {MAX_EVENT_BYTES} bytes")

    def _end_line(self) -> Event | None:
        line = b"".join(self._pieces)
        self._pieces = []
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_MARK)
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        self._take_field(name, value.removeprefix(b" "))
        if name != b"data":
            self._bytes -= len(line)
        return None

    def _take_field(self, name: bytes, value: bytes) -> None:
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._kind = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case _:  # a comment, `retry`, or a field that nobody knows
                pass

    def _end_event(self) -> Event | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data, self._bytes = "", [], 0
        return Event(kind, b"\n".join(data), self._id) if data else None
