"""A batch query: the range is fixed when the frame is loaded, planned when it is run.

Keeps: a DataFrame that is used twice reads the same range twice, whatever was appended between.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from topics.clock import SystemClock
from topics.errors import DataLoss, OptionError, ServerRefused, StorageError, TopicNotFound
from topics.model.segments import Manifest
from topics.pipeline.catalog import Catalog, ServerCatalog
from topics.pipeline.decode import Decoder
from topics.pipeline.directory import DirectoryCatalog
from topics.pipeline.http_reader import read_http
from topics.pipeline.local_files import check_shared, parse_file_uri
from topics.pipeline.offsets import PartRange, PartState, check_named, place_of
from topics.pipeline.options import SourceOptions, is_object_uri
from topics.pipeline.plan import (
    Gap,
    Piece,
    Plan,
    Span,
    Task,
    pieces_of,
    plan_batch,
    split_lost,
    task_records,
)
from topics.pipeline.push_down import Bounds, push
from topics.pipeline.segment_reader import read_segment
from topics.pipeline.server import Server
from topics.pipeline.worker import settle_worker

PIN_MS = 60_000
"""Short, as nobody tells when a query is over: tasks renew it while they read."""
_log = logging.getLogger("topics.pipeline")


class TaskPartition(InputPartition):
    """One task, as Spark carries it to an executor."""

    def __init__(self, task: Task, bounds: Bounds, pins: Mapping[str, str]) -> None:
        self.task = task
        self.bounds = bounds
        names = {piece.span.part.name for piece in task.pieces if piece.data is not None}
        self.pins = tuple(pins[name] for name in sorted(names) if name in pins)


class Snapshot(Struct, frozen=True):
    """What a query reads, fixed."""

    ranges: tuple[PartRange, ...]


def open_catalog(options: SourceOptions) -> Catalog:
    if options.path is not None:
        return DirectoryCatalog(options.path)
    return ServerCatalog(open_server(options))


def open_server(options: SourceOptions) -> Server:
    assert options.url is not None
    return Server(options.url, options.token)


def take_snapshot(options: SourceOptions, catalog: Catalog) -> Snapshot:
    """Fix the range that a query reads, by the heads as they are now."""
    states = catalog.states(options.topics)
    check_named(options, [state.part for state in states])
    return Snapshot(tuple(_range(options, catalog, state) for state in states))


def _range(options: SourceOptions, catalog: Catalog, state: PartState) -> PartRange:
    start = place_of(options.starting, state, default="earliest")
    end = place_of(options.ending, state, default="latest")
    if options.starting_ts is not None:
        start = catalog.seq_at(state, options.starting_ts) - 1
    if options.ending_ts is not None:
        end = catalog.seq_at(state, options.ending_ts + 1) - 1
    if max(start, end) > state.head_seq:
        raise OptionError(
            f"{state.part.name!r} ends at seq {state.head_seq}, and the offsets name "
            f"{max(start, end)}: was the topic made anew?"
        )
    if start > end and options.starting_ts is None and options.ending_ts is None:
        raise OptionError(
            f"the range of {state.part.name!r} starts at {start}, behind its end {end}"
        )
    return PartRange(part=state.part, epoch=state.epoch, start=start, end=end)


def find_manifests(
    catalog: Catalog, ranges: Iterable[PartRange], *, pin_ms: int | None
) -> tuple[dict[str, Manifest], list[Gap]]:
    """Ask where the records are; a topic that is gone, or is another one now, is lost."""
    found: dict[str, Manifest] = {}
    gone: list[Gap] = []
    for wanted in ranges:
        reason = "recreated"
        try:
            manifest = catalog.manifest(wanted.part, pin_ms=pin_ms)
        except TopicNotFound:
            manifest, reason = None, "deleted"
        if manifest is not None and manifest.epoch == wanted.epoch:
            found[wanted.part.name] = manifest
        elif wanted.start < wanted.end:
            gone.append(Gap(wanted.part, wanted.start + 1, wanted.end, reason))
    return found, gone


def pins_of(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    return {name: found.pin.id for name, found in manifests.items() if found.pin is not None}


def check_lost(options: SourceOptions, gaps: Iterable[Gap]) -> None:
    """Fail with the exact ranges, if the query is to fail on loss."""
    found = [describe_gap(gap) for gap in gaps]
    if found and options.fail_on_data_loss:
        raise DataLoss(
            f"{'; '.join(found)}. Set failOnDataLoss=false to get a row for each gap instead, or "
            "start behind it"
        )


def describe_gap(gap: Gap) -> str:
    upto = "the end of that life of the topic" if gap.gap_to is None else f"{gap.gap_to}"
    return f"{gap.part.name!r} lost records {gap.gap_from} to {upto} ({gap.reason})"


def release_pins(server: Server, pins: Iterable[str]) -> None:
    for pin in pins:
        try:
            server.release_pin(pin)
        except ServerRefused as error:
            _log.debug("topics: a pin was gone already: %s", error)


class TopicsReader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, snapshot: Snapshot) -> None:
        self._options = options
        self._schema = schema
        self._snapshot = snapshot
        self._bounds = Bounds()
        self._decoder()  # refuses columns it cannot make

    def _decoder(self) -> Decoder:
        return Decoder(self._schema, self._bounds, verify=self._options.verify)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what narrows the range, if the query says that its frame is used once.

        Spark keeps one plan for all uses of a loaded frame, that of the last use with a filter:
        another use of the same frame would miss rows.
        """
        if not self._options.push_down:
            yield from filters
            return
        for given in filters:
            narrowed = push(self._bounds, given)
            if narrowed is None:
                yield given
            else:
                self._bounds = narrowed

    def plan(self) -> tuple[Plan, dict[str, str]]:
        """Return the tasks, and for each part the pin that keeps its files."""
        ranges = [r for r in self._snapshot.ranges if self._bounds.has_part(r.part)]
        pin_ms = None if self._options.via == "http" else PIN_MS
        with closing(open_catalog(self._options)) as catalog:
            manifests, gone = find_manifests(catalog, ranges, pin_ms=pin_ms)
        plan = plan_batch(
            [wanted for wanted in ranges if wanted.part.name in manifests],
            manifests,
            self._bounds,
            records_per_task=self._options.records_per_partition
            or task_records(manifests.values(), reads_frames=self._decoder().needs_frames),
            min_tasks=self._options.min_partitions,
            via=self._options.via,
        )
        return plan.with_gaps(gone), pins_of(manifests)

    def partitions(self) -> Sequence[InputPartition]:
        plan, pins = self.plan()
        _log.info("topics: %s", plan)
        try:
            check_lost(self._options, (gap for task in plan.tasks for gap in task.gaps))
        except DataLoss:
            if pins:
                with closing(open_server(self._options)) as server:
                    release_pins(server, pins.values())
            raise
        # Spark makes up a partition of its own where there is none.
        tasks = plan.tasks or (Task(()),)
        return [TaskPartition(task, self._bounds, pins) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskPartition)
        return read_task(self._options, self._schema, partition)


