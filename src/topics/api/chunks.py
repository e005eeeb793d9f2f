"""A chunked body, taken apart as it comes: bounded, and strict about every byte of framing."""

import re

from topics.errors import PayloadTooLarge, RequestError

MAX_SIZE_LINE_BYTES = 256
MAX_TRAILER_BYTES = 4 * 1024
MAX_LINES_AT_ONCE = 64
"""Then somebody else has a turn: a chunk may be one byte long."""
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
"""Nothing in it is a control character: a bare line feed would end it for some and not for us."""
_TRAILER_LINE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\r\n")


class ChunkedBody:
    """Feed it bytes; `done` when the last chunk and the trailer were read."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = 0
        """Bytes of the current chunk, with its line end, that are still to come."""
        self._in_trailer = False
        self._trailer_bytes = 0
        self.body = bytearray()
        self.done = False

    def feed(self, data: bytes | bytearray) -> int:
        """Take some of what belongs to this body; return how many bytes that was.

        0: the rest has to come first, or the body is done.
        """
        at = lines = 0
        while not self.done and lines < MAX_LINES_AT_ONCE:
            if self._left:
                used = self._take_data(data, at)
            else:
                used = self._take_line(data, at)
                lines += 1
            if used == 0:
                break
            at += used
        return at

    def _take_data(self, data: bytes | bytearray, at: int) -> int:
        end = min(len(data), at + self._left)
        payload_end = min(end, at + max(0, self._left - 2))
        self.body += data[at:payload_end]
        ending = data[payload_end:end]
        expected = b"\r\n"[2 - self._left :] if self._left < 2 else b"\r\n"
        if not expected.startswith(bytes(ending)):
            raise RequestError("a chunk does not end where its size says")
        self._left -= end - at
        return end - at

    def _take_line(self, data: bytes | bytearray, at: int) -> int:
        limit = MAX_TRAILER_BYTES if self._in_trailer else MAX_SIZE_LINE_BYTES
        pattern = _TRAILER_LINE if self._in_trailer else _SIZE_LINE
        line = pattern.match(data, at, at + limit + 2)
        if line is None:
            self._check_unread(data, at, limit)
            return 0
        size = line.end() - at
        if self._in_trailer:
            self._trailer_bytes += size - 2
            if self._trailer_bytes > MAX_TRAILER_BYTES:
                raise RequestError("the trailer of a chunked body is too long")
            self.done = size == 2
        else:
            self._start_chunk(int(line[1], 16))
        return size

    def _check_unread(self, data: bytes | bytearray, at: int, limit: int) -> None:
        """Refuse a line that is none; return where only its end is missing."""
        end = data.find(b"\r\n", at, at + limit + 2)
        if end < 0 and len(data) - at > limit:
            raise RequestError("a chunk header or trailer is too long")
        if end >= 0 and self._in_trailer:
            raise RequestError("the trailer of a chunked body has a control character in it")
        if end >= 0:
            raise RequestError("a chunk size must be a hexadecimal number in a line of its own")

    def _start_chunk(self, size: int) -> None:
        if len(self.body) + size > self._max_bytes:
            raise PayloadTooLarge(f"a body may have {self._max_bytes} bytes here")
        self._in_trailer = size == 0
        self._left = size + 2 if size else 0
