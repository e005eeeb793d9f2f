"""What the meta of a dead letter says beside that of its job: keys that only the server writes.

Keeps: who carries letters elsewhere is told of these keys before a server refuses them, and gets
the meta that the job had, member for member, where they are dropped.
Reference: docs/reference/queues.md.
"""

from typing import Final

from msgspec import DecodeError, Raw

from topics.model.diff import NO_META
from topics.model.json_text import decode_object, encode_object

PREFIX: Final = "$dead_letter_"
FROM: Final = "$dead_letter_from"
DELIVERIES: Final = "$dead_letter_deliveries"
SRC_SEQ: Final = "$dead_letter_src_seq"
ORIGINAL_META: Final = "$dead_letter_meta"
"""Of a meta that had no room for the others: all of it."""
_SIGN: Final = PREFIX[1:].encode()  # the first character may be escaped


def find_letter_key(meta: bytes | Raw) -> str | None:
    """Return the first key of an object that only the server may write; none of anything else."""
    text = bytes(meta)
    if (_SIGN not in text and b"\\" not in text) or not text.startswith(b"{"):
        return None
    try:
        names = decode_object(text)
    except (DecodeError, RecursionError):
        return None
    return next((name for name in names if name.startswith(PREFIX)), None)


def drop_letter_keys(meta: bytes | Raw) -> Raw:
    """Return the meta that the job had before it died, null where it had none."""
    members = decode_object(meta)
    while bytes(members.get(ORIGINAL_META, b"")).startswith(b"{"):
        members = decode_object(members[ORIGINAL_META])
    kept = {name: raw for name, raw in members.items() if not name.startswith(PREFIX)}
    return Raw(encode_object(kept)) if kept else NO_META
