"""A queue and its dead letters on recording disks, and what was promised at each cut point."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from topics.config import ServerConfig
from topics.embedded import Log
from topics.model.diff import Record
from topics.operate.verify import verify
from topics.testing.crash_observe import Violation
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

KILL = -1
"""Stands for a kill in a list of seeds."""
LEASE_MS = 1_000


@dataclass
class Promise:
    """What workers and producers were told."""

    jobs: dict[int, int] = field(default_factory=dict)
    """Seq → data of every job that was accepted."""
    acked: set[int] = field(default_factory=set)
    leases: dict[int, str] = field(default_factory=dict)
    """Seq → node of each lease that was given and not ended."""


@dataclass
class Told:
    """Promises, and what was asked for and may have happened although nobody heard of it."""

    answered: Promise = field(default_factory=Promise)
    durable: Promise = field(default_factory=Promise)
    ack_asked: set[int] = field(default_factory=set)
    end_asked: set[int] = field(default_factory=set)
    end_unsure: set[int] = field(default_factory=set)
    """Leases whose end was asked for since the last sync: it may outlive a claim that followed."""


class Cut(NamedTuple):
    """The disks before one call, and what was promised by then."""

    disks: Disks
    told: Told
    now_ms: int


class QueueRun:
    """One log with a queue "jobs"; each word is noted before it is said and after its answer."""

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
        self._durability = "fsync"
        self.log = self.open()

    def open(self) -> Log:
        hooks = Hooks(self.note_cut, lambda: None)
        hot, cold = (RecordingDisk(disk, hooks) for disk in self.disks)
        return Log(self.config, disk=hot, cold_disk=cold, clock=self.clock, background=False)

    def note_cut(self) -> None:
        if self._records:
            self.cuts.append(Cut(self.disks.copy(), deepcopy(self.told), self.clock.now_ms()))

    # Words.

    def create(self, durability: str, **config: Any) -> None:  # noqa: ANN401 - any JSON
        self._durability = durability
        self.log.create("jobs", type="queue", durability=durability, lease_ms=LEASE_MS, **config)

    def append(self, count: int, *, pad: int = 0) -> None:
        first = len(self.told.answered.jobs)
        records = [{"data": first + i, "meta": {"pad": "x" * pad}} for i in range(count)]
        appended = self.log.append("jobs", records)
        self.told.answered.jobs |= {seq: first + i for i, seq in enumerate(appended.seqs)}
        self._answered()

    def claim(self, node: str, count: int) -> list[int]:
        claimed = self.log.claim("jobs", node=node, max=count)
        for lease in claimed.leases:
            self.told.answered.leases[lease.seq] = node
            self.told.end_asked.discard(lease.seq)
        self._answered()
        return [lease.seq for lease in claimed.leases]

    def ack(self, node: str, *seqs: int) -> None:
        self.told.ack_asked |= set(seqs)
        self._ask_end(seqs)
        acked = self.log.ack("jobs", seqs, node=node)
        assert acked.acked_seqs == sorted(seqs)
        self.told.answered.acked |= set(seqs)
        self._end(seqs)

    def nack(self, node: str, *seqs: int, delay_ms: int = 0) -> None:
        self._ask_end(seqs)
        self.log.nack("jobs", seqs, node=node, delay_ms=delay_ms)
        self._end(seqs)

    def extend(self, node: str, *seqs: int, lease_ms: int) -> None:
        assert self.log.extend("jobs", seqs, node=node, lease_ms=lease_ms).extended == len(seqs)
        self._answered()

    def work(self, *steps: str) -> None:
        for step in steps:
            getattr(self.log.engine, step)()
            if step in {"sync", "snapshot"}:
                self._synced()

    def _ask_end(self, seqs: tuple[int, ...]) -> None:
        self.told.end_asked |= set(seqs)
        self.told.end_unsure |= set(seqs)

    def _synced(self) -> None:
        self.told.durable = deepcopy(self.told.answered)
        self.told.end_unsure = set()

    def _end(self, seqs: tuple[int, ...]) -> None:
        for seq in seqs:
            self.told.answered.leases.pop(seq, None)
        self._answered()

    def _answered(self) -> None:
        if self._durability == "fsync":
            self._synced()

    # Looking.

    def read(self, topic: str) -> list[Record]:
        """Read over the gaps of crashes, which end a page."""
        cursor = 0
        found: list[Record] = []
        while topic in self.log.topics():
            page = self.log.diff(topic, from_seq=cursor)
            found += page.records
            cursor = page.next_from_seq
            if page.caught_up:
                break
        return found

    def dead(self) -> list[int]:
        """Return the seqs that dead letters had in their queue."""
        parent = self.log.engine.find_partitioned("dead")
        names = ["dead"] if parent is None else parent.partition_names
        letters = [letter for name in names for letter in self.read(name)]
        return [r.meta["$dead_letter_src_seq"] for r in letters if r.meta is not None]


def crashed(cut: Cut, seed: int) -> Disks:
    disks = cut.disks.copy()
    return disks.kill() if seed == KILL else disks.power_cut(seed)


def check_cut(config: ServerConfig, cut: Cut, seed: int) -> None:
    """Crash there, start again, and hold what is found against what was promised (oracle 6)."""
    disks = crashed(cut, seed)
    promise = cut.told.answered if seed == KILL else cut.told.durable
    if promise.jobs:  # before that the directory may not be whole yet
        report = verify(disks.hot, cold=disks.cold)
        require(report.healthy, f"verify: {[file for file in report.files if file.findings]}")
    run = QueueRun(config, disks=disks, now_ms=cut.now_ms)
    if "jobs" not in run.log.topics():
        require(not promise.jobs, "the queue is gone")
        return
    live = {record.seq: record.data for record in run.read("jobs")}
    dead = run.dead()
    require(len(set(dead)) == len(dead), f"a job died twice: {dead}")
    require(not set(dead) & set(live), f"a job is in both places: {sorted(live)} {dead}")
    require(not promise.acked & set(live), f"acked jobs are back: {sorted(live)}")
    for seq, data in promise.jobs.items():
        if seq not in cut.told.ack_asked:
            require(seq in live or seq in dead, f"job {seq} is lost")
        require(live.get(seq, data) == data, f"job {seq} has other data")
    state = run.log.state("jobs").queue
    require(state is not None and state.dead_lettered == len(dead), f"{state} and {dead}")
    _check_leases(run, cut, promise)
    _check_afterlife(run, live=set(live), seed=seed)


def _check_leases(run: QueueRun, cut: Cut, promise: Promise) -> None:
    """With durable leases nobody else gets what somebody holds."""
    if run.log.state("jobs").config.leases_durable:
        held = set(promise.leases) - cut.told.end_asked
        if promise is cut.told.durable:
            held -= cut.told.end_unsure
        taken = set(run.claim("stranger", 1_000))
        require(not taken & held, f"{sorted(taken & held)} have two live leases")


def _check_afterlife(run: QueueRun, *, live: set[int], seed: int) -> None:
    """Every job is claimable at last, or dies; and what is acked then stays away."""
    run.clock.advance_ms(100 * LEASE_MS)
    if "dead" in run.log.topics():
        run.log.create("dead", cap_records=0)  # whatever was refused fits now
    claimed = set(run.claim("heir", 1_000))
    run.work("sweep")
    gone = set(run.dead())
    require(live <= claimed | gone, f"{sorted(live - claimed - gone)} are stuck")
    run.log.ack("jobs", sorted(claimed), node="heir")
    run.work("sync")
    again = QueueRun(run.config, disks=run.disks.power_cut(max(seed, 0)), now_ms=2 * 10**12)
    require(not again.read("jobs"), "an acked job came back")
    require(set(again.dead()) == gone, f"dead letters changed: {gone}, {again.dead()}")


def require(holds: bool, what: str) -> None:  # noqa: FBT001 - a sentence and whether it is true
    if not holds:
        raise Violation(what)
