"""A partitioned topic on recording disks, and what was promised at each cut point."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from topics.config import ServerConfig
from topics.embedded import Log
from topics.operate.verify import verify
from topics.testing.crash_observe import Violation
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

KILL = -1
"""Stands for a kill in a list of seeds."""
PARENT = "orders"


@dataclass
class Told:
    """What was answered, and what was asked for since."""

    partitions: set[int] = field(default_factory=lambda: {0})
    """How many partitions there may be; 0 is none at all."""
    caps: set[int] = field(default_factory=lambda: {0})
    """What `cap_bytes` may be."""
    written: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Key of a write → the places of its records, of this life of the topic."""
    whole: bool = False
    """Something was answered: the directory is whole."""


class Cut(NamedTuple):
    """The disks before one call, and what was promised by then."""

    disks: Disks
    told: Told
    now_ms: int


class PartitionRun:
    """One log with a partitioned topic; each word is noted before it is said and after."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        disks: Disks | None = None,
        now_ms: int = 1_700_000_000_000,
        records: bool = False,
    ) -> None:
        self.config = config
        self.clock = ManualClock(now_ms)
        self.told = Told()
        self.cuts: list[Cut] = []
        self.disks = disks or Disks(HostileDisk(), HostileDisk())
        self._records = records
        self.log = self.open()

    def open(self) -> Log:
        hooks = Hooks(self.note_cut, lambda: None)
        hot, cold = (RecordingDisk(disk, hooks) for disk in self.disks)
        return Log(self.config, disk=hot, cold_disk=cold, clock=self.clock, background=False)

    def note_cut(self) -> None:
        if self._records:
            self.cuts.append(Cut(self.disks.copy(), deepcopy(self.told), self.clock.now_ms()))

    # Words.

    def put(self, partitions: int, **config: Any) -> None:  # noqa: ANN401 - any JSON
        told = self.told
        told.partitions.add(partitions)
        told.caps.add(config.get("cap_bytes", 0))
        self.log.create(PARENT, partitions=partitions, durability="fsync", **config)
        told.partitions = {partitions}
        told.caps = {config.get("cap_bytes", max(told.caps))}
        told.whole = True

    def append(self, key: str, count: int = 6) -> None:
        self.told.written[key] = append(self.log, key, count)

    def drop(self) -> None:
        told = self.told
        told.partitions.add(0)
        written, told.written = told.written, {}
        del written
        self.log.drop(PARENT)
        told.partitions, told.caps = {0}, {0}

    def work(self, *steps: str) -> None:
        for step in steps:
            getattr(self.log.engine, step)()


def append(log: Log, key: str, count: int = 6) -> list[tuple[int, int]]:
    """Write records that say which they are, to several partitions."""
    records = [{"data": f"{key}/{i}", "key": f"{key}-{i}"} for i in range(count)]
    return list(log.append(PARENT, records, idempotency_key=key).placed)


def crashed(cut: Cut, seed: int) -> Disks:
    disks = cut.disks.copy()
    return disks.kill() if seed == KILL else disks.power_cut(seed)


def check_cut(config: ServerConfig, cut: Cut, seed: int) -> None:
    """Crash there, start again, and hold what is found against what was promised."""
    disks = crashed(cut, seed)
    if cut.told.whole:
        report = verify(disks.hot, cold=disks.cold)
        require(report.healthy, f"verify: {report}")
    run = PartitionRun(config, disks=disks, now_ms=cut.now_ms)
    before = describe(run.log)
    _check_shape(run.log, cut.told)
    _check_records(run.log, cut.told)
    again = PartitionRun(config, disks=run.disks.power_cut(max(seed, 0)), now_ms=cut.now_ms)
    require(describe(again.log) == before, f"a second start found {describe(again.log)}")
    _check_afterlife(again, cut.told)


def describe(log: Log) -> dict[str, list[object]]:
    engine = log.engine
    shown: dict[str, list[object]] = {
        parent.name: [parent.id, parent.counts] for parent in engine.partitioned()
    }
    return shown | {topic.name: [topic.id, _data(log, topic.name)] for topic in engine.topics()}


def _data(log: Log, topic: str) -> dict[int, object]:
    return {record.seq: record.data for record in log.diff(topic).records}


def _check_shape(log: Log, told: Told) -> None:
    """Hold that there are all partitions or none, all with the config of their parent."""
    parent = log.engine.find_partitioned(PARENT)
    names = [topic.name for topic in log.engine.topics() if topic.name.startswith(PARENT)]
    count = 0 if parent is None else len(parent.partitions)
    require(names == [f"{PARENT}-{i}" for i in range(count)], f"{count} partitions, {names}")
    require(count in told.partitions, f"{count} partitions, not one of {told.partitions}")
    if parent is not None:
        require(parent.config.cap_bytes in told.caps, f"{parent.config} is not of {told.caps}")
        require(all(t.config == parent.config for t in parent.partitions), "another config")
        require(all(t.parent is parent for t in parent.partitions), "a partition without parent")


def _check_records(log: Log, told: Told) -> None:
    if log.engine.find_partitioned(PARENT) is None:
        require(not told.written, "a topic is gone that was not to be deleted")
    for key, placed in told.written.items():
        for i, (partition, seq) in enumerate(placed):
            found = _data(log, f"{PARENT}-{partition}").get(seq)
            require(found == f"{key}/{i}", f"{found!r} is not {key}/{i}")


def _check_afterlife(run: PartitionRun, told: Told) -> None:
    """Repeat every write: nothing is there twice. Then the topic can grow, and go."""
    log = run.log
    if log.engine.find_partitioned(PARENT) is not None:
        for key, placed in told.written.items():
            require(append(log, key) == placed, f"{key} was written elsewhere once more")
        topics = log.engine.partitions_of(PARENT)
        data = [d for topic in topics for d in _data(log, topic.name).values()]
        require(len(set(data)) == len(data), f"records are there twice: {sorted(map(str, data))}")
        log.create(PARENT, partitions=9)
        log.drop(PARENT)
    require(not log.topics(PARENT), f"{log.topics(PARENT)} are left")
    log.create(PARENT, partitions=2)
    append(log, "afterlife")


def require(holds: bool, what: str) -> None:  # noqa: FBT001 - a sentence and whether it is true
    if not holds:
        raise Violation(what)
