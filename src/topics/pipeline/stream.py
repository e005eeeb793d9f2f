"""A streaming query: offsets with epochs, admission control, and batches that can be repeated.

Keeps: the tasks of a batch follow from its two offsets and the options alone. A topic that is gone
or was made anew is data loss, never a silent restart.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from topics.clock import Clock, SystemClock
from topics.errors import OptionError, ServerRefused, TopicNotFound
from topics.pipeline.catalog import Catalog, ServerCatalog
from topics.pipeline.decode import Decoder
from topics.pipeline.offsets import (
    Offsets,
    Part,
    PartRange,
    PartState,
    Place,
    admit,
    check_named,
    format_offsets,
    parse_offsets,
    place_of,
)
from topics.pipeline.options import SourceOptions
from topics.pipeline.plan import TASK_RECORDS, Gap, plan_stream
from topics.pipeline.push_down import Bounds
from topics.pipeline.read import (
    PIN_MS,
    TaskPartition,
    check_lost,
    find_manifests,
    open_server,
    pins_of,
    read_task,
    release_pins,
)
from topics.pipeline.server import Server

IDLE_WAIT_MS = 1_000
"""How long an idle stream waits for one topic; with several it looks at the others in between."""
SHARED_WAIT_MS = 250
_log = logging.getLogger("topics.pipeline")


class TopicsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver for the life of a query; `read` runs on executors."""

    def __init__(
        self, options: SourceOptions, schema: pa.Schema, clock: Clock | None = None
    ) -> None:
        if options.path is not None:
            raise OptionError("a stream needs `url`: a directory does not tell when it grows")
        if options.ending is not None or options.ending_ts is not None:
            raise OptionError("a stream has no end: `endingOffsets` is for batch queries")
        Decoder(schema, Bounds(), verify=options.verify)  # refuses columns it cannot make
        self._options = options
        self._schema = schema
        self._clock = clock or SystemClock()
        self._catalog: Catalog | None = None
        self._server: Server | None = None
        self._target: Offsets | None = None
        self._pins: dict[str, str] = {}
        self._parts: dict[str, Part] = {}
        self._planned: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Executors need to know how to read, and open their own connections."""
        return self.__dict__ | {"_catalog": None, "_server": None, "_pins": {}}

    # Where it starts and how far it goes: on the driver.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        states = self._states()
        check_named(self._options, [state.part for state in states])
        return format_offsets({s.part.name: Place(s.epoch, self._first(s)) for s in states})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        offsets = parse_offsets(start)
        if offsets == self._planned:
            # Asked for what comes behind a batch, its rows are written. `commit` says so too, but
            # not before there is a next batch.
            self._tell_group(offsets)
        found = self._latest(offsets, limit)
        if found == offsets and self._target is None:
            self._wait(offsets)
            found = self._latest(offsets, limit)
        return format_offsets(found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return format_offsets(_heads(self._states()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = _heads(self._states())

    # What a batch reads.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = parse_offsets(start), parse_offsets(end)
        self._planned = after
        self._release()
        gaps = [
            gap
            for name, place in sorted(before.items())
            if (gap := _lost(self._part(name), place, after.get(name)))
        ]
        ranges = [
            PartRange(
                part=self._part(name),
                epoch=place.epoch,
                start=_start_of(before.get(name), place),
                end=place.next_from_seq,
            )
            for name, place in sorted(after.items())
        ]
        ranges = [one for one in ranges if one.start < one.end]
        pin_ms = None if self._options.via == "http" else PIN_MS
        manifests, gone = find_manifests(self._open_catalog(), ranges, pin_ms=pin_ms)
        self._pins = pins_of(manifests)
        plan = plan_stream(
            [wanted for wanted in ranges if wanted.part.name in manifests],
            manifests,
            records_per_task=self._options.records_per_partition or TASK_RECORDS,
            min_tasks=self._options.min_partitions,
            via=self._options.via,
        ).with_gaps([*gaps, *gone])
        check_lost(self._options, (gap for task in plan.tasks for gap in task.gaps))
        _log.info("topics: %s", plan)
        return [TaskPartition(task, Bounds(), self._pins) for task in plan.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskPartition)
        return read_task(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint has it, and a group was told when the batch was done."""

    def stop(self) -> None:
        self._release()
        if self._server is not None:
            self._server.close()

    # Inside.

    def _tell_group(self, done: Offsets) -> None:
        """Spark has finished everything up to here; a group, if any, is told."""
        self._planned = None
        if self._options.group is None:
            return
        offsets: dict[str, dict[str, int]] = {}
        for name, place in done.items():
            part = self._part(name)
            offsets.setdefault(part.topic, {})[str(part.partition)] = place.next_from_seq
        try:
            self._open_server().commit_group(self._options.group, offsets)
        except (ServerRefused, TopicNotFound) as error:
            # The checkpoint is what counts; the group only shows it.
            _log.warning("topics: progress of group %s: %s", self._options.group, error)

    def _open_server(self) -> Server:
        if self._server is None:
            self._server = open_server(self._options)
        return self._server

    def _open_catalog(self) -> Catalog:
        if self._catalog is None:
            self._catalog = ServerCatalog(self._open_server())
        return self._catalog

    def _states(self) -> list[PartState]:
        states = self._open_catalog().states(
            self._options.topics, skip_missing=not self._options.fail_on_data_loss
        )
        self._parts.update({state.part.name: state.part for state in states})
        return states

    def _part(self, name: str) -> Part:
        if name not in self._parts:
            self._states()
        return self._parts.get(name, Part(name, name))

    def _first(self, state: PartState) -> int:
        if self._options.starting_ts is not None:
            return self._open_catalog().seq_at(state, self._options.starting_ts) - 1
        return place_of(self._options.starting, state, default="latest")

    def _latest(self, start: Offsets, limit: ReadLimit) -> Offsets:
        states = self._states()
        if self._target is not None:
            states = [_until(state, self._target) for state in states]
        ends = admit(start, states, max_records=self._max_records(limit, states))
        return {s.part.name: Place(s.epoch, ends[s.part.name]) for s in states}

    def _max_records(self, limit: ReadLimit, states: Sequence[PartState]) -> int | None:
        """Return what one batch may have; Spark knows one limit, the options may name two."""
        limits = []
        if isinstance(limit, ReadMaxRows):
            limits.append(limit.max_rows)
        sizes = [state.record_bytes for state in states if state.record_bytes]
        max_bytes = self._options.max_bytes_per_trigger
        if max_bytes is not None and sizes and not isinstance(limit, ReadAllAvailable):
            limits.append(max(1, max_bytes // max(sizes)))
        return min(limits, default=None)

    def _wait(self, offsets: Offsets) -> None:
        """Ask an idle server to answer later: Spark would ask fifty times a second."""
        if not offsets:  # no topic has the prefix yet: there is nothing to wait at
            self._clock.sleep(SHARED_WAIT_MS / 1000)
            return
        name = min(offsets)
        wait_ms = IDLE_WAIT_MS if len(offsets) == 1 else SHARED_WAIT_MS
        try:
            self._open_server().wait_for_records(
                name, from_seq=offsets[name].next_from_seq, wait_ms=wait_ms
            )
        except TopicNotFound:
            return  # the next look at the states says so

    def _release(self) -> None:
        """Let go of the files of the last batch."""
        if self._pins:
            release_pins(self._open_server(), self._pins.values())
            self._pins = {}


def _heads(states: Sequence[PartState]) -> Offsets:
    return {state.part.name: Place(state.epoch, state.head_seq) for state in states}


def _until(state: PartState, target: Offsets) -> PartState:
    """See a part as it was when the query began; one that is newer has nothing yet."""
    place = target.get(state.part.name)
    head = place.next_from_seq if place is not None and place.epoch == state.epoch else 0
    return PartState(
        part=state.part,
        epoch=state.epoch,
        head_seq=min(head, state.head_seq),
        earliest_seq=state.earliest_seq,
        record_bytes=state.record_bytes,
    )


def _start_of(before: Place | None, after: Place) -> int:
    return before.next_from_seq if before is not None and before.epoch == after.epoch else 0


def _lost(part: Part, before: Place, after: Place | None) -> Gap | None:
    """Tell that a topic of the last batch is gone, or is another one now."""
    if after is not None and after.epoch == before.epoch:
        return None
    reason = "deleted" if after is None else "recreated"
    return Gap(part, before.next_from_seq + 1, None, reason)
