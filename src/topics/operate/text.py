"""Words and numbers of a report as text for people."""

import unicodedata
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: control and format characters become `?`."""
    return "".join("?" if unicodedata.category(c) in _HIDDEN else c for c in text)


def format_size(size: int) -> str:
    """Return a size as people read it: `3.2 MiB`."""
    amount = float(size)
    for unit in _UNITS[:-1]:
        if amount < _STEP:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _STEP
    return f"{amount:.1f} {_UNITS[-1]}"


def format_range(first_seq: int | None, last_seq: int | None) -> str:
    """Return `seq 7` or `seqs 7 to 9`."""
    if first_seq is None:
        return ""
    if last_seq is None or last_seq == first_seq:
        return f"seq {first_seq}"
    return f"seqs {first_seq} to {last_seq}"


def plural(count: int, noun: str) -> str:
    """Return `1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
