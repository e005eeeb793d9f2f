"""What a directory says of its topics: the newest readable snapshot, then the frames behind it.

The same words as `topics.engine.recover`, but nothing is opened, believed or changed: a frame that
is missing leaves a topic as it was told before. Keeps: a topic that was deleted is not here, and
its id is in `deleted_ids`.
"""

from typing import Any, NamedTuple

from topics.engine.groups.replay import GroupTable
from topics.engine.queues.replay import EVENTS, REMOVALS, apply_lease, load_table
from topics.engine.queues.table import LeaseTable
from topics.engine.routers.rebuild import FoundLink
from topics.engine.topics.floors import Floors, Hole, with_hole
from topics.engine.topics.idempotency import Idempotency
from topics.errors import CorruptData, DiskFailed, UnknownFormat
from topics.operate.parents import ParentFacts
from topics.operate.report import SnapshotInfo
from topics.operate.source import Meter, no_meter, read_source
from topics.operate.wal import Log, decode, iter_runs, survey_logs
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer, Disk
from topics.storage.snapshots.snapshot import (
    Snapshot,
    TopicSnapshot,
    decode_snapshot,
    list_snapshots,
)
from topics.storage.wal import frame
from topics.storage.wal.frame import FrameType
from topics.storage.wal.log import Position
from topics.storage.wal.replay import Run

DEFAULT_WINDOW_MS = 120_000
DEFAULT_EXPIRY_MS = 604_800_000


class ReadSnapshot(NamedTuple):
    """One snapshot file, whole or not."""

    number: int
    path: str
    size: int
    snapshot: Snapshot | None
    problem: str

    @property
    def places(self) -> dict[str, Position]:
        shards = self.snapshot.shards if self.snapshot else []
        return {place.directory: Position(place.file, place.offset) for place in shards}

    def describe(self, *, in_use: bool) -> SnapshotInfo:
        found = self.snapshot
        return SnapshotInfo(
            path=self.path,
            bytes=self.size,
            readable=found is not None,
            in_use=in_use,
            clean=found.clean if found else None,
            topics=len(found.topics) if found else None,
            next_topic_id=found.next_topic_id if found else None,
            places={d: (p.file, p.offset) for d, p in self.places.items()},
        )


class AppendRun(NamedTuple):
    """Where a log holds records of one topic, one after the other."""

    directory: str
    file: int
    start: int
    end: int
    first_seq: int
    last_seq: int


