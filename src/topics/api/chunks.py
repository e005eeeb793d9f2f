"""A chunked body, taken apart as it comes: bounded, and strict about every byte of framing."""

from topics.errors import PayloadTooLarge, RequestError

MAX_SIZE_LINE_BYTES = 256
MAX_TRAILER_BYTES = 4 * 1024
_HEX = frozenset(b"0123456789abcdefABCDEF")


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
        """Take what belongs to this body; return how many bytes that was."""
        at = 0
        while not self.done:
            used = self._take_data(data, at) if self._left else self._take_line(data, at)
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
        end = data.find(b"\r\n", at)
        limit = MAX_TRAILER_BYTES if self._in_trailer else MAX_SIZE_LINE_BYTES
        if (end if end >= 0 else len(data)) - at > limit:
            raise RequestError("a chunk header or trailer is too long")
        if end < 0:
            return 0
        line = bytes(data[at:end])
        if self._in_trailer:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MAX_TRAILER_BYTES:
                raise RequestError("the trailer of a chunked body is too long")
            self.done = not line
        else:
            self._start_chunk(line)
        return end + 2 - at

    def _start_chunk(self, line: bytes) -> None:
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not digits or len(digits) > 16 or not _HEX.issuperset(digits):
            raise RequestError("a chunk size must be a hexadecimal number")
        size = int(digits, 16)
        if len(self.body) + size > self._max_bytes:
            raise PayloadTooLarge(f"a body may have {self._max_bytes} bytes")
        self._in_trailer = size == 0
        self._left = size + 2 if size else 0
