"""A body that came compressed: unpacked within bounds."""

import zlib

from topics.api.head import Head
from topics.errors import PayloadTooLarge, RequestError, UnsupportedMediaType

MAX_RATIO = 100
SMALL_BYTES = 64 * 1024
"""Below this a high ratio harms nobody."""
_GZIP = 16 + zlib.MAX_WBITS


def check_body_size(head: Head, size: int) -> None:
    """Refuse a body that is larger than its route takes."""
    if size > head.body_max:
        raise PayloadTooLarge(f"a body may have {head.body_max} bytes here")


def decode_body(head: Head, body: bytes | bytearray, max_bytes: int) -> bytes | bytearray:
    """Undo the Content-Encoding of a body."""
    encoding = head.headers["content-encoding"].lower()
    if encoding in ("identity", ""):
        return body
    if encoding != "gzip":
        raise UnsupportedMediaType("the only Content-Encoding is gzip")
    limit = min(max_bytes, max(SMALL_BYTES, MAX_RATIO * len(body)))
    unpacker = zlib.decompressobj(_GZIP)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestError(f"the body is not gzip: {error}") from None
    if len(unpacked) > limit:
        raise PayloadTooLarge(
            f"a body may have {max_bytes} bytes, and {MAX_RATIO} times its compressed size"
        )
    if not unpacker.eof or unpacker.unused_data:
        raise RequestError("the gzip body is cut short, or goes on behind its end")
    return unpacked