class TopicFacts:
    """What is known of one topic. `name` is None where only its records are left."""

    def __init__(self, topic_id: int, name: str | None) -> None:
        self.id = topic_id
        self.name = name
        self.config: dict[str, Any] = {}
        self.created_ts = 0
        self.parent_id = 0
        """The partitioned topic that this is a partition of."""
        self.partition = 0
        self.head_seq = 0
        self.reserved_seq = 0
        self.last_ts = 0
        self.floors = Floors()
        self.delete_below = 1
        self.absorbed_seq = 0
        self.holes: tuple[Hole, ...] = ()
        self.cold: set[int] = set()
        self.idempotency = Idempotency()
        self.deletes: list[frame.Delete] = []
        self.pending_deletes = 0
        """How many of them the next start applies."""
        self.queue = LeaseTable()
        self.done_seqs: set[int] = set()
        """Jobs that the log calls done."""
        self.appends: list[AppendRun] = []
        self.link: FoundLink | None = None
        """The routers that copy into this topic: a start makes their copies again."""

    @property
    def earliest_seq(self) -> int:
        return max(self.floors.earliest_seq, self.delete_below)

    @property
    def is_queue(self) -> bool:
        return self.config.get("type") == "queue"

    @property
    def persists(self) -> bool:
        return self.config.get("durability") != "ephemeral"

    def load(self, saved: TopicSnapshot) -> None:
        self.config = dict(saved.config)
        self.created_ts = saved.created_ts
        self.parent_id, self.partition = saved.parent_id, saved.partition
        self.head_seq = saved.head_seq
        self.reserved_seq = saved.reserved_seq
        self.last_ts = saved.last_ts
        self.floors = Floors(saved.evict_floor, saved.earliest_seq, saved.evict_reason)
        self.delete_below = saved.delete_below
        self.absorbed_seq = saved.absorbed_seq
        self.holes = tuple(Hole(*hole) for hole in saved.holes)
        self.cold = set(saved.cold_segments)
        self.idempotency.load(saved.idempotency, saved.producers)
        if saved.queue is not None:
            load_table(self.queue, saved.queue)
        if saved.link is not None:
            self.link = FoundLink()
            self.link.load(saved.link)

    def apply(self, body: frame.Body, *, ts: int) -> None:
        """Take in one control frame of this topic."""
        match body:
            case frame.Delete() | frame.Lease():
                self._delete(body)
            case frame.EvictWatermark():
                self.floors = self.floors.evicted(
                    evict_floor=body.evict_floor,
                    earliest_seq=body.earliest_seq,
                    reason=body.reason,
                )
            case frame.ConfigUpdate():
                self.config = dict(body.config)
            case frame.HeadWatermark():
                self.reserved_seq = body.ceiling
            case frame.Dedupe():
                window_ms = self.config.get("idempotency_window_ms", DEFAULT_WINDOW_MS)
                expiry_ms = self.config.get("producer_expiry_ms", DEFAULT_EXPIRY_MS)
                self.idempotency.remember(body, ts=ts, window_ms=window_ms, expiry_ms=expiry_ms)
            case frame.Hole():
                self.holes = with_hole(self.holes, Hole(body.first_seq, body.last_seq, body.reason))
                self.head_seq = max(self.head_seq, body.last_seq)
            case frame.Tier():
                self.cold.add(body.first_seq)
            case _:
                self._route(body)

    def _route(self, body: frame.Body) -> None:
        if isinstance(body, frame.RouterCreate):
            self.link = self.link or FoundLink()
            self.link.apply(body)
        elif isinstance(body, frame.RouterDelete) and self.link is not None:
            self.link.routers.pop(body.name, None)

    def _delete(self, body: frame.Delete | frame.Lease) -> None:
        if isinstance(body, frame.Lease):
            done = apply_lease(self.queue, body)
            self.done_seqs.update(done)
            self.pending_deletes += bool(done)
            return
        self.deletes.append(body)
        self.pending_deletes += 1
        if body.match is None:
            end_seq = body.upto_seq + 1
            self.delete_below = max(self.delete_below, min(body.before_seq or end_seq, end_seq))


class State:
    """What snapshot and logs say together."""

    def __init__(self, snapshots: list[ReadSnapshot], logs: list[Log]) -> None:
        self.snapshots = snapshots
        self.logs = logs
        self.used = next((s for s in snapshots if s.snapshot is not None), None)
        self.topics: dict[int, TopicFacts] = {}
        self.parents: dict[int, ParentFacts] = {}
        """The partitioned topics; their partitions are among the topics."""
        self.next_topic_id = 1
        self.known_below = 1
        """Smaller ids were given before the snapshot: one that is not in it was deleted."""
        self.deleted_ids: set[int] = set()
        self.reserved_ids: set[int] = set()
        """Of uploads that never became topics: what their directories hold was never attached."""
        self.unknown_ids: set[int] = set()
        """Topics that frames name and nothing has created."""
        self.groups = GroupTable()
        self.later_frames: set[str] = set()
        """Frame types that a later version has written."""

    @property
    def stopped_cleanly(self) -> bool:
        snapshot = self.used.snapshot if self.used else None
        if snapshot is None or not snapshot.clean:
            return False
        return all(log.end <= log.start for log in self.logs if log.in_use)


def read_snapshots(disk: Disk, meter: Meter = no_meter) -> list[ReadSnapshot]:
    """Read every snapshot, newest first."""
    return [_read_snapshot(disk, number, meter) for number in list_snapshots(disk)]


