"""The `id:` of a frame: where a watcher stands in each of its topics.

base64url without padding of a JSON map from topic to seq. A topic that was deleted and made again
under a watcher also has an entry `@topic`, which tells the lives apart; no topic name begins so.
"""

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Mapping
from typing import Annotated

import msgspec

from topics.errors import RequestError

LIFE = "@"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_Seq = Annotated[int, msgspec.Meta(ge=0)]
_DECODE = msgspec.json.Decoder(dict[str, _Seq]).decode


def encode_event_id(cursors: Mapping[str, int]) -> bytes:
    encoded = b2a_base64(msgspec.json.encode(cursors), newline=False)
    return encoded.translate(_URL_SAFE, b"=")


def decode_event_id(text: str) -> dict[str, int]:
    """Return the map behind an id; RequestError for what was never given out."""
    padded = text + "=" * (-len(text) % 4)
    try:
        return _DECODE(b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, msgspec.MsgspecError):
        raise RequestError("Last-Event-ID was not given out here: connect without it") from None
