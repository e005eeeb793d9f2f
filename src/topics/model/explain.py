"""What msgspec refuses, in words that help: the nearest name, the values there are.

Keeps: the work is bounded by the path to what is wrong, not by what was sent.
"""

import re
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from topics.errors import RequestError
from topics.nearest import nearest_name, unknown_field

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?", re.DOTALL)
_NO_VALUE = re.compile(r"Invalid enum value (.*) - at `\$(.*)`", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(?:\.\.\.|\d+)\]")
_SHOWN_CHARS = 64


def decode_kind(decode: object) -> object:
    """Return what a decoder decodes into, given its `decode`."""
    decoder: msgspec.json.Decoder[object] = getattr(decode, "__self__")  # noqa: B009 - no attribute to mypy
    return decoder.type


def explain(error: msgspec.ValidationError, kind: object, *, where: str = "") -> RequestError:
    """Build the error for what does not decode as `kind`; `where` leads its message."""
    text = str(error)
    unknown, no_value = _UNKNOWN.fullmatch(text), _NO_VALUE.fullmatch(text)
    if unknown is not None:
        path = unknown[2] or ""
        known = [field.encode_name for field in _fields_at(kind, path)]
        return unknown_field(unknown[1], known, where=where + _place(path, behind=": "))
    if no_value is not None:
        values = _values_at(kind, no_value[2])
        if values:
            return RequestError(where + _say_values(_place(no_value[2]), no_value[1], values))
    return RequestError(where + text)


def _say_values(place: str, found: str, values: list[str]) -> str:
    near = nearest_name(found.strip("'"), values)
    shown = found if len(found) <= _SHOWN_CHARS else found[:_SHOWN_CHARS] + "…"
    hint = "" if near is None else f": did you mean {near!r}?"
    return f"{place} must be one of {', '.join(values)}, not {shown}{hint}"


def _place(path: str, *, behind: str = "") -> str:
    return path.lstrip(".") + behind if path else ""


def _fields_at(kind: object, path: str) -> list[inspect.Field]:
    return [
        field
        for found in _types_at(kind, path)
        if isinstance(found, inspect.StructType)
        for field in found.fields
    ]


def _values_at(kind: object, path: str) -> list[str]:
    """Return what a field may be, in the order in which it was declared."""
    parent, _, name = path.rpartition(".")
    return [
        str(value)
        for found in _types_at(kind, parent)
        if isinstance(found, inspect.StructType)
        for value in _declared(get_type_hints(found.cls).get(name))
    ]


def _declared(hint: object) -> tuple[object, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(value for part in get_args(hint) for value in _declared(part))


@cache
def _describe(kind: object) -> inspect.Type:
    return inspect.type_info(kind)


def _types_at(kind: object, path: str) -> list[inspect.Type]:
    """Return what may stand at a path, as msgspec writes it: `.topics[...].from_seq`."""
    found = _plain(_describe(kind))
    for step in _STEP.finditer(path):
        found = [plain for one in found for plain in _enter(one, step[1])]
    return found


def _enter(kind: inspect.Type, name: str | None) -> list[inspect.Type]:
    if name is not None and isinstance(kind, inspect.StructType):
        return [t for field in kind.fields if field.encode_name == name for t in _plain(field.type)]
    if name is None and isinstance(kind, inspect.DictType):
        return _plain(kind.value_type)
    if name is None and isinstance(kind, inspect.CollectionType):
        return _plain(kind.item_type)
    return []


def _plain(kind: Any) -> list[inspect.Type]:  # noqa: ANN401 - a node of the tree
    """Return the types of a union, each without what was annotated."""
    if isinstance(kind, inspect.Metadata):
        return _plain(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [plain for one in kind.types for plain in _plain(one)]
    return [kind]
