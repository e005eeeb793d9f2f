"""The picture of `topics top`: fits the terminal, from 80x24 on; and the key that ends it."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from topics.cli.output import cell
from topics.cli.samples import View
from topics.cli.tables import plain_console
from topics.operate.text import format_size, printable

HEAD_LINES: Final = 4
SECTIONS: Final = (
    ("topics", ("topic", "writes_per_s", "head_seq", "records", "bytes")),
    ("queues", ("queue", "ready", "in_flight")),
    ("groups", ("group", "lag")),
)
ALL: Final = 1_000_000
Draw = Callable[[View], None]


def print_view(view: View, *, title: str) -> None:
    """Print all of it once."""
    console = plain_console()
    console.print(picture(view, title=title, lines=ALL, width=console.width))


@contextmanager
def show_live(title: str) -> Iterator[Draw]:
    """Give what draws a view over the one before; the screen is as it was afterwards."""
    console = plain_console()
    with Live(Text("…"), console=console, screen=True, auto_refresh=False) as live:

        def draw(view: View) -> None:
            lines, width = console.size.height - 1, console.size.width
            live.update(picture(view, title=title, lines=lines, width=width), refresh=True)

        yield draw


def picture(view: View, *, title: str, lines: int, width: int) -> RenderableType:
    """Return the view, cut to a number of lines: topics get what the others leave."""
    rows = {name: getattr(view, name) for name, _ in SECTIONS}
    room = share_lines({name: len(found) for name, found in rows.items()}, lines - HEAD_LINES)
    parts: list[RenderableType] = [*_head(view.server, title)]
    for name, columns in SECTIONS:
        if rows[name] and room[name] > 0:
            parts += [Text(""), _table(rows[name][: room[name]], columns, width)]
    return Group(*parts)


def share_lines(counts: Mapping[str, int], lines: int) -> dict[str, int]:
    """Return how many rows each section may show; each needs two lines more for its head.

    Queues and groups get up to a quarter of the lines each, and topics the rest.
    """
    free = lines - 2 * sum(1 for count in counts.values() if count)
    shares = {name: min(counts[name], max(1, lines // 4)) for name in ("queues", "groups")}
    left = max(0, free - sum(shares.values()))
    return {"topics": min(counts["topics"], left), **shares}


class Keys:
    """What is typed, without Enter; nothing where stdin is no terminal."""

    def __init__(self) -> None:
        self._saved: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._saved = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._saved is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved)

    def wait_for(self, key: str, seconds: float) -> bool:
        """Wait for something to be typed; tell whether it was this key."""
        sources = [] if self._saved is None else [sys.stdin.fileno()]
        readable, _, _ = select.select(sources, [], [], seconds)
        if not readable:
            return False
        typed = os.read(readable[0], 64)  # not by sys.stdin, whose buffer `select` does not see
        return not typed or key.encode() in typed


def _head(server: Mapping[str, float | None], title: str) -> Iterator[Text]:
    p99 = server["fsync_p99_ms"]
    yield Text(printable(f"topics top — {title}"), style="bold", no_wrap=True, overflow="ellipsis")
    yield _line(
        f"writes/s {server['writes_per_s']:,.1f}",
        f"reads/s {server['reads_per_s']:,.1f}",
        f"fsyncs/s {server['fsyncs_per_s']:,.1f}",
        "fsync p99 -" if p99 is None else f"fsync p99 ≤ {p99:,.2f} ms",
    )
    yield _line(
        f"{server['topics']:,.0f} topics",
        f"{server['records']:,.0f} records",
        format_size(int(server["bytes"] or 0)),
        f"at risk {server['at_risk_records']:,.0f}",
        f"{server['connections']:,.0f} connections",
    )
    if server["disk_full"]:
        yield Text("the disk is full: no records are taken", style="bold red")
    if server["read_only_shards"]:
        yield Text(f"{server['read_only_shards']:.0f} shards are read-only", style="bold red")


def _line(*parts: str) -> Text:
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")


def _table(rows: Sequence[Mapping[str, object]], columns: Sequence[str], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", width=min(width, 110))
    name, *numbers = columns
    table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*[Text(cell(row[column])) for column in columns])
    return table
