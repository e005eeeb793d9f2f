"""`topics top`: what a server does now."""

from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.output import for_people, print_line
from topics.cli.samples import Sample, View, compare, parse_sample
from topics.cli.screen import Keys, print_view, show_live
from topics.clock import Clock, SystemClock

if TYPE_CHECKING:
    from topics.client import Topics

ONCE_S = 1.0
"""Between the two looks of a table that is printed once."""


def run_top(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="print one table and leave, as in a pipe")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, max=60, help="seconds between two looks")
    ] = ONCE_S,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Show the busiest topics, queues and groups of a server; q or Ctrl-C leaves.

    In a pipe it prints lines of JSON, once: one for the server, then one for
    each topic, queue and group. Rates are those between two looks.
    """
    clock = SystemClock()
    people = for_people(as_json=as_json)
    with connect(url, context) as client:
        before = _look(client, clock)
        try:
            if people and not once:
                _watch(client, clock, before, interval_s)
                return
            clock.sleep(interval_s)
        except KeyboardInterrupt:
            return  # that is how one ends it
        view = compare(before, _look(client, clock))
    if people:
        print_view(view, title=client.url)
    else:
        _print_lines(view)


def _look(client: "Topics", clock: Clock) -> Sample:
    text = client.metrics()
    return parse_sample(text, at_s=clock.monotonic_s())


def _watch(client: "Topics", clock: Clock, before: Sample, interval_s: float) -> None:
    """Draw again and again, until somebody presses q."""
    with Keys() as keys, show_live(client.url) as draw:
        while not keys.wait_for("q", interval_s):
            after = _look(client, clock)
            draw(compare(before, after))
            before = after


def _print_lines(view: View) -> None:
    print_line({"kind": "server", **view.server})
    for kind, rows in (("topic", view.topics), ("queue", view.queues), ("group", view.groups)):
        for row in rows:
            print_line({"kind": kind, **row})
