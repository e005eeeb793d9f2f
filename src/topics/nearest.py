"""A word for a wrong word: what was probably meant by a name that nobody knows.

Keeps: the work is bounded, however long the name is.
"""

import difflib
from collections.abc import Iterable

from topics.errors import UnknownField

_SHOWN_CHARS = 64
"""No name of ours comes near it."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like this one, None if none does."""
    if len(name) > _SHOWN_CHARS:
        return None
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def unknown_field(
    name: str, known: Iterable[str], *, what: str = "field", where: str = ""
) -> UnknownField:
    """Build the error for a name that is not one of these; `where` leads its message."""
    known = sorted(known)
    nearest = nearest_name(name, known)
    shown = name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + "…"
    if nearest is not None:
        hint = f"did you mean {nearest!r}?"
    elif known:
        hint = f"known are {', '.join(known)}"
    else:
        hint = "none is known here"
    return UnknownField(f"{where}unknown {what} {shown!r}: {hint}", shown, nearest)
