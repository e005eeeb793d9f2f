"""Save what is readable of a damaged directory into a new one: what `topics repair` does.

    snapshot + control frames, past damage → pieces of every topic → fresh segments, one snapshot
    → verify the result

The original is only read. Seqs, topic ids, floors, configs, keys and producers stay; deleted stays
deleted. Seqs that nothing readable holds become holes with reason `crash`, so that readers get a
tombstone with the exact range.
Reference: docs/operating/repair.md.
"""

from typing import Final

from topics.engine.queues.replay import save_table
from topics.engine.topics.floors import Floors, Hole
from topics.errors import RequestError, UnknownFormat
from topics.model.topic_config import TopicConfig
from topics.operate.parents import ParentFacts, lost_parents, rebuild_parent
from topics.operate.ranges import Range, intersect, join, subtract
from topics.operate.rebuild import Copier, SegmentWriter
from topics.operate.report import Finding, LostRange, RepairedTopic, RepairReport
from topics.operate.salvage import COLD, HOT, Cause, Piece, Salvage, attribute, salvage_segments
from topics.operate.source import Meter, no_meter
from topics.operate.state import State, TopicFacts, read_state
from topics.operate.verify import check_format_file, require_cold, verify
from topics.operate.wal import Gap, Log
from topics.storage.disk import paths
from topics.storage.disk.data_dir import cache_is_intact, open_data_dir
from topics.storage.disk.disk import Disk
from topics.storage.snapshots.snapshot import (
    ANY_SEQ,
    GroupsSnapshot,
    LinkSnapshot,
    QueueSnapshot,
    Snapshot,
    TopicSnapshot,
    save_snapshot,
)

NO_FILE: Final = "no file holds them: a segment or a log file is missing"
IN_MEMORY: Final = "the topic is ephemeral: its records lived in memory only"
NO_FLOORS: Final = (
    "what was evicted or deleted below the first readable record is not known any more"
)
RESERVED: Final = "reserved when the last process ended without a clean stop"


def repair(
    disk: Disk,
    *,
    cold: Disk | None = None,
    into: Disk | None = None,
    into_name: str | None = None,
    meter: Meter = no_meter,
) -> RepairReport:
    """Salvage a directory that nobody has open into an empty one; without one, only tell."""
    return _Repair(disk, cold, into, meter).run(into_name)


