"""Why a request body is refused, in words; both twins take their messages from here.

When a body has several faults, the first in this order decides:

1. whatever a reader from front to back meets first: no JSON, nested too deep, or a field of the
   body or of a record that nobody knows (what follows it is not looked at any more);
   then: the body is not an object;
2. `records` is missing, not an array, or empty; then it has too many records;
3. the batch-wide `node`;
4. the first bad record; inside it: shape, `data`, `tag`, `key` (for
   partitions), `node`, `meta`, its size, and whether
   the frames up to it still fit in 4 GiB.
"""

import json
from typing import Final

from topics.errors import BatchTooLarge, RecordTooLarge, RequestError, UnknownField
from topics.nearest import unknown_field

NOT_A_VALUE: Final = 1
NOT_A_KEY: Final = 2
NOT_A_COLON: Final = 3
NOT_A_MEMBER_END: Final = 4
NOT_AN_ELEMENT_END: Final = 5
TRAILING: Final = 6
TOO_DEEP: Final = 7
NOT_AN_OBJECT: Final = 8
NO_RECORDS: Final = 9
RECORDS_NOT_AN_ARRAY: Final = 10
RECORDS_EMPTY: Final = 11
TOO_MANY_RECORDS: Final = 12
DEFAULT_NODE_NOT_A_STRING: Final = 13
DEFAULT_NODE_SURROGATE: Final = 14
DEFAULT_NODE_TOO_LONG: Final = 15
RECORD_NOT_AN_OBJECT: Final = 16
NO_DATA: Final = 17
TAG_NOT_A_STRING: Final = 18
TAG_SURROGATE: Final = 19
TAG_TOO_LONG: Final = 20
NODE_NOT_A_STRING: Final = 21
NODE_SURROGATE: Final = 22
NODE_TOO_LONG: Final = 23
META_NOT_AN_OBJECT: Final = 24
META_TOO_MANY_KEYS: Final = 25
META_TOO_LONG: Final = 26
RECORD_TOO_LARGE: Final = 27
BATCH_TOO_WIDE: Final = 28
KEY_NOT_A_STRING: Final = 29
KEY_SURROGATE: Final = 30
KEY_TOO_LONG: Final = 31
RECORD_STRANGE: Final = 32
DATA_NOT_JSON: Final = 33
TAG_NOT_TEXT: Final = 34
NODE_NOT_TEXT: Final = 35
TIME_STEPS_BACK: Final = 36
SEGMENT_TOO_WIDE: Final = 37
META_OF_SERVER: Final = 38
UNKNOWN_FIELD: Final = 39
UNKNOWN_RECORD_FIELD: Final = 40

RECORD_FIELDS: Final = ("data", "tag", "key", "node", "meta")
ENVELOPE_FIELDS: Final = (
    "create",
    "config",
    "producer_id",
    "producer_seq",
    "idempotency_key",
    "disable_backpressure",
    "queue",
    "op",
    "topic",
    "request_id",
)
MESSAGE_FIELDS: Final = ("op", "topic", "request_id")
"""Of these, what only a message of a WebSocket has: whoever takes another body refuses them."""
BODY_FIELDS: Final = ("records", "node", *ENVELOPE_FIELDS)
_TOKEN_BYTES_MAX = 400
"""A longer name is shown as it begins, escapes and all."""

_JSON = "the body is not valid JSON at byte {where}: "
_RECORD = "record {where}: "
_EXAMPLE = '{"records": [{"data": …}]}'
_SURROGATE = "holds half a surrogate pair: send whole characters"

