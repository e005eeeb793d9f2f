"""A workload of topics and routers on hostile disks, and what must be true after any crash of it.

Every record has a number of its own, in its data; a copy has the number of its source. So the
oracles are plain: no seq of a topic ever shows two numbers; what was shown and is safe is there
again, under its seq; the copies in a destination stand in the order of the source, each once; and
whatever passed the filter of a router, and the source still has, is in the destination.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import TopicFull
from topics.model.diff import Record
from topics.testing.crash_observe import Violation
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

Numbers = dict[int, int]
"""Per seq the number of its record."""


@dataclass(frozen=True)
class Op:
    """One step of a workload."""

    do: str
    name: str = ""
    count: int = 0
    tag: str | None = None
    fields: dict[str, Any] | None = None


class Span(NamedTuple):
    """From a source seq on a router forwards what has a tag."""

    source: str
    after_seq: int
    filter: str | None


@dataclass
class Known:
    """What was promised by now."""

    seen: dict[str, Numbers] = field(default_factory=dict)
    acked: dict[str, Numbers] = field(default_factory=dict)
    sure: dict[str, set[int]] = field(default_factory=dict)
    gone: dict[str, set[int]] = field(default_factory=dict)
    """Deleted numbers; those of a delete on its way are in `going`."""
    going: set[int] = field(default_factory=set)
    tags: dict[int, str | None] = field(default_factory=dict)
    origin: dict[int, str] = field(default_factory=dict)
    spans: dict[str, list[Span]] = field(default_factory=dict)
    safe: set[str] = field(default_factory=set)
    """Topics of class fsync."""
    lossy: set[str] = field(default_factory=set)
    """Topics that evict: what is missing there is announced."""
    volatile: set[str] = field(default_factory=set)
    """Topics that live in memory."""
    circles: bool = False
    """Routers go round: a topic gets its own records back, so only seqs can be checked."""
    changing: bool = False
    """A router or a topic is on its way to change: either state may be found."""
    next_n: int = 1

    def forget_topic(self, topic: str) -> None:
        for table in (self.seen, self.acked, self.sure, self.gone):
            table.pop(topic, None)
        self.spans.pop(topic, None)
        for dest, spans in list(self.spans.items()):
            if any(span.source == topic for span in spans):
                del self.spans[dest]


class Cut(NamedTuple):
    """The disks before one call, and what was promised by then."""

    disks: Disks
    known: Known
    now_ms: int


class Found(NamedTuple):
    """All that a topic shows."""

    numbers: Numbers
    gaps: list[tuple[int, int]]
    records: list[Record]


class RouterRun:
    """One log with routers."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        disks: Disks | None = None,
        known: Known | None = None,
        now_ms: int = 1_700_000_000_000,
        records: bool = False,
    ) -> None:
        self.config = config
        self.clock = ManualClock(now_ms)
        self.disks = disks or Disks(HostileDisk(), HostileDisk())
        self.known = known or Known()
        self.cuts: list[Cut] = []
        self._records = records
        self.log = self._open()

    def _open(self) -> Log:
        hooks = Hooks(self._before_call, lambda: None)
        hot, cold = (RecordingDisk(disk, hooks) for disk in self.disks)
        return Log(self.config, disk=hot, cold_disk=cold, clock=self.clock, background=False)

    def _before_call(self) -> None:
        if self._records:
            self.cuts.append(self.cut_here())

    def cut_here(self) -> Cut:
        return Cut(self.disks.copy(), deepcopy(self.known), self.clock.now_ms())

    def run(self, operations: list[Op]) -> None:
        for op in operations:
            getattr(self, f"_{op.do}")(op)
            self.clock.advance_ms(1)

    # Looking.

    def look(self, topic: str) -> Found:
        """Read a topic from its start."""
        numbers: Numbers = {}
        gaps: list[tuple[int, int]] = []
        records: list[Record] = []
        cursor = 0
        while True:
            page = self.log.diff(topic, from_seq=cursor, include_tags=True)
            if page.tombstone is not None:
                gaps.append((page.tombstone.gap_from, page.tombstone.gap_to))
            for record in page.records:
                numbers[record.seq] = record.data["n"]
                records.append(record)
            cursor = page.next_from_seq
            if page.caught_up:
                return Found(numbers, gaps, records)

    def _note(self, topic: str) -> None:
        """Remember what a reader saw: from now on no crash may change it."""
        known = self.known
        seen = known.seen.setdefault(topic, {})
        for seq, n in self.look(topic).numbers.items():
            if seen.setdefault(seq, n) != n:
                raise Violation(f"{topic} {seq} was {seen[seq]} and is {n}")
            if topic in known.safe or known.origin[n] in known.safe:
                known.sure.setdefault(topic, set()).add(seq)

    # Each operation.

    def _create(self, op: Op) -> None:
        fields = op.fields or {}
        self.known.changing = True
        self.log.create(op.name, **fields)
        self.known.changing = False
        if "durability" in fields:
            if fields["durability"] == "fsync":
                self.known.safe.add(op.name)
            else:
                self.known.safe.discard(op.name)
        if fields.get("durability") == "ephemeral":
            self.known.volatile.add(op.name)
        if fields.get("cap_records"):
            self.known.lossy.add(op.name)

    def _append(self, op: Op) -> None:
        known = self.known
        first = known.next_n
        known.next_n += op.count
        records = []
        for n in range(first, first + op.count):
            known.tags[n], known.origin[n] = op.tag, op.name
            record: dict[str, Any] = {"data": {"n": n, "pad": "x" * (n % 3) * 60}, "node": "w"}
            records.append(record if op.tag is None else {**record, "tag": op.tag})
        try:
            appended = self.log.append(op.name, records, create=False)
        except TopicFull:
            return
        acked = known.acked.setdefault(op.name, {})
        for i, seq in enumerate(appended.seqs):
            acked[seq] = first + i
            known.seen.setdefault(op.name, {})[seq] = first + i
            if op.name in known.safe:
                known.sure.setdefault(op.name, set()).add(seq)

    def _read(self, op: Op) -> None:
        self._note(op.name)

    def _forward(self, op: Op) -> None:  # noqa: ARG002 - every step looks the same
        self.log.engine.forward_once()

    def _delete(self, op: Op) -> None:
        known = self.known
        self._note(op.name)
        numbers = self.look(op.name).numbers
        if op.tag is not None:
            hit = {n for n in numbers.values() if known.tags[n] == op.tag}
        else:
            hit = {n for seq, n in numbers.items() if seq < op.count}
        known.going = hit
        match = None if op.tag is None else ["tag", "Eq", op.tag]
        self.log.delete(op.name, before_seq=op.count or None, match=match)
        known.gone.setdefault(op.name, set()).update(hit)
        known.going = set()

    def _work(self, op: Op) -> None:
        getattr(self.log.engine, op.name)()
        if op.name in ("sync", "checkpoint", "snapshot"):
            for topic, seen in self.known.seen.items():
                self.known.sure.setdefault(topic, set()).update(seen)

    def _put(self, op: Op) -> None:
        fields = op.fields or {}
        self.known.changing = True
        self.known.circles = self.known.circles or fields.get("allow_cycle", False)
        self.log.engine.put_router(op.name, fields)
        self.known.changing = False
        after_seq = self.log.engine.topic(fields["source"]).head_seq
        span = Span(fields["source"], after_seq, fields.get("filter"))
        self.known.spans.setdefault(fields["dest"], []).append(span)

    def _unput(self, op: Op) -> None:
        definition = self.log.engine.router_state(op.name).definition
        self.known.changing = True
        self.log.engine.delete_router(op.name)
        self.known.changing = False
        after_seq = self.log.engine.topic(definition.source).head_seq
        self.known.spans[definition.dest].append(Span(definition.source, after_seq, "nothing"))

    def _drop(self, op: Op) -> None:
        self.known.changing = True
        self.log.engine.drop_topic(op.name)
        self.known.changing = False
        self.known.forget_topic(op.name)

    def _tick(self, op: Op) -> None:
        self.clock.advance_ms(op.count)

    def _restart(self, op: Op) -> None:
        """End the process; nothing may be lost, and nothing may move."""
        for topic in self.known.seen:
            self._note(topic)
        if op.name == "clean":
            self.log.close()
            self.disks = self.disks.copy()
        else:
            self.disks = self.disks.kill()
        self.log = self._open()
        self.check(kill=True)

    # The oracles.

    def check(self, *, kill: bool) -> dict[str, Numbers]:
        known = self.known
        topics = [t.name for t in self.log.engine.topics()]
        found = {name: self.look(name) for name in topics}
        for name, shown in found.items():
            self._check_topic(name, shown, kill=kill)
        if not known.changing and not known.circles:
            for dest, spans in known.spans.items():
                self._check_copies(dest, spans, found)
        return {n: shown.numbers for n, shown in found.items() if n not in known.volatile}

    def _check_topic(self, name: str, shown: Found, *, kill: bool) -> None:
        self._check_shown(name, shown)
        known = self.known
        if known.changing or name in known.volatile:
            return  # it may have been dropped, and be new
        gone = known.gone.get(name, set()) | known.going
        seen = known.seen.get(name, {})
        sure = set(seen) if kill else known.sure.get(name, set())
        for seq, n in seen.items():
            if seq in shown.numbers or n in gone:
                continue
            if seq in sure and name not in known.lossy:
                raise Violation(f"{name} {seq}: {n} was safe and is lost; {shown}")
            if not any(a <= seq <= b for a, b in shown.gaps):
                raise Violation(f"{name} {seq}: the loss of {n} is not announced; {shown}")

    def _check_shown(self, name: str, shown: Found) -> None:
        """No seq has another number than before, nothing is there twice or came back."""
        known = self.known
        numbers = shown.numbers
        seen = known.seen.get(name, {})
        gone = known.gone.get(name, set())
        for seq, n in numbers.items():
            if seen.get(seq, n) != n:
                raise Violation(f"{name} {seq} was {seen[seq]} and is {n}")
            if n in gone:
                raise Violation(f"{name} {seq}: {n} was deleted and is back")
        if len(set(numbers.values())) != len(numbers) and not known.circles:
            raise Violation(f"{name} shows a record twice: {numbers}")
        times = [record.ts for record in shown.records]
        if times != sorted(times):
            raise Violation(f"time goes back in {name}: {times}")

    def _check_copies(self, dest: str, spans: list[Span], found: dict[str, Found]) -> None:
        """Dest = filter(source), in order."""
        known = self.known
        source = spans[-1].source
        seqs = {n: seq for seq, n in known.seen.get(source, {}).items()}
        seqs |= {n: seq for seq, n in found[source].numbers.items()}
        copies = [n for n in found[dest].numbers.values() if known.origin[n] != dest]
        places = [seqs[n] for n in copies if n in seqs]
        if places != sorted(places):
            raise Violation(f"{dest} has copies out of order: {copies}, {places} of {source}")
        missing = known.gone.get(dest, set()) | known.going
        if source in known.volatile:
            return
        for seq, n in found[source].numbers.items():
            span = next((s for s in reversed(spans) if s.after_seq < seq), None)
            wanted = span is not None and span.filter in (None, known.tags[n])
            if wanted and n not in copies and n not in missing and dest not in known.lossy:
                raise Violation(f"{dest} has no copy of {n}, {source} {seq}: {found[dest]}")
            if not wanted and n in copies:
                raise Violation(f"{dest} has a copy of {n} that no router makes")


