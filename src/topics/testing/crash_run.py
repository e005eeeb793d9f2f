"""Run a workload on hostile disks and keep its history, and every cut point of it if wanted."""

from functools import partial
from typing import NamedTuple

import msgspec

from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine.append import Append as EngineAppend
from topics.engine.append import Repeat
from topics.engine.request import encode_write, read_write
from topics.engine.shard import Shard
from topics.errors import (
    Exhausted,
    RequestError,
    RetryLater,
    ShardReadOnly,
    StorageError,
    TopicsError,
)
from topics.model.append import Appended, WriteOptions
from topics.model.topic_config import TopicConfig
from topics.testing.crash_history import History, Version
from topics.testing.crash_model import TopicModel
from topics.testing.crash_observe import Violation
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.crash_validate import check_live, resolve
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock
from topics.testing.workload import (
    Append,
    Burst,
    Configure,
    Delete,
    Drop,
    Operation,
    Overlap,
    Restart,
    Tick,
    Work,
)

REFUSALS = (ShardReadOnly, RetryLater, RequestError)
"""Errors that promise that nothing of this was written."""


class CutPoint(NamedTuple):
    """The disks before one call, and what was promised by then."""

    disks: Disks
    history: History
    now_ms: int


class CrashRun:
    """One log under one workload.

    With `records`, the disks before every call that changes them are kept as cut points. On disks
    with planned faults `apply_or_fail` notes the errors and goes on.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        disks: Disks | None = None,
        history: History | None = None,
        clock: ManualClock | None = None,
        records: bool = False,
    ) -> None:
        self.config = config
        self.clock = clock or ManualClock()
        self.history = history or History()
        self.cut_points: list[CutPoint] = []
        self.errors: list[TopicsError] = []
        self._records = records
        self._meanwhile: list[Append] = []
        self._written: list[_Written] = []
        self.disks = disks or Disks(HostileDisk(), HostileDisk())
        self.log = self.open()

    def open(self) -> Log:
        hooks = Hooks(self._before_call, self._after_sync)
        hot, cold = (RecordingDisk(disk, hooks) for disk in self.disks)
        return Log(self.config, disk=hot, cold_disk=cold, clock=self.clock, background=False)

    def cut_here(self) -> CutPoint:
        return CutPoint(self.disks.copy(), self.history.copy(), self.clock.now_ms())

    def run(self, operations: list[Operation]) -> None:
        for operation in operations:
            self.apply(operation)

    def apply(self, operation: Operation) -> None:  # noqa: C901, PLR0912 - one case an operation
        match operation:
            case Append():
                self._append(operation)
            case Burst():
                self._burst(operation)
            case Overlap():
                self._overlap(operation)
            case Configure():
                self._configure(operation)
            case Drop():
                self._drop(operation)
            case Delete():
                self._delete(operation)
            case Tick():
                self.clock.advance_ms(operation.ms)
            case Work():
                self._work(operation)
            case Restart():
                self.restart(operation.how)

    def apply_or_fail(self, operation: Operation) -> None:
        """Make a step on a disk that fails; what is visible afterwards is what was acknowledged."""
        topics = _topics_of(operation)
        lengths = {topic: len(self.history.track(topic).versions) for topic in topics}
        try:
            self.apply(operation)
        except TopicsError as error:
            self.errors.append(error)
            # What runs out when the log needs a new file leaves everything as it was.
            full = isinstance(error, Exhausted) and not self.is_read_only
            if isinstance(error, REFUSALS) or full:
                for topic, length in lengths.items():
                    track = self.history.track(topic)
                    del track.versions[max(length, track.acked + 1) :]
        check_live(self.log, self.history, now_ms=self.clock.now_ms())

    @property
    def is_read_only(self) -> bool:
        """Whether any shard has stopped taking writes."""
        return any(shard.commit.log.failed is not None for shard in self.log.engine.shards)

    def restart(self, how: str) -> None:
        """End the process and start the next one; the state must be what it was."""
        if how == "clean":
            self.log.close()
            self.history.all_durable()
            self.disks = self.disks.copy()
        else:
            self.disks = self.disks.kill()
        self.log = self.open()
        found = resolve(self.log, self.history, crash="kill", now_ms=self.clock.now_ms())
        for topic, track in found.tracks.items():
            old = self.history.track(topic)
            old.versions.append(track.newest)
            self.history.ack(topic, durable=how == "clean")

    # Each operation: begin, do, ack.

    def _append(self, append: Append) -> None:
        model = self.history.newest(append.topic)
        if model is None:
            return
        now_ms = self.clock.now_ms()
        self.history.begin(append.topic, partial(_appended, append=append, now_ms=now_ms))
        appended = self.log.append(append.topic, append.records(), **append.options())
        check_appended(model, append, appended)
        self.history.ack(append.topic, durable=model.durability == "fsync")

    def _burst(self, burst: Burst) -> None:
        self._commit([w for append in burst.appends for w in self._submit(append)])

    def _overlap(self, overlap: Overlap) -> None:
        """Append, with others that are written when its sync has done its work."""
        first = self._submit(overlap.first)
        self._meanwhile = list(overlap.meanwhile)
        try:
            self._commit(first)
        finally:
            written, self._written = self._written, []
            rest, self._meanwhile = self._meanwhile, []
        self._commit([*written, *(w for append in rest for w in self._submit(append))])

    def _submit(self, append: Append) -> list["_Written"]:
        """Queue an append, if its topic is there."""
        model = self.history.newest(append.topic)
        if model is None:
            return []
        engine = self.log.engine
        write = read_write(encode_write(append.records()), self.config)
        write = msgspec.structs.replace(write, options=WriteOptions(**append.options()))
        change = partial(_appended, append=append, now_ms=self.clock.now_ms())
        at = self.history.begin(append.topic, change)
        shard, ticket = engine.submit_append(engine.topic(append.topic), write)
        return [_Written(model, append, at, shard, ticket)]

    def _commit(self, submitted: list["_Written"]) -> None:
        failures = []
        for written in submitted:
            try:
                written.shard.commit.commit(written.ticket)
            except StorageError as error:
                failures.append(error)
                continue
            assert written.ticket.appended is not None
            check_appended(written.model, written.append, written.ticket.appended)
            durable = written.model.durability == "fsync"
            self.history.ack(written.append.topic, durable=durable, at=written.at)
        if failures:
            raise failures[0]

    def _after_sync(self) -> None:
        """Be the other writers: write and wait, while whoever syncs has not come back yet."""
        if not self._meanwhile or any(s.lock.locked() for s in self.log.engine.shards):
            return
        meanwhile, self._meanwhile = self._meanwhile, []
        for append in meanwhile:
            for written in self._submit(append):
                with written.shard.lock:
                    written.shard.commit.flush()
                self._written.append(written)

    def _configure(self, configure: Configure) -> None:
        topic, changes = configure.topic, configure.config
        now_ms = self.clock.now_ms()
        before = self.history.newest(topic)
        if before is not None:
            self.log.state(topic)  # what has expired by now stays expired under any later config
        self.history.begin(topic, lambda version: _configured(version, changes, now_ms))
        self.log.create(topic, **changes)
        after = self.history.newest(topic)
        changed = before is None or (after is not None and _resolved(before) != _resolved(after))
        self.history.ack(topic, durable=changed)

    def _drop(self, drop: Drop) -> None:
        if self.history.newest(drop.topic) is None:
            return
        self.history.begin(drop.topic, lambda _: None)
        self.log.drop(drop.topic)
        self.history.ack(drop.topic, durable=True)

    def _delete(self, delete: Delete) -> None:
        model = self.history.newest(delete.topic)
        if model is None:
            return
        now_ms = self.clock.now_ms()
        self.history.begin(delete.topic, lambda version: version and version.delete(delete, now_ms))
        deleted = self.log.delete(
            delete.topic, before_seq=delete.before_seq or None, match=delete.match()
        )
        expected = len(model.expired(now_ms).live) - len(model.delete(delete, now_ms).live)
        if deleted.deleted != expected:
            raise Violation(f"{delete} deleted {deleted.deleted} records, not {expected}")
        self.history.ack(delete.topic, durable=True)

    def _work(self, work: Work) -> None:  # noqa: C901 - one case a step
        engine = self.log.engine
        match work.step:
            case "sync":
                engine.sync()
            case "checkpoint":
                engine.checkpoint()
            case "snapshot":
                engine.snapshot()
            case "maintain":
                engine.maintain()
            case "relocate":
                engine.relocate()
            case "sweep":
                engine.sweep()
            case "spare":
                engine.prepare_spares()
        if work.step in ("sync", "checkpoint", "snapshot"):
            self.history.all_durable()

    def _before_call(self) -> None:
        if self._records:
            self.cut_points.append(self.cut_here())


class _Written(NamedTuple):
    """An append on its way: the version before it, and the number of the version it makes."""

    model: TopicModel
    append: Append
    at: int
    shard: Shard
    ticket: EngineAppend | Repeat


def check_appended(model: TopicModel, append: Append, appended: Appended) -> None:
    """Check that an append answered with the seqs it had to get, new or repeated."""
    repeat = model.repeats(append)
    first_seq, count = repeat or (model.head_seq + 1, append.count)
    if (appended.first_seq, appended.count) != (first_seq, count):
        raise Violation(f"{append} got {appended}, not {count} from seq {first_seq}")
    if appended.deduped != (repeat is not None):
        raise Violation(f"{append} got {appended}, deduped should be {repeat is not None}")


def _appended(version: Version, append: Append, now_ms: int) -> Version:
    assert version is not None
    return version.append(append, now_ms)


def _configured(version: Version, changes: dict[str, object], now_ms: int) -> Version:
    if version is None:
        return TopicModel(config=dict(changes))
    return version.configured(changes, now_ms)


def _resolved(model: TopicModel) -> TopicConfig:
    """Return a config with its defaults: naming a default is no change, and nothing is synced."""
    return TopicConfig.from_changes(model.config)


def _topics_of(operation: Operation) -> list[str]:
    if isinstance(operation, Burst):
        return [append.topic for append in operation.appends]
    if isinstance(operation, Overlap):
        return [append.topic for append in (operation.first, *operation.meanwhile)]
    return [operation.topic] if isinstance(operation, Append | Configure | Drop | Delete) else []