def read_task(
    options: SourceOptions, schema: pa.Schema, partition: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """Read what a task names; on an executor."""
    settle_worker()
    if options.shared_path is not None:
        check_shared(options.shared_path)
    return _Task(options, schema, partition).batches()


def _check_seen(uri: str) -> None:
    """Name this machine, if it lacks a file."""
    if not is_object_uri(uri):
        check_shared(parse_file_uri(uri))


class _Task:
    """One task while it runs."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, partition: TaskPartition) -> None:
        self._options = options
        self._partition = partition
        self._decoder = Decoder(schema, partition.bounds, verify=options.verify)
        self._server: Server | None = None
        self._clock = SystemClock()
        self._renew_at_s = self._clock.monotonic_s()

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for gap in self._partition.task.gaps:
                yield from self._gap(gap)
            for piece in self._partition.task.pieces:
                self._renew_pins()
                yield from self._piece(piece)
        finally:
            if self._server is not None:
                self._server.close()

    def _piece(self, piece: Piece, *, moved: bool = False) -> Iterator[pa.RecordBatch]:
        if piece.data is None:
            yield from self._http(piece.span)
            return
        done = piece.span.first_seq - 1
        try:
            for last, batch in read_segment(piece, self._decoder):
                if batch is not None:
                    yield batch
                done = last
        except StorageError as error:
            if self._options.path is not None or moved:
                _check_seen(piece.data)
                raise
            # A file that this machine cannot see, or that has moved since: the server knows.
            _log.info("topics: %s: asking the server", error)
            span = Span(piece.span.part, piece.span.epoch, done + 1, piece.span.last_seq)
            if self._options.via == "auto":
                yield from self._http(span)
            else:
                yield from self._moved(span, piece, error)

    def _moved(self, span: Span, before: Piece, error: StorageError) -> Iterator[pa.RecordBatch]:
        """Read from where the files are by now; where they have not moved, `error` stands."""
        wanted = PartRange(
            part=span.part, epoch=span.epoch, start=span.first_seq - 1, end=span.last_seq
        )
        catalog = ServerCatalog(self._open_server())
        manifests, gaps = find_manifests(catalog, [wanted], pin_ms=None)
        for manifest in manifests.values():
            lost, left = split_lost(span, manifest)
            gaps += lost
            for piece in (
                piece for part in left for piece in pieces_of(part, manifest, "segments")
            ):
                if piece.data is not None and piece.data == before.data:
                    _check_seen(piece.data)
                    raise error
                yield from self._piece(piece, moved=True)
        for gap in gaps:
            yield from self._gap(gap)

    def _http(self, span: Span) -> Iterator[pa.RecordBatch]:
        if self._options.path is not None:
            raise DataLoss(
                f"records {span.first_seq} to {span.last_seq} of {span.part.name!r} are not in "
                f"{self._options.path}: they lie in another tier, or only in the WAL; read with url"
            )
        for found in read_http(span, self._open_server(), self._decoder):
            if isinstance(found, Gap):
                yield from self._gap(found)
            else:
                yield found

    def _open_server(self) -> Server:
        if self._server is None:
            self._server = open_server(self._options)
        return self._server

    def _renew_pins(self) -> None:
        """Keep the files for as long as tasks read them; nobody tells when the last one is done."""
        now_s = self._clock.monotonic_s()
        if now_s < self._renew_at_s:
            return
        self._renew_at_s = now_s + PIN_MS / 4000
        for pin in self._partition.pins:
            try:
                self._open_server().renew_pin(pin, pin_ms=PIN_MS)
            except ServerRefused as error:
                _log.info("topics: %s: files may move, then the server is asked", error)

    def _gap(self, gap: Gap) -> Iterator[pa.RecordBatch]:
        check_lost(self._options, [gap])
        if self._partition.bounds.with_gaps:
            yield self._decoder.gap(gap)
