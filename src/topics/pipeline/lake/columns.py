"""Columns of a table before and after: what has changed its type, and what is new. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Fields: TypeAlias = Sequence[Mapping[str, Any]]
"""Columns as Spark writes them in JSON."""


def changed_types(known: Fields, wanted: Fields) -> list[tuple[str, ...]]:
    """Return the columns that are there, but of another type: neither format reads both."""
    types = {field["name"]: field["type"] for field in wanted}
    found: list[tuple[str, ...]] = []
    for field in known:
        name, one = field["name"], field["type"]
        other = types.get(name, one)
        below = changed_types(_inner(one), _inner(other))
        if _kind(one) == _kind(other) == "struct":
            found += [(name, *path) for path in below]
        elif _kind(one) != _kind(other) or below:
            found.append((name,))
    return found


def has_new(known: Fields, wanted: Fields) -> bool:
    """Tell whether there are columns, at any depth, that were not there before."""
    types = {field["name"]: field["type"] for field in known}
    return any(
        field["name"] not in types or has_new(_inner(types[field["name"]]), _inner(field["type"]))
        for field in wanted
    )


def _kind(kind: Any) -> object:  # noqa: ANN401 - JSON
    return kind["type"] if isinstance(kind, dict) else kind


def _inner(kind: Any) -> Fields:  # noqa: ANN401 - JSON
    """Return what a type is made of, under names."""
    if not isinstance(kind, dict):
        return []
    names = [name for name in ("keyType", "valueType", "elementType") if name in kind]
    return kind.get("fields") or [{"name": name, "type": kind[name]} for name in names]