class _Repair:
    """One repair. Lives only while it runs."""

    def __init__(self, disk: Disk, cold: Disk | None, into: Disk | None, meter: Meter) -> None:
        self._disk = disk
        self._tiers = {HOT: disk} if cold is None else {HOT: disk, COLD: cold}
        self._into = into
        self._meter = meter
        self._copier = Copier(self._tiers)
        self._damage: list[Finding] = []
        self._notes: list[str] = []

    def run(self, into_name: str | None) -> RepairReport:
        state = self._read_state()
        self._rebuild_parents(state)
        salvages = {topic.id: Salvage(topic) for topic in self._all_topics(state)}
        for rank in self._tiers:
            self._damage += salvage_segments(self._tiers, rank, salvages, meter=self._meter)
        lock = open_data_dir(self._into) if self._into is not None else None
        try:
            repaired = [self._repair_topic(state, salvages[i]) for i in sorted(salvages)]
            topics = [topic for topic, _ in repaired]
            verified = self._finish(state, [saved for _, saved in repaired])
        finally:
            if lock is not None:
                lock.close()
        return RepairReport(
            into=into_name if self._into is not None else None,
            snapshot=state.used.path if state.used else None,
            damage=self._damage,
            topics=topics,
            notes=[*self._notes, *self._copier.notes],
            records_kept=sum(topic.records_kept for topic in topics),
            records_lost=sum(topic.lost_records for topic in topics),
            seqs_set_aside=sum(r.count for topic in topics for r in topic.set_aside),
            verified=verified,
        )

    # Reading.

    def _read_state(self) -> State:
        self._damage += _of_file(paths.FORMAT, check_format_file(self._disk).findings)
        state = read_state(self._disk, past_torn=True, meter=self._meter)
        require_cold(state, self._disk, self._tiers.get(COLD))
        if state.later_frames:
            names = ", ".join(sorted(state.later_frames))
            raise UnknownFormat(
                f"the WAL has {names} frames, which this version would lose: use a newer topics"
            )
        self._damage += [Finding(message=s.problem) for s in state.snapshots if s.problem]
        for log in state.logs:
            self._tell_log(log)
        if state.used is None and state.snapshots:
            self._notes.append("no snapshot is readable: what only it knew is lost")
        return state

    def _rebuild_parents(self, state: State) -> None:
        """Make parents again whose frames are lost: without them no start takes the partitions."""
        for parent_id, topics in lost_parents(state.topics.values(), state.parents).items():
            parent = rebuild_parent(parent_id, topics)
            self._damage.append(Finding(message=f"partitioned topic {parent_id} is lost"))
            state.next_topic_id = max(state.next_topic_id, parent_id + 1)
            if parent is None or any(t.name == parent.name for t in state.topics.values()):
                self._notes.append(f"the partitions of topic {parent_id} are plain topics now")
                for topic in topics:
                    topic.parent_id = topic.partition = 0
                continue
            state.parents[parent_id] = parent
            self._notes.append(
                f"topic {parent.name!r} was made again from its partitions: how many it had before "
                "is not known, a repeat of an old write may be written once more"
            )

    def _tell_log(self, log: Log) -> None:
        for gap in log.gaps:
            if gap.torn:
                self._notes.append(
                    f"{_why(log, gap)}: torn by a crash; whole batches behind it are kept"
                )
            elif log.in_use:
                self._damage.append(Finding(message=_why(log, gap), offset=gap.at.offset))
                lost = gap.frames_lost_max
                self._notes.append(
                    f"{log.path(gap.at.file)}: up to {lost} frames are lost; deletes, config "
                    "changes and idempotency keys may have been among them"
                )
        for file in log.files:
            self._damage += _of_file(log.path(file.number), file.undecodable)

    def _all_topics(self, state: State) -> list[TopicFacts]:
        """Return what is known, and a topic for every directory that nothing explains."""
        topics = dict(state.topics)
        for disk in self._tiers.values():
            for name in disk.list(paths.TOPICS_DIR):
                topic_id = paths.parse_topic_dir_name(name)
                if topic_id is None or topic_id in topics or topic_id in state.deleted_ids:
                    continue
                if topic_id in state.reserved_ids:
                    continue
                if topic_id >= state.known_below:
                    topics[topic_id] = TopicFacts(topic_id, None)
                    state.next_topic_id = max(state.next_topic_id, topic_id + 1)
        return list(topics.values())

    # One topic.

    def _repair_topic(self, state: State, salvage: Salvage) -> tuple[RepairedTopic, TopicSnapshot]:
        facts = salvage.facts
        salvage.add_logs()
        lost = self._settle_floors(salvage)
        plan = salvage.plan()
        writer = SegmentWriter(self._into, facts.id)
        self._copier.copy(facts, plan, writer)
        head_seq = max([facts.head_seq, salvage.last_found, *(h.last_seq for h in facts.holes)])
        set_aside = self._set_aside(state, facts, head_seq)
        holes, gone = _plan_holes(facts, salvage, writer.spans, plan, head_seq)
        causes = [*salvage.causes, *_log_causes(state, facts)]
        lost += _as_lost(attribute(gone, causes, NO_FILE if facts.persists else IN_MEMORY))
        holes += [Hole(r.first_seq, r.last_seq, "crash") for r in set_aside]
        head_seq = max([head_seq, *(r.last_seq for r in set_aside)])
        saved = self._snapshot_of(state, facts, writer, head_seq=head_seq, holes=holes)
        told = RepairedTopic(
            topic_id=facts.id,
            name=saved.name,
            name_is_known=facts.name is not None,
            earliest_seq=facts.earliest_seq,
            head_seq=head_seq,
            records_kept=writer.records,
            segments=len(writer.spans),
            lost_records=sum(r.count for r in lost),
            lost=lost,
            set_aside=set_aside,
        )
        return told, saved

    def _settle_floors(self, salvage: Salvage) -> list[LostRange]:
        """Where nothing tells the floors of a topic, they are at its first readable record."""
        facts, first = salvage.facts, salvage.first_found
        if facts.name is not None or first is None or first <= facts.earliest_seq:
            return []
        facts.floors = Floors(first, first, "crash")
        return _as_lost([Cause(1, first - 1, NO_FLOORS)])

    def _set_aside(self, state: State, facts: TopicFacts, head_seq: int) -> list[LostRange]:
        """Return the seqs behind the head that may have been acknowledged."""
        upto_seq, why = head_seq, ""
        damaged = False
        for log in _logs_of(state, facts):
            for gap in log.damage:
                damaged = True
                if log.is_replayed(gap) and not _has_append_behind(facts, log, gap):
                    upto_seq += gap.frames_lost_max if facts.persists else 0
                    why = f"{_why(log, gap)} and may have held them"
        intact = cache_is_intact(self._disk) and facts.persists and not damaged
        if facts.reserved_seq > upto_seq and not intact:
            upto_seq, why = facts.reserved_seq, RESERVED
        return _as_lost([Cause(head_seq + 1, upto_seq, why)]) if upto_seq > head_seq else []

    def _snapshot_of(
        self,
        state: State,
        facts: TopicFacts,
        writer: SegmentWriter,
        *,
        head_seq: int,
        holes: list[Hole],
    ) -> TopicSnapshot:
        keys, producers = facts.idempotency.save()
        return TopicSnapshot(
            topic_id=facts.id,
            name=facts.name or _free_name(state, facts.id),
            created_ts=facts.created_ts,
            config=self._config_of(facts),
            head_seq=head_seq,
            reserved_seq=head_seq,
            last_ts=max(facts.last_ts, writer.last_ts),
            evict_floor=facts.floors.evict_floor,
            earliest_seq=facts.earliest_seq,
            evict_reason=facts.floors.reason,
            delete_below=facts.delete_below,
            absorbed_seq=head_seq,
            holes=[(h.first_seq, h.last_seq, h.reason) for h in sorted(holes)],
            cold_segments=[],
            idempotency=keys,
            producers=producers,
            queue=self._queue_of(facts),
            link=_link_of(state, facts),
            parent_id=facts.parent_id,
            partition=facts.partition,
        )

    def _queue_of(self, facts: TopicFacts) -> QueueSnapshot | None:
        """Keep what a queue knows: a number of a dead letter that was used must not come again."""
        config = TopicConfig.from_changes(self._config_of(facts))
        durable_leases = config.leases_durable and config.persists
        return (
            save_table(facts.queue, durable_leases=durable_leases)
            if config.type == "queue"
            else None
        )

    def _config_of(self, facts: TopicFacts | ParentFacts) -> dict[str, object]:
        try:
            return TopicConfig.from_changes(facts.config).as_dict()
        except RequestError as error:
            self._notes.append(f"topic {facts.id}: {error}: it gets the default config")
            return TopicConfig().as_dict()

    # Writing.

    def _finish(self, state: State, saved: list[TopicSnapshot]) -> bool:
        """Write the snapshot, which makes the new directory one, and check the whole."""
        if self._into is None:
            return False
        parents = [
            parent.save(self._config_of(parent)) for _, parent in sorted(state.parents.items())
        ]
        snapshot = Snapshot(
            next_topic_id=state.next_topic_id,
            shards=[],
            topics=saved,
            clean=True,
            partitioned=parents,
            groups=_groups_of(state, {topic.topic_id: topic.head_seq for topic in saved}),
            former_rest=ANY_SEQ,  # what could not be saved may have been read
        )
        save_snapshot(self._into, 1, snapshot)
        return verify(self._into).healthy