def _read_snapshot(disk: Disk, number: int, meter: Meter) -> ReadSnapshot:
    path = paths.snapshot_path(number)
    try:
        source = read_source(disk, path, meter)
    except DiskFailed as error:
        return ReadSnapshot(number, path, 0, None, str(error))
    content = bytes(source.data) if source else b""
    try:
        return ReadSnapshot(number, path, len(content), decode_snapshot(content, name=path), "")
    except (CorruptData, UnknownFormat) as error:
        return ReadSnapshot(number, path, len(content), None, str(error))
    except ValueError as error:  # msgspec: the checksum holds, the body does not
        return ReadSnapshot(number, path, len(content), None, f"{path} cannot be decoded: {error}")


def read_state(
    disk: Disk, *, past_torn: bool = False, meter: Meter = no_meter, twice: Meter = no_meter
) -> State:
    """Read snapshots and logs; with `past_torn` all that is readable, not what recovery takes.

    Logs are read twice: to find where they end (`meter` hears of it), then to apply them (`twice`).
    """
    snapshots = read_snapshots(disk, meter)
    used = next((s for s in snapshots if s.snapshot is not None), None)
    proven: dict[str, Position] = {}
    for snapshot in snapshots:
        for directory, place in snapshot.places.items():
            proven[directory] = max(place, proven.get(directory, place))
    places = used.places if used else None
    state = State(snapshots, survey_logs(disk, places, proven=proven, meter=meter))
    _load(state)
    # The newest snapshot is damaged: logs that the older one does not know may be newer than it.
    trust_all = past_torn and used is not None and used is not snapshots[0]
    for log in state.logs:
        if log.in_use or trust_all:
            _apply_log(disk, state, log, past_torn=past_torn, meter=twice)
    _settle(state)
    return state


def _load(state: State) -> None:
    snapshot = state.used.snapshot if state.used else None
    if snapshot is None:
        return
    state.next_topic_id = state.known_below = snapshot.next_topic_id
    for parent in snapshot.partitioned:
        state.parents[parent.topic_id] = ParentFacts.of_snapshot(parent)
    state.groups.load(snapshot.groups)
    for saved in snapshot.topics:
        topic = state.topics[saved.topic_id] = TopicFacts(saved.topic_id, saved.name)
        topic.load(saved)


def _apply_log(disk: Disk, state: State, log: Log, *, past_torn: bool, meter: Meter) -> None:
    for number, buffer, run in iter_runs(disk, log, past_torn=past_torn, meter=meter):
        if run[0] == FrameType.APPEND:
            _apply_append(state, log, number, run, keep_all=past_torn)
        elif (number, run[4]) >= log.start or not log.in_use:
            _apply_control(state, buffer, run, make_unknown=past_torn)
        else:
            _apply_old_delete(state, buffer, run)


def _apply_append(state: State, log: Log, number: int, run: Run, *, keep_all: bool) -> None:
    _, topic_id, first_seq, count, start, end = run
    topic = _topic(state, topic_id, make_unknown=keep_all)
    if topic is None:
        return
    last_seq = first_seq + count - 1
    found = AppendRun(log.directory, number, start, end, first_seq, last_seq)
    if topic.appends and not keep_all and topic.appends[-1].last_seq + 1 == first_seq:
        # Only the seqs matter: many small writes stay one entry.
        found = found._replace(first_seq=topic.appends.pop().first_seq)
    topic.appends.append(found)
    topic.head_seq = max(topic.head_seq, last_seq)


def _apply_control(state: State, buffer: Buffer, run: Run, *, make_unknown: bool) -> None:
    topic_id, offset = run[1], run[4]
    body = decode(buffer, offset)
    if _is_later_event(body):
        state.later_frames.add(type(body).__name__)
    elif isinstance(body, frame.Group):
        _apply_group(state, body)
    elif isinstance(body, frame.TopicCreate):
        _create(state, topic_id, body)
    elif isinstance(body, frame.TopicDelete):
        _delete(state, topic_id)
    elif topic_id in state.parents and isinstance(body, frame.ConfigUpdate):
        state.parents[topic_id].apply(body)
    elif isinstance(body, frame.CheckpointMark):
        _absorb(state, body)
    elif body is not None and not isinstance(body, frame.SyncMark):
        _apply_to_topic(
            state, run, body, ts=frame.frame_ts(buffer, offset), make_unknown=make_unknown
        )


