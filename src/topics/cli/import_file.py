"""`topics import`: records of files, into a topic, each once however often it is run."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer
import xxhash

from topics.cli.completion import complete_topics
from topics.cli.connect import AsJson, ContextName, DropDeadLetterMeta, DryRun, Url, connect
from topics.cli.files.source import Source, open_source
from topics.cli.output import print_rows
from topics.cli.progress import Step, record_bar
from topics.errors import BatchTooLarge, PayloadTooLarge, TopicNotFound

if TYPE_CHECKING:
    from topics.client import Topics

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 1024 * 1024
BATCHING: Final = "1"
"""To be raised with the two above: where a batch ends is part of what a rerun relies on."""
COLUMNS: Final = ("file", "records", "written", "already_there")
Records = list[dict[str, object]]


def run_import(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="JSON lines or Parquet; -: stdin")
    ],
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="where to", autocompletion=complete_topics),
    ],
    *,
    run: Annotated[
        str, typer.Option("--run", metavar="NAME", help="another name appends the same file again")
    ] = "",
    drop_dead_letter_meta: DropDeadLetterMeta = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Append the records of files, as `topics export` and `topics tail` write them.

    Each file is looked through first: one with a bad line is refused before
    anything is written. Run it again after a cut, and it writes the rest: a
    file is known by its content, for the life of the topic.
    """
    rows = []
    with ExitStack() as stack:
        sources = [
            stack.enter_context(open_source(name, drop_dead_letter_meta=drop_dead_letter_meta))
            for name in files
        ]
        client = stack.enter_context(connect(url, context))
        step = stack.enter_context(record_bar("importing", sum(s.count for s in sources)))
        keyed = _has_partitions(client, topic)
        for source in sources:
            written = 0
            if not dry_run:
                written = Import(client, topic, keyed=keyed, run=run).take(source, step)
            there = 0 if dry_run else source.count - written
            rows.append(
                {"file": source.name, "topic": topic, "records": source.count, "written": written}
                | {"already_there": there, "dry_run": dry_run}
            )
    print_rows(rows, COLUMNS, as_json=as_json)


class Import:
    """Writes one file in batches that end at the same places each time, numbered by their ends."""

    def __init__(self, client: "Topics", topic: str, *, keyed: bool, run: str) -> None:
        self._client = client
        self._topic = topic
        self._keyed = keyed
        self._run = run

    def take(self, source: Source, step: Step) -> int:
        """Return how many records were not there yet."""
        name = f"{BATCHING}:{source.identity}:{self._run}".encode()
        producer_id = f"import-{xxhash.xxh3_128_hexdigest(name)}"
        written = 0
        for last, batch in self._batches(source):
            written += self._send(batch, producer_id, last)
            step(len(batch))
        return written

    def _batches(self, source: Source) -> Iterator[tuple[int, Records]]:
        """Yield batches, each with the number of its last record."""
        batch: Records = []
        size = number = 0
        for number, record in enumerate(source.records(), start=1):
            batch.append(record.as_written(keyed=self._keyed))
            size += len(record.data) + len(record.meta)
            if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
                yield number, batch
                batch, size = [], 0
        if batch:
            yield number, batch

    def _send(self, batch: Records, producer_id: str, last: int) -> int:
        """Append a batch; one that is too large for this server goes as two halves."""
        try:
            appended = self._client.append(
                self._topic, batch, producer_id=producer_id, producer_seq=last
            )
        except (BatchTooLarge, PayloadTooLarge):
            if len(batch) == 1:
                raise
            middle = len(batch) // 2
            first = self._send(batch[:middle], producer_id, last - len(batch) + middle)
            return first + self._send(batch[middle:], producer_id, last)
        return 0 if appended.deduped else len(batch)


def _has_partitions(client: "Topics", topic: str) -> bool:
    try:
        return client.state(topic).partitions is not None
    except TopicNotFound:
        return False