def _groups_of(state: State, heads: dict[int, int]) -> GroupsSnapshot:
    """Keep the consumer groups; nobody has come further than the end of what was saved."""
    for group in state.groups.groups.values():
        group.move(
            {
                partition: place._replace(seq=min(place.seq, heads[place.topic_id]))
                for partition, place in group.committed.items()
                if place.topic_id in heads
            }
        )
    return state.groups.save()


def _of_file(path: str, findings: list[Finding]) -> list[Finding]:
    return [Finding(message=f"{path}: {f.message}", offset=f.offset) for f in findings]


def _why(log: Log, gap: Gap) -> str:
    if gap.missing is not None:
        return f"{log.path(gap.missing)} is missing"
    return f"{log.path(gap.at.file)} is damaged at offset {gap.at.offset} ({gap.message})"


def _as_lost(causes: list[Cause]) -> list[LostRange]:
    return [LostRange(first_seq=a, last_seq=b, count=b - a + 1, why=why) for a, b, why in causes]


def _plan_holes(
    facts: TopicFacts, salvage: Salvage, spans: list[Range], plan: list[Piece], head_seq: int
) -> tuple[list[Hole], list[Range]]:
    """Return the holes of the new topic, and of these what is lost."""
    told = join((hole.first_seq, hole.last_seq) for hole in facts.holes)
    open_ranges = subtract([(facts.earliest_seq, head_seq)], join([*spans, *told]))
    known = join([*((p.first_seq, p.last_seq) for p in plan), *salvage.deleted])
    deleted = intersect(open_ranges, known)
    lost = subtract(open_ranges, known)
    holes = [
        *facts.holes,
        *(Hole(a, b, "deleted") for a, b in deleted),
        *(Hole(a, b, "crash") for a, b in lost),
    ]
    return holes, lost