def _apply_to_topic(
    state: State, run: Run, body: frame.Body, *, ts: int, make_unknown: bool
) -> None:
    topic = _topic(state, run[1], make_unknown=make_unknown)
    if topic is not None:
        topic.apply(body, ts=ts)


def _apply_group(state: State, body: frame.Group) -> None:
    try:
        state.groups.apply(body)
    except (UnknownFormat, CorruptData):
        state.later_frames.add(type(body).__name__)


def _is_later_event(body: frame.Body | None) -> bool:
    return isinstance(body, frame.Lease) and body.event not in EVENTS


def _apply_old_delete(state: State, buffer: Buffer, run: Run) -> None:
    """Remember deletes from before the snapshot: records next to them may be all that is left."""
    if run[0] in (FrameType.DELETE, FrameType.LEASE) and run[1] in state.topics:
        body = decode(buffer, run[4])
        if isinstance(body, frame.Delete):
            state.topics[run[1]].deletes.append(body)
        elif isinstance(body, frame.Lease) and body.event in REMOVALS:
            state.topics[run[1]].done_seqs.update(body.seqs)


def _create(state: State, topic_id: int, body: frame.TopicCreate) -> None:
    state.next_topic_id = max(state.next_topic_id, topic_id + 1)
    if not body.name:  # an upload took the id
        state.reserved_ids.add(topic_id)
        return
    state.reserved_ids.discard(topic_id)
    if topic_id in state.deleted_ids:
        return
    if body.partitions:
        state.parents.setdefault(topic_id, ParentFacts.of_frame(topic_id, body))
        state.topics.pop(topic_id, None)  # it was only heard of
        state.unknown_ids.discard(topic_id)
        return
    topic = state.topics.setdefault(topic_id, TopicFacts(topic_id, body.name))
    if topic.name is None or not topic.config:
        topic.name = body.name
        topic.parent_id, topic.partition = body.parent_id, body.partition
        topic.config = dict(body.config)
        topic.created_ts = body.created_ts
    state.unknown_ids.discard(topic_id)


def _absorb(state: State, mark: frame.CheckpointMark) -> None:
    for topic_id, seq in mark.absorbed.items():
        if topic_id in state.topics:
            topic = state.topics[topic_id]
            topic.absorbed_seq = max(topic.absorbed_seq, seq)
            topic.head_seq = max(topic.head_seq, seq)
            if topic.link is not None and topic_id in mark.cursors:
                topic.link.mark(*mark.cursors[topic_id])


def _topic(state: State, topic_id: int, *, make_unknown: bool) -> TopicFacts | None:
    topic = state.topics.get(topic_id)
    if topic is not None:
        return topic
    if topic_id < state.known_below or topic_id in state.deleted_ids:
        return None
    state.unknown_ids.add(topic_id)
    if not make_unknown:
        return None
    state.next_topic_id = max(state.next_topic_id, topic_id + 1)
    topic = state.topics[topic_id] = TopicFacts(topic_id, None)
    return topic


def _settle(state: State) -> None:
    """Where two topics have one name, the younger one proves that the older was deleted.

    And a partition ends with its parent.
    """
    newest: dict[str, int] = {}
    both: dict[int, TopicFacts | ParentFacts] = {**state.topics, **state.parents}
    for topic_id in sorted(both):
        name = both[topic_id].name
        if name is None:
            continue
        if name in newest:
            _delete(state, newest[name])
        newest[name] = topic_id
    for topic in list(state.topics.values()):
        if topic.parent_id in state.deleted_ids:
            _delete(state, topic.id)
    state.unknown_ids -= state.deleted_ids


def _delete(state: State, topic_id: int) -> None:
    state.topics.pop(topic_id, None)
    state.parents.pop(topic_id, None)
    state.deleted_ids.add(topic_id)
