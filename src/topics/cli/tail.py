"""`topics tail`: what comes, as it comes."""

from typing import Annotated

import typer

from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.records import show_item
from topics.model.diff import Record


def run_tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    from_seq: Annotated[
        int | None, typer.Option("--from-seq", min=0, help="begin after this one; default: now")
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

    In a pipe each line is a record as JSON, or {"tombstone": …} where records
    were lost before they could be read.
    """
    with connect(url, context) as client:
        items = client.topic(topic).tail(
            from_seq=from_seq, until_caught_up=until_caught_up, match=match
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