def _link_of(state: State, facts: TopicFacts) -> LinkSnapshot | None:
    """Keep the routers into a topic; what no segment had of their copies is forwarded once more."""
    link = facts.link
    if link is None or not link.routers or link.source_id not in state.topics:
        return None
    told = [a.cursor for a in [link.base, *link.anchors] if a.source_id == link.source_id]
    all_on_log = facts.config.get("discard") == "reject"
    return link.save(cursor=max(told) if all_on_log else told[0])


def _logs_of(state: State, facts: TopicFacts) -> list[Log]:
    """Return the logs that a topic may have written to."""
    used = [log for log in state.logs if log.in_use]
    if len(used) != len(state.logs) or not used:
        return state.logs
    mine = [
        log
        for log in used
        if (number := paths.parse_shard_dir_name(log.directory.rpartition("/")[2])) is None
        or number == facts.id % len(used)
    ]
    return mine or used


def _has_append_behind(facts: TopicFacts, log: Log, gap: Gap) -> bool:
    return any(
        run.directory == log.directory and (run.file, run.start) >= gap.at for run in facts.appends
    )


def _log_causes(state: State, facts: TopicFacts) -> list[Cause]:
    """Say which gap of a log may have held which seqs: those between the records around it."""
    causes = []
    for log in _logs_of(state, facts):
        for gap in log.gaps:
            mine = [run for run in facts.appends if run.directory == log.directory]
            before = [r.last_seq for r in mine if (r.file, r.start) < gap.at]
            behind = [r.first_seq for r in mine if (r.file, r.start) >= gap.at]
            first_seq = max([facts.absorbed_seq, *before]) + 1
            last_seq = min(behind, default=1 << 63) - 1
            if first_seq <= last_seq:
                causes.append(Cause(first_seq, last_seq, _why(log, gap)))
    return causes


def _free_name(state: State, topic_id: int) -> str:
    taken = {topic.name for topic in state.topics.values()}
    taken |= {parent.name for parent in state.parents.values()}
    name = f"recovered-{topic_id:016x}"
    while name in taken:
        name += "-x"
    return name
