"""Python values to JSON, as they are: what JSON cannot say is refused, never changed.

msgspec writes `null` for NaN and infinity. Keeps: what holds one of them is refused with its place.
A text without `null` in it holds none, so most values are looked at no further.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from topics.errors import RequestError

_UNFIT = (TypeError, ValueError, OverflowError, RecursionError)
_PATH_CHARS = 200
HALF_PAIR = "half a surrogate pair stands in a text, send whole characters"
Path = tuple[object, ...]
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def encode_json(value: object, *, what: str = "a request") -> bytes:
    """Encode a value; `what` is its name in the error."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise RequestError(f"{what} must be JSON values: {HALF_PAIR}") from None
    except _UNFIT as error:
        raise RequestError(f"{what} must be JSON values: {error}") from None
    if b"null" in text:
        check_finite(value, what=what)
    return text


def list_records(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records of a write; refuse one record where a list of them is wanted."""
    if isinstance(records, Mapping | str | bytes | msgspec.Struct) or not _can_iterate(records):
        kind = type(records).__name__
        raise RequestError(f"records must be a list, as in [{{'data': …}}], and not a {kind}")
    return list(records)


def check_finite(value: object, *, what: str) -> None:
    """Refuse a value with a number in it that is none of JSON's."""
    if _is_plain(value):
        return
    found = next(_not_finite(value, ()), None)
    if found is not None:
        path, number = found
        raise RequestError(
            f"{_place(path, what)} is {number}, which JSON has no number for: send null, or text"
        )


def _can_iterate(value: object) -> bool:
    try:
        iter(value)  # type: ignore[call-overload] # that is the question
    except TypeError:
        return False
    return True


def _is_plain(value: object) -> bool:
    """Tell, in C, that there is no such number; False: look closer.

    MessagePack keeps every float as it is: this byte, and then the eight of the number.
    """
    try:
        return _NOT_FINITE.search(msgspec.msgpack.encode(value)) is None
    except _UNFIT:  # it says less than JSON
        return False


def _not_finite(value: object, path: Path) -> Iterator[tuple[Path, float]]:
    """Yield where numbers are that JSON has not, in whatever msgspec can encode."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path, value
        return
    for name, inner in _members(value):
        yield from _not_finite(inner, (*path, name))


def _members(value: Any) -> Iterator[tuple[object, object]]:  # noqa: ANN401 - any value
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple | AbstractSet):
        yield from enumerate(value)
    elif isinstance(value, msgspec.Struct):
        yield from ((name, getattr(value, name, None)) for name in value.__struct_fields__)
    elif dataclasses.is_dataclass(value):
        yield from ((f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value))
    elif hasattr(value, "__attrs_attrs__"):
        yield from ((a.name, getattr(value, a.name, None)) for a in value.__attrs_attrs__)


def _place(path: Path, what: str) -> str:
    """Name the place of a value: `record 3: data.x[2]`."""
    if len(path) >= 2 and path[0] == "records":
        return f"record {path[1]}: {_spell(path[2:]) or 'it'}"
    return f"{what}: {_spell(path)}" if path else what


def _spell(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")[:_PATH_CHARS]
