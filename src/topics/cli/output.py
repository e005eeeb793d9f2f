"""What commands print: tables for people on a terminal, JSON lines for whoever reads a pipe.

Nothing that came from a server can steer a terminal: control characters are replaced there.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from topics.operate.text import printable


def for_people(*, as_json: bool) -> bool:
    """Tell whether a person reads the output."""
    return sys.stdout.isatty() and not as_json


def print_line(value: object) -> None:
    """Print one line of JSON, at once."""
    line = msgspec.json.encode(value).decode()
    sys.stdout.write((escape_hidden(line) if sys.stdout.isatty() else line) + "\n")
    sys.stdout.flush()


def escape_hidden(line: str) -> str:
    """Return the same JSON with every character that could steer a terminal as an escape."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(c if printable(c) == c else _escaped(c) for c in line)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool = False
) -> None:
    """Print one object a line, or a table with some of its fields."""
    if not for_people(as_json=as_json):
        for row in rows:
            print_line(row)
        return
    from topics.cli.tables import print_table  # noqa: PLC0415 - rich is slow: only for people

    print_table(columns, [[cell(row.get(column)) for column in columns] for row in rows])


def print_one(fields: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Print one object, or a line a field."""
    if not for_people(as_json=as_json):
        print_line(fields)
        return
    from topics.cli.tables import print_fields  # noqa: PLC0415 - rich is slow: only for people

    print_fields({name: cell(value) for name, value in fields.items()})


def say(text: str) -> None:
    """Tell a person something that is no result."""
    sys.stderr.write((printable(text) if sys.stderr.isatty() else text) + "\n")
    sys.stderr.flush()


def cell(value: object) -> str:
    """Return a value as it stands in a table."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return printable(text)


def fields_of(value: msgspec.Struct) -> dict[str, Any]:
    """Return a value of the model as JSON has it."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return fields
