"""Every kind of loss, by every way, before and while a topic is read: told, and told exactly.

The readers as Spark would call them, without a session: the server is real, and its files are.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.pipeline.conftest import SETTINGS as SMALL
from tests.pipeline.feed import Feed, wait_until
from tests.pipeline.losses import LOSSES, Gaps, delete, fill, recreate

from topics.errors import DataLoss
from topics.pipeline.options import SourceOptions, Via
from topics.pipeline.plan import Task
from topics.testing.server_process import ServerProcess

datasource = pytest.importorskip("pyspark.sql.streaming.datasource")

from topics.pipeline.read import (  # noqa: E402 - needs pyspark, checked above
    TaskPartition,
    TopicsReader,
    open_catalog,
    take_snapshot,
)
from topics.pipeline.stream import TopicsStreamReader  # noqa: E402 - needs pyspark, checked above

VIAS: list[Via] = ["segments", "http", "auto"]
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("data", pa.string()),
        ("gap_from", pa.int64()),
        ("gap_to", pa.int64()),
        ("gap_reason", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serve with a cold tier, to which all but one sealed segment go."""
    directory = tmp_path_factory.mktemp("server")
    tiers = {"TOPICS_COLD_DIR": str(directory / "cold"), "TOPICS_HOT_RETAIN_SEGMENTS": "1"}
    with ServerProcess(str(directory / "data"), settings=SMALL | tiers) as process:
        yield process


def options_of(feed: Feed, via: Via, *, strict: bool = False, **more: Any) -> SourceOptions:  # noqa: ANN401 - any option
    return SourceOptions(
        url=feed.url, topics=(feed.topic,), via=via, fail_on_data_loss=strict, starting=0, **more
    )


def open_batch(options: SourceOptions) -> TopicsReader:
    with closing(open_catalog(options)) as catalog:
        return TopicsReader(options, SCHEMA, take_snapshot(options, catalog))


class Batch:
    """A batch query over everything there was when it was made."""

    def __init__(self, options: SourceOptions) -> None:
        self._reader = open_batch(options)

    def close(self) -> None:
        """Nothing is held open."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        for partition in self._reader.partitions():
            yield from self._reader.read(partition)


class Stream:
    """One batch of a stream, from the first seq to the head that was there when it was made."""

    def __init__(self, options: SourceOptions) -> None:
        self._reader = TopicsStreamReader(options, SCHEMA)
        self._start = self._reader.initialOffset()
        self._end = self._reader.latestOffset(self._start, datasource.ReadAllAvailable())

    def close(self) -> None:
        self._reader.stop()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for partition in self._reader.partitions(self._start, self._end):
            yield from self._reader.read(partition)


Query = type[Batch] | type[Stream]
Ask = Callable[[Query, SourceOptions], Iterator[pa.RecordBatch]]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Fix a range now, read it when the first batch is taken, and close everything at the end."""
    with ExitStack() as stack:

        def ask_now(query: Query, options: SourceOptions) -> Iterator[pa.RecordBatch]:
            made = query(options)
            stack.callback(made.close)
            return made.batches()

        yield ask_now


def rows_of(batches: Iterator[pa.RecordBatch]) -> tuple[list[int], Gaps]:
    """Return the seqs and the gaps; a row is one of them."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    gaps = [(r["gap_from"], r["gap_to"], r["gap_reason"]) for r in rows if r["gap_from"]]
    assert all(row["data"] is None for row in rows if row["gap_from"])
    return sorted(row["seq"] for row in rows if row["seq"]), gaps


@pytest.fixture
def filled(feed: Feed, request: pytest.FixtureRequest) -> Feed:
    return fill(feed, in_memory="crash" in request.node.name)


@pytest.mark.parametrize("query", [Batch, Stream])
@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("lose", LOSSES)
def test_a_loss_before_the_read_fails_it_with_the_range_or_is_a_row(
    filled: Feed,
    server: ServerProcess,
    ask: Ask,
    query: Query,
    via: Via,
    lose: Callable[[Feed, ServerProcess], Gaps],
) -> None:
    strict = ask(query, options_of(filled, via, strict=True))
    lenient = ask(query, options_of(filled, via))
    gaps = lose(filled, server)
    with pytest.raises(DataLoss, match=rf"lost records 1 to {gaps[0][1]} \({gaps[0][2]}\)"):
        rows_of(strict)
    seqs, told = rows_of(lenient)
    assert told == gaps
    assert seqs == list(range((gaps[0][1] or 0) + 1, 351))


@pytest.mark.parametrize("query", [Batch, Stream])
@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("lose", [delete, recreate])
def test_a_topic_that_goes_while_it_is_read_leaves_rows_and_gaps_without_a_seq_between(
    filled: Feed,
    server: ServerProcess,
    ask: Ask,
    query: Query,
    via: Via,
    lose: Callable[[Feed, ServerProcess], Gaps],
) -> None:
    strict, lenient = (
        ask(query, options_of(filled, via, strict=strict, records_per_partition=120))
        for strict in (True, False)
    )
    first = [next(strict), next(lenient)][1]
    ((_, _, reason),) = lose(filled, server)
    with pytest.raises(DataLoss, match=rf"to \d+ \({reason}\)"):
        rows_of(strict)
    seqs, told = rows_of(iter([first, *lenient]))
    assert {reason} == {why for _, _, why in told}
    lost = [seq for gap_from, gap_to, _ in told for seq in range(gap_from, (gap_to or 0) + 1)]
    assert sorted([*seqs, *lost]) == list(range(1, 351))
    assert len(seqs) >= 100


@pytest.mark.parametrize("query", [Batch, Stream])
@pytest.mark.parametrize("via", VIAS)
def test_what_is_appended_while_it_is_read_is_not_of_this_query(
    filled: Feed, ask: Ask, query: Query, via: Via
) -> None:
    reading = ask(query, options_of(filled, via))
    first = next(reading)
    filled.number(200, start=350)
    assert rows_of(iter([first, *reading])) == (list(range(1, 351)), [])


@pytest.mark.parametrize("via", VIAS)
def test_segments_that_have_moved_to_the_cold_tier_are_read_where_they_are(
    filled: Feed, server: ServerProcess, via: Via
) -> None:
    """A plan of before names the files where they were; its pins run out after a minute."""
    wait_until(lambda: sum(s["tier"] == "cold" for s in filled.sealed()) >= 2, "cold segments")
    reader = open_batch(options_of(filled, via))
    (partition,) = reader.partitions()
    assert isinstance(partition, TaskPartition)
    cold, hot = str(Path(server.data_dir).with_name("cold")), server.data_dir
    pieces = [
        replace(piece, data=piece.data and piece.data.replace(cold, hot))
        for piece in partition.task.pieces
    ]
    moved = sum(old != new for old, new in zip(partition.task.pieces, pieces, strict=True))
    assert moved >= 2 or via == "http"
    partition.task = Task(tuple(pieces))
    assert rows_of(iter(reader.read(partition))) == (list(range(1, 351)), [])
