"""`topics export`: what topics hold, into a file."""

import sys
from datetime import datetime
from typing import Annotated, Final

import typer

from topics.cli import exit_codes
from topics.cli.completion import complete_topics
from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.files.sink import STDOUT, Format, format_of, open_writer
from topics.cli.output import print_one, say
from topics.cli.progress import record_bar
from topics.cli.spans import Window, plan_spans, read_spans
from topics.cli.tail import TIMES, as_ms
from topics.errors import RequestError
from topics.model.diff import Tombstone
from topics.operate.text import format_range

STEP_RECORDS: Final = 200
"""A bar that moves with every record costs more than the record."""


class Gaps:
    """Tells of losses; ends the command at the first one unless they are allowed."""

    def __init__(self, *, allowed: bool) -> None:
        self.count = 0
        self._allowed = allowed

    def tell(self, topic: str, gap: Tombstone) -> None:
        self.count += 1
        say(f"lost: {format_range(gap.gap_from, gap.gap_to)} of {topic} ({gap.reason})")
        if not self._allowed:
            say("topics: the export ends here; --allow-gaps goes on")
            raise typer.Exit(exit_codes.GAPS)


def run_export(  # noqa: PLR0913 - one argument a flag
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="what to read", autocompletion=complete_topics),
    ],
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="where to; -: stdout")
    ] = STDOUT,
    kind: Annotated[
        Format | None, typer.Option("--format", help="default: what the name of FILE says")
    ] = None,
    from_seq: Annotated[int, typer.Option("--from-seq", min=0, help="begin after this one")] = 0,
    to_seq: Annotated[
        int | None, typer.Option("--to-seq", min=1, help="end with this one; default: the newest")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", formats=TIMES, help="begin at this time (UTC)")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", formats=TIMES, help="end before this time (UTC)")
    ] = None,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="go on where records were lost")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Write what topics hold now into a file, as JSON lines or Parquet.

    A partitioned topic is read whole, in the order of the times. A file has
    its name only when it is complete.

    Exit code 7: records in the range were lost before they could be read.
    """
    if since is not None and until is not None and until < since:
        raise RequestError("--until must not be before --since")
    window = Window(
        from_seq=from_seq, to_seq=to_seq or 0, from_ts=as_ms(since), until_ts=as_ms(until)
    )
    gaps = Gaps(allowed=allow_gaps)
    count = 0
    with connect(url, context) as client:
        plans = [plan_spans(client, topic, window) for topic in topics]
        total = sum(span.length for spans in plans for span in spans)
        on_screen = output == STDOUT and sys.stdout.isatty()
        with (
            record_bar("exporting", total, hidden=on_screen) as step,
            open_writer(output, format_of(output, kind)) as writer,
        ):
            for spans in plans:
                for record in read_spans(client, spans, window, gaps.tell):
                    writer.write(record)
                    count += 1
                    if count % STEP_RECORDS == 0:
                        step(STEP_RECORDS)
    if output != STDOUT:
        told = {"file": output, "topics": topics, "records": count, "gaps": gaps.count}
        print_one(told, as_json=as_json)
