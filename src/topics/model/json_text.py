"""JSON that its grammar allows and msgspec refuses: half a surrogate pair in a string.

The log takes it and gives it back byte for byte, so whatever of ours looks into records has to read
it too. msgspec comes first, for speed; this is for what it refuses.
Keeps: `Raw` parts are the very bytes that were there.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

T = TypeVar("T")
# Numbers stay text: one of five thousand digits is JSON, and no int of Python's.
_JSON = json.JSONDecoder(parse_int=str, parse_float=str)
_SCAN = _JSON.raw_decode
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_SPACE = re.compile(r"[ \t\n\r]*")


def decode_text(text: bytes | Raw, kind: type[T]) -> T:
    """Decode as msgspec does, also what it refuses though it is JSON."""
    decoder = _DECODERS.get(kind) or _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        found: T = decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as refused:
        try:
            _JSON.decode(bytes(text).decode())
        except (ValueError, RecursionError):
            raise refused from None  # it is no JSON
        found = _convert(bytes(text), kind)
    return found


def decode_value(text: bytes | Raw) -> Any:  # noqa: ANN401 - any JSON
    """Decode any JSON value; half a surrogate pair becomes a str that has no UTF-8."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(bytes(text))


def decode_object(text: bytes | Raw) -> dict[str, Raw]:
    """Return the members of an object, or nothing of null; each as the bytes it is."""
    return decode_text(text, dict[str, Raw] | None) or {}  # type: ignore[arg-type] # a union is a type


def encode_object(members: Mapping[str, Raw]) -> bytes:
    """Join members to an object; a name may have half a surrogate pair."""
    parts = [json.dumps(name).encode() + b":" + bytes(raw) for name, raw in members.items()]
    return b"{" + b",".join(parts) + b"}"


def has_utf8(text: str) -> bool:
    """Tell whether a text can be written as JSON without escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _convert(text: bytes, kind: Any) -> Any:  # noqa: ANN401 - a type, and a value of it
    if kind is Raw:
        return Raw(text)
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return [_convert(part, item) for part in _split_array(text)]
    if kind == dict[str, Raw] | None:
        return None if text == b"null" else {k: Raw(v) for k, v in _split_object(text).items()}
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _build(_split_object(text), kind)
    return msgspec.json.decode(text, type=kind)


def _build(members: Mapping[str, bytes], kind: type[Struct]) -> Struct:
    fields = {
        field.name: _convert(members[field.encode_name], field.type)
        for field in msgspec.structs.fields(kind)
        if field.encode_name in members
    }
    return kind(**fields)


def _split_object(text: bytes) -> dict[str, bytes]:
    source = text.decode()
    members: dict[str, bytes] = {}
    at = _skip(source, _skip(source, 0) + 1)
    while source[at] != "}":
        name, at = _SCAN(source, at)
        start = _skip(source, _skip(source, at) + 1)
        _, end = _SCAN(source, start)
        members[name] = source[start:end].encode()
        at = _next(source, end)
    return members


def _split_array(text: bytes) -> list[bytes]:
    source = text.decode()
    items: list[bytes] = []
    at = _skip(source, _skip(source, 0) + 1)
    while source[at] != "]":
        _, end = _SCAN(source, at)
        items.append(source[at:end].encode())
        at = _next(source, end)
    return items


def _next(source: str, at: int) -> int:
    """Step over a comma to what follows it, or stay at the end."""
    at = _skip(source, at)
    return _skip(source, at + 1) if source[at] == "," else at


def _skip(source: str, at: int) -> int:
    found = _SPACE.match(source, at)
    assert found is not None
    return found.end()
