"""From what a caller says in Python to what a group is asked: the values of the wire, checked."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from topics.errors import RequestError

T = TypeVar("T")


def build_request(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Make a request of the wire from Python values; RequestError where one cannot be used."""
    try:
        return msgspec.convert(_plain(fields), kind)
    except msgspec.ValidationError as error:
        raise RequestError(str(error)) from None


def _plain(value: object) -> object:
    """Return builtins, which is what msgspec converts from."""
    if isinstance(value, msgspec.Struct):
        return _plain({n: v for n, v in msgspec.structs.asdict(value).items() if v is not None})
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value