# {where} is a byte offset or a record index, {limit} the limit that was passed.
_MESSAGES: Final[dict[int, tuple[type[RequestError], str]]] = {
    NOT_A_VALUE: (RequestError, _JSON + "expected a whole JSON value"),
    NOT_A_KEY: (RequestError, _JSON + "expected a quoted key"),
    NOT_A_COLON: (RequestError, _JSON + "expected ':' after a key"),
    NOT_A_MEMBER_END: (RequestError, _JSON + "expected ',' or '}}' after a member"),
    NOT_AN_ELEMENT_END: (RequestError, _JSON + "expected ',' or ']' after an element"),
    TRAILING: (RequestError, _JSON + "expected nothing behind the object"),
    TOO_DEEP: (RequestError, "the body is nested deeper than {limit} at byte {where}: flatten it"),
    NOT_AN_OBJECT: (RequestError, "the body must be a JSON object with a 'records' array"),
    NO_RECORDS: (RequestError, "'records' is missing: send an array of at least one record"),
    RECORDS_NOT_AN_ARRAY: (RequestError, "'records' must be an array of records"),
    RECORDS_EMPTY: (RequestError, "'records' is empty: send at least one record"),
    TOO_MANY_RECORDS: (BatchTooLarge, "'records' holds {where}, the limit is {limit}: split it"),
    DEFAULT_NODE_NOT_A_STRING: (RequestError, "'node' must be a string or null"),
    DEFAULT_NODE_SURROGATE: (RequestError, f"'node' {_SURROGATE}"),
    DEFAULT_NODE_TOO_LONG: (RequestError, "'node' is longer than {limit} bytes: shorten it"),
    RECORD_NOT_AN_OBJECT: (RequestError, _RECORD + "must be an object with 'data'"),
    NO_DATA: (RequestError, _RECORD + "'data' is missing: send any JSON value, null at least"),
    TAG_NOT_A_STRING: (RequestError, _RECORD + "'tag' must be a string or null"),
    TAG_SURROGATE: (RequestError, f"{_RECORD}'tag' {_SURROGATE}"),
    TAG_TOO_LONG: (RequestError, _RECORD + "'tag' is longer than {limit} bytes: shorten it"),
    KEY_NOT_A_STRING: (RequestError, _RECORD + "'key' must be a string or null"),
    KEY_SURROGATE: (RequestError, f"{_RECORD}'key' {_SURROGATE}"),
    KEY_TOO_LONG: (RequestError, _RECORD + "'key' is longer than {limit} bytes: shorten it"),
    NODE_NOT_A_STRING: (RequestError, _RECORD + "'node' must be a string or null"),
    NODE_SURROGATE: (RequestError, f"{_RECORD}'node' {_SURROGATE}"),
    NODE_TOO_LONG: (RequestError, _RECORD + "'node' is longer than {limit} bytes: shorten it"),
    META_NOT_AN_OBJECT: (RequestError, _RECORD + "'meta' must be an object or null"),
    META_TOO_MANY_KEYS: (RequestError, _RECORD + "'meta' has more than {limit} keys: drop some"),
    META_TOO_LONG: (RequestError, _RECORD + "'meta' is longer than {limit} bytes: shorten it"),
    META_OF_SERVER: (
        RequestError,
        _RECORD + "'meta' has a key that begins with $dead_letter_: only the server writes those, "
        "rename or drop it",
    ),
    RECORD_TOO_LARGE: (
        RecordTooLarge,
        _RECORD + "'data' and 'meta' are longer than {limit} bytes: split the record",
    ),
    RECORD_STRANGE: (RequestError, _RECORD + "is not of this topic, or is no record of ours"),
    DATA_NOT_JSON: (RequestError, _RECORD + "'data' is not one JSON value, or nested too deep"),
    TAG_NOT_TEXT: (RequestError, _RECORD + "'tag' is not UTF-8, or has no flag"),
    NODE_NOT_TEXT: (RequestError, _RECORD + "'node' is not UTF-8, or has no flag"),
    TIME_STEPS_BACK: (RequestError, _RECORD + "its time is before that of the one before it"),
    SEGMENT_TOO_WIDE: (BatchTooLarge, _RECORD + "does not fit the segment any more: begin another"),
    BATCH_TOO_WIDE: (BatchTooLarge, "the batch takes more than {limit} bytes: split it"),
}


def field_refusal(token: bytes, record: int | None) -> UnknownField:
    """Build the error for an unknown field, of the body or of a record; `token` has its quotes."""
    if len(token) <= _TOKEN_BYTES_MAX:
        name = json.loads(token.decode())
    else:
        name = token[1:_TOKEN_BYTES_MAX].decode(errors="ignore")
    if record is not None:
        return unknown_field(name, RECORD_FIELDS, where=_RECORD.format(where=record))
    if name in RECORD_FIELDS:
        message = f"unknown field {name!r}: it belongs into a record, as in {_EXAMPLE}"
        return UnknownField(message, name, "records")
    return unknown_field(name, [name for name in BODY_FIELDS if name not in MESSAGE_FIELDS])


def refusal(reason: int, where: int = 0, limit: int = 0) -> RequestError:
    """Build the error for one of the reasons above."""
    error, message = _MESSAGES[reason]
    return error(message.format(where=where, limit=limit))
