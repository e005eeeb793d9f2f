"""Tables on a terminal. Text that comes here is printable already."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a row a line, under bold heads."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(Text, row))
    plain_console().print(table)


def print_fields(fields: Mapping[str, str]) -> None:
    """Print a field a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, Text(value))
    plain_console().print(table)


def plain_console() -> Console:
    """Return a console that takes nothing in the text for a command to itself."""
    return Console(highlight=False, markup=False, emoji=False)
