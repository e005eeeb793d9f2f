"""`topics tail`: what comes, as it comes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from topics.cli.completion import complete_topics
from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.output import say
from topics.cli.records import show_item
from topics.errors import RequestError
from topics.model.diff import Record
from topics.model.stream import Item, WatchItem

TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"]


def as_ms(time: datetime | None) -> int:
    """Return milliseconds since the epoch; 0 where no time was given."""
    return 0 if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)


def run_tail(  # noqa: PLR0913 - one argument a flag
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="its name, or a pattern: 'demo.*'", autocompletion=complete_topics
        ),
    ],
    *,
    from_seq: Annotated[
        int | None, typer.Option("--from-seq", min=0, help="begin after this one; default: now")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", formats=TIMES, help="begin at this time (UTC)")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", formats=TIMES, help="stop at this time (UTC)")
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="stop at the end instead of waiting")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="stop after so many records")
    ] = None,
    match: Annotated[str | None, typer.Option("--match", help="only with this tag")] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Print records as they come, until Ctrl-C; a server that restarts is waited for.

    So is a topic that is not there yet. Partitions are merged by time. In a
    pipe each line is a record as JSON, or {"tombstone": …} where records were
    lost before they could be read.
    """
    with connect(url, context) as client:
        items: Iterator[Item[object] | WatchItem]
        if "*" in topic:
            if since is not None or until is not None or from_seq:
                raise RequestError("--since, --until and a --from-seq above 0 go with one topic")
            if not until_caught_up and not client.topics(topic.partition("*")[0]):
                say(f"-- no topic fits {topic} yet: waiting for one")
            items = client.watch({topic: from_seq}, match=match, until_caught_up=until_caught_up)
        elif from_seq is None and since is None and until is None:
            items = client.topic(topic).tail(match=match, until_caught_up=until_caught_up)
        else:
            items = client.topic(topic).read(
                from_seq=from_seq or 0,
                from_ts=as_ms(since),
                until_ts=as_ms(until),
                until_caught_up=until_caught_up,
                match=match,
            )
        shown = 0
        try:
            for item in items:
                show_item(item, as_json=as_json)
                shown += isinstance(item, Record)
                if shown == count:
                    return
        except KeyboardInterrupt:
            return  # that is how one ends it
