"""A consumer group on recording disks, and what its members were told at each cut point."""

from copy import deepcopy
from typing import NamedTuple

from tests.crash.queue_run import KILL, require
from tests.property.engine.group_oracle import GroupOracle

from topics.config import ServerConfig
from topics.embedded import Log
from topics.operate.verify import verify
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

GROUP = "g"
SESSION_MS = 1_000
Asked = dict[tuple[str, int], int]


class Cut(NamedTuple):
    """The disks before one call, and what was told by then."""

    disks: Disks
    oracle: GroupOracle
    asked: Asked
    members: frozenset[str]


class GroupRun:
    """One log with a group; each word is noted before it is said and after its answer."""

    def __init__(
        self, config: ServerConfig, *, disks: Disks | None = None, records: bool = False
    ) -> None:
        self.config = config
        self.clock = ManualClock()
        self.oracle = GroupOracle()
        self.asked: Asked = {}
        """Per partition the furthest commit that was ever asked for."""
        self.members: set[str] = set()
        """Who was told that it is a member, and did not ask to leave."""
        self.cuts: list[Cut] = []
        self.disks = disks or Disks(HostileDisk(), HostileDisk())
        self._records = records
        hooks = Hooks(self.note_cut, lambda: None)
        hot, cold = (RecordingDisk(disk, hooks) for disk in self.disks)
        self.log = Log(config, disk=hot, cold_disk=cold, clock=self.clock, background=False)

    def note_cut(self) -> None:
        if self._records:
            members = frozenset(self.members)
            cut = Cut(self.disks.copy(), deepcopy(self.oracle), dict(self.asked), members)
            self.cuts.append(cut)

    # Words.

    def append(self, topic: str, count: int) -> None:
        self.log.append(topic, [{"data": n} for n in range(count)])

    def join(self, member: str, *topics: str) -> None:
        joined = self.log.join(GROUP, member=member, topics=topics, session_ms=SESSION_MS)
        self.oracle.hear(member, joined.generation, joined.assigned)
        self.members.add(member)

    def beat(self, member: str, *, gives_up: bool = False) -> None:
        beat = self.log.heartbeat(GROUP, member=member, generation=0)
        if gives_up:
            now, release = beat.generation, beat.release
            beat = self.log.heartbeat(GROUP, member=member, generation=now, released=release)
        self.oracle.hear(member, beat.generation, beat.assigned)
        self.oracle.hear(member, beat.generation, beat.release)

    def leave(self, member: str) -> None:
        self.members.discard(member)
        self.log.leave(GROUP, member=member)

    def commit(self, member: str, topic: str, seq: int) -> None:
        self.asked[topic, 0] = max(seq, self.asked.get((topic, 0), 0))
        generation = self.log.heartbeat(GROUP, member=member, generation=0).generation
        done = self.log.commit(GROUP, {topic: {0: seq}}, member=member, generation=generation)
        self.oracle.acknowledged(done.committed)

    def work(self, *steps: str) -> None:
        for step in steps:
            getattr(self.log.engine, step)()


def crashed(cut: Cut, seed: int) -> Disks:
    disks = cut.disks.copy()
    return disks.kill() if seed == KILL else disks.power_cut(seed)


def check_cut(config: ServerConfig, cut: Cut, seed: int) -> None:
    """Crash there, start again, and hold what is found against what was told (oracle 7)."""
    disks, cut = crashed(cut, seed), cut._replace(oracle=deepcopy(cut.oracle))
    if cut.oracle.generation:  # before that the directory may not be whole yet
        report = verify(disks.hot, cold=disks.cold)
        require(report.healthy, f"verify: {[file for file in report.files if file.findings]}")
    run = GroupRun(config, disks=disks)
    if GROUP not in run.log.groups():
        require(cut.oracle.generation == 0, "the group is gone")
        return
    _check_state(run, cut)
    before = run.log.group_state(GROUP)
    _check_afterlife(run, cut)
    run.log.sync()
    again = GroupRun(config, disks=run.disks.power_cut(max(seed, 0)))
    after = again.log.group_state(GROUP)
    require(after.generation > before.generation, "the generation went back")
    _check_state(again, cut._replace(members=frozenset({"heir"})))


def _check_state(run: GroupRun, cut: Cut) -> None:
    state = run.log.group_state(GROUP)
    require(state.generation >= cut.oracle.generation, f"generation went back: {state.generation}")
    names = {member.member for member in state.members}
    require(names >= cut.members, f"{cut.members - names} are no members any more")
    for member in state.members:
        cut.oracle.hear(member.member, state.generation, member.assigned)
        cut.oracle.hear(member.member, state.generation, member.release)
        require(member.expires_in_ms == SESSION_MS, "a restart must begin every session anew")
    for found in state.partitions:
        place = found.topic, found.partition
        cut.oracle.see(place, found.committed, head_seq=found.head_seq)
        asked = cut.asked.get(place, 0)
        require((found.committed or 0) <= asked, f"{place} is at {found.committed}, asked {asked}")


def _check_afterlife(run: GroupRun, cut: Cut) -> None:
    """Let a new member outlive all others: it gets everything, where the others have left it."""
    run.clock.advance_ms(SESSION_MS)
    joined = run.log.join(GROUP, member="heir", topics=["a", "b"], session_ms=SESSION_MS)
    require(joined.assigned == {"a": [0], "b": [0]}, f"the heir got {joined.assigned}")
    for topic, by_number in joined.committed.items():
        cut.oracle.see((topic, 0), by_number[0])
    cut.oracle.hear("heir", joined.generation, joined.assigned)
