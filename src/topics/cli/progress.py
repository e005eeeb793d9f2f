"""How far a command is with records: on stderr while it runs, gone afterwards."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Step = Callable[[int], None]


class RateColumn(ProgressColumn):
    """Records a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


@contextmanager
def record_bar(what: str, total: int, *, hidden: bool = False) -> Iterator[Step]:
    """Show a bar with rate and time left; nothing where stderr is no terminal."""
    if hidden or not sys.stderr.isatty():
        yield _ignore
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


def _ignore(_count: int) -> None:
    """Tell nobody."""