KILL = -1


def check_crash(config: ServerConfig, cut: Cut, seed: int, *, afterlife: bool) -> None:
    """Crash there, start again, and hold what is found against what was promised."""
    disks = cut.disks.copy()
    disks = disks.kill() if seed == KILL else disks.power_cut(seed)
    run = RouterRun(config, disks=disks, known=deepcopy(cut.known), now_ms=cut.now_ms)
    found = run.check(kill=seed == KILL)
    if not afterlife:
        return
    run.known.sure = {topic: set(numbers) for topic, numbers in found.items()}
    disks = run.disks.kill() if seed == KILL else run.disks.power_cut(seed)
    again = RouterRun(config, disks=disks, known=run.known, now_ms=cut.now_ms)
    if (shown := again.check(kill=False)) != found and not again.known.circles:
        raise Violation(f"a second start shows {shown}, the first {found}")
    again.known.changing = True  # what a change on its way has come to is not told
    # Also one whose creation was cut: nobody was told that it is there.
    again.known.volatile |= {t.name for t in again.log.engine.topics() if not t.config.persists}
    for topic in again.log.engine.topics():
        again.run([Op("append", topic.name, 2, "late"), Op("read", topic.name)])
    again.run([Op("read", topic.name) for topic in again.log.engine.topics()])
    again.log.sync()
    wanted = {
        t.name: again.look(t.name).numbers
        for t in again.log.engine.topics()
        if t.name not in again.known.volatile
    }
    disks = again.disks.power_cut(max(seed, 0))
    third = RouterRun(config, disks=disks, known=again.known, now_ms=again.clock.now_ms())
    if (got := third.check(kill=False)) != wanted and not again.known.circles:
        raise Violation(f"after a sync and a power cut {got}, not {wanted}")


def crash_everywhere(config: ServerConfig, operations: list[Op], seeds: list[int]) -> int:
    """Record a run, and crash it at every call with each of the seeds."""
    run = RouterRun(config, records=True)
    run.run(operations)
    cuts = [*run.cuts, run.cut_here()]
    for number, cut in enumerate(cuts):
        for place, seed in enumerate(seeds):
            try:
                check_crash(config, cut, seed, afterlife=number % len(seeds) == place)
            except Exception as error:
                raise Violation(
                    f"cut {number} of {len(cuts)}, seed {seed}: {error!r}; {operations}"
                ) from error
    return len(cuts) * len(seeds)
