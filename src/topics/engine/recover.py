"""A start: snapshot + segments + WAL → topics, in one deterministic pass.

    newest whole snapshot → scan every shard's log → which seqs are in synced segments
    → open segments → cut torn tails → apply frames in order
    → announce what a power cut took

No log changes before all of them were read and believed; what changes then (torn tails, delete
flags, orphans) may be cut anywhere and done again. Damage of bytes that were once synced stops
the start with an error that names the file.
"""

from collections.abc import Callable

import msgspec

from topics.collector import nothing_collected
from topics.config import ServerConfig
from topics.engine.delete import apply_delete
from topics.engine.groups.replay import GroupTable
from topics.engine.queues.replay import apply_lease, load_table, settle_queue
from topics.engine.routers.link import Link
from topics.engine.routers.rebuild import FoundLink, Rebuild, build_links, in_order
from topics.engine.stores import Stores
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.floors import Floors, Hole
from topics.engine.topics.former import FormerLives
from topics.engine.topics.found_parents import FoundParents
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import CorruptData
from topics.kernel import IDX_ENTRY_BYTES, index_frames
from topics.model.topic_config import TopicConfig
from topics.storage.disk import paths
from topics.storage.disk.data_dir import is_as_stopped, write_file
from topics.storage.disk.disk import Disk
from topics.storage.segments.segment import Segment
from topics.storage.segments.tag_runs import TagRuns
from topics.storage.snapshots.snapshot import (
    ANY_SEQ,
    RestSnapshot,
    Snapshot,
    TopicSnapshot,
    load_newest_snapshot,
)
from topics.storage.wal import frame
from topics.storage.wal.frame import FrameType
from topics.storage.wal.log import Position, list_wal_files
from topics.storage.wal.replay import ReplayedFile, Run, ShardReplay, replay_shard, seal_tail

WAL_START = Position(1, 0)
APPEND = int(FrameType.APPEND)
_READ_FIRST = frozenset(
    map(int, (FrameType.CHECKPOINT_MARK, FrameType.TIER, FrameType.TOPIC_DELETE))
)
_READ_BEFORE = frozenset(map(int, (FrameType.CHECKPOINT_MARK, FrameType.TIER, FrameType.SYNC_MARK)))
"""All that these say is known by then: from the first pass, or from the scan."""
Progress = Callable[[float], None]


class Recovered:
    """What a start found."""

    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.next_topic_id = 1
        self.snapshot_number = 0
        self.snapshot_places: dict[str, Position] = {}
        self.replays: dict[str, ShardReplay] = {}
        self.orphan_ids: list[int] = []
        self.new_holes: list[tuple[Topic, Hole]] = []
        self.links: list[Link] = []
        self.parents: dict[Partitioned, dict[int, Topic]] = {}
        """The partitioned topics, each with the partitions there are."""
        self.gone_partitions: list[int] = []
        """Topics that should have ended with their parent: the log has to hear of it."""
        self.groups = GroupTable()
        self.former = FormerLives()
        """How far topics came that are gone; where only the log tells of their end, any seq."""


def recover(
    disk: Disk, stores: Stores, config: ServerConfig, *, cache_intact: bool, progress: Progress
) -> Recovered:
    """Read everything; change nothing but files that no reader of the old state needs."""
    with nothing_collected():
        return _Recovery(disk, stores, config, cache_intact=cache_intact, progress=progress).run()


class _Recovery:
    """One start. Lives only while it runs."""

    def __init__(
        self,
        disk: Disk,
        stores: Stores,
        config: ServerConfig,
        *,
        cache_intact: bool,
        progress: Progress,
    ) -> None:
        self._disk = disk
        self._stores = stores
        self._config = config
        self._cache_intact = cache_intact
        self._progress = progress
        self._found = Recovered()
        self._absorbed: dict[int, int] = {}
        self._cold: dict[int, set[int]] = {}
        self._gone_cold: set[int] = set()
        """Topics with cold segments that no tier has: reclaimed, or `TOPICS_COLD_DIR` is wrong."""
        self._deleted_ids: set[int] = set()
        self._held: dict[int, int] = {}
        """Per topic the highest seq that a segment or a replayed chunk holds."""
        self._links: dict[int, FoundLink] = {}
        """Per destination what is known of its routers."""
        self._cursors: dict[int, tuple[int, int]] = {}
        """Per destination what its newest mark says: source and cursor."""
        self._parents = FoundParents()
        self._rests: dict[int, RestSnapshot] = {}
        """Of topics that are as a stop has left them: what is known without reading segments."""
        self._names: dict[int, list[str]] = {}
        """Per topic what its directory held when its segments were opened."""
        self._configs: dict[bytes, TopicConfig] = {}

    def run(self) -> Recovered:
        snapshot = self._load_snapshot()
        self._replay_logs()
        self._collect_marks()
        for parent_snapshot in snapshot.partitioned if snapshot else ():
            if parent_snapshot.topic_id not in self._deleted_ids:
                self._parents.load(parent_snapshot)
        as_stopped = snapshot is not None and self._is_as_stopped(snapshot)
        for topic_snapshot in snapshot.topics if snapshot else ():
            self._restore(topic_snapshot, as_stopped=as_stopped)
        if snapshot is not None:
            self._found.groups.load(snapshot.groups)
        # First: a replayed delete sets flags in segments, which must not outlive its frame.
        for replay in self._found.replays.values():
            seal_tail(self._disk, replay)
        self._apply_frames()
        self._settle_names()
        self._rebuild_copies()
        for topic in self._found.topics.values():
            self._settle(topic)
        self._find_orphans()
        self._progress(1.0)
        return self._found

    # Reading.

    def _load_snapshot(self) -> Snapshot | None:
        loaded = load_newest_snapshot(self._disk)
        if loaded is None:
            return None
        self._found.snapshot_number, snapshot = loaded
        self._found.next_topic_id = snapshot.next_topic_id
        self._found.former = _former_of(snapshot)
        self._found.snapshot_places = {
            place.directory: Position(place.file, place.offset) for place in snapshot.shards
        }
        return snapshot

    def _replay_logs(self) -> None:
        """Scan the logs that the snapshot names; others are left from an older shard count."""
        places = self._found.snapshot_places
        if not places:
            places = dict.fromkeys(wal_directories(self._disk), WAL_START)
        for directory, start in places.items():
            self._found.replays[directory] = replay_shard(
                self._disk, directory, start=start, cache_intact=self._cache_intact
            )

    def _collect_marks(self) -> None:
        """Learn which seqs segments hold, before any frame is applied."""
        for file, run in self._frames_of(_READ_FIRST):
            body = frame.decode_control(file.buffer, run[4])
            if isinstance(body, frame.CheckpointMark):
                for topic_id, seq in body.absorbed.items():
                    self._absorbed[topic_id] = max(seq, self._absorbed.get(topic_id, 0))
                self._cursors.update(body.cursors)
            elif isinstance(body, frame.Tier):
                self._cold.setdefault(run[1], set()).add(body.first_seq)
            elif isinstance(body, frame.TopicDelete):
                self._deleted_ids.add(run[1])

    def _frames_of(self, types: frozenset[int]) -> list[tuple[ReplayedFile, Run]]:
        return [
            (file, run)
            for replay in self._found.replays.values()
            for file in replay.files
            for run in file.runs
            if run[0] in types
        ]

    def _is_as_stopped(self, snapshot: Snapshot) -> bool:
        """Tell whether the snapshot is of a stop, and no process came since."""
        replays = self._found.replays
        number = self._found.snapshot_number
        return (
            bool(snapshot.ends)
            and is_as_stopped(self._disk, snapshot_number=number)
            and all(
                (replay := replays.get(end.directory)) is not None
                and replay.end == (end.file, end.offset)
                and not replay.dropped
                for end in snapshot.ends
            )
        )

    # Building topics.

    def _restore(self, saved: TopicSnapshot, *, as_stopped: bool) -> None:
        if saved.topic_id in self._deleted_ids:
            self._found.former.note(saved.name)
            return
        topic = self._new_topic(saved.topic_id, saved.name, saved.config, saved.created_ts)
        self._parents.note_partition(topic.id, parent_id=saved.parent_id, partition=saved.partition)
        topic.head_seq = saved.head_seq
        topic.next_seq = saved.head_seq + 1
        topic.reserved_seq = saved.reserved_seq
        topic.last_ts = saved.last_ts
        topic.floors = Floors(saved.evict_floor, saved.earliest_seq, saved.evict_reason)
        topic.delete_below = saved.delete_below
        topic.holes = tuple(Hole(*hole) for hole in saved.holes)
        topic.idempotency.load(saved.idempotency, saved.producers)
        if topic.queue is not None and saved.queue is not None:
            load_table(topic.queue, saved.queue)
        topic.absorbed_seq = max(saved.absorbed_seq, self._absorbed.get(topic.id, 0))
        self._cold.setdefault(topic.id, set()).update(saved.cold_segments)
        if not (as_stopped and saved.rest and self._restore_segments(topic, saved.rest)):
            self._open_segments(topic)
        if saved.link is not None:
            self._link_of(topic.id).load(saved.link)

    def _restore_segments(self, topic: Topic, rest: RestSnapshot) -> bool:
        """Take segments as the stop has saved them; False where a file is not what it was."""
        segments = []
        for sums in rest.segments:
            segment = self._stores.new_segment(topic.id, sums.first_seq, durable=True)
            if not segment.restore(sums):
                return False
            segments.append(segment)
        topic.runs += segments
        if rest.has_tag_runs:
            topic.tags.load(self._disk.list(paths.topic_dir(topic.id)))
        topic.tag_pending = _untagged(topic)
        self._held[topic.id] = topic.absorbed_seq
        self._rests[topic.id] = rest
        return True

    def _config_of(self, saved: dict[str, object]) -> TopicConfig:
        """Return a config that topics with the same settings share."""
        key = msgspec.json.encode(saved)
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = TopicConfig.from_changes(saved)
        return config

    def _new_topic(
        self, topic_id: int, name: str, config: dict[str, object], created_ts: int
    ) -> Topic:
        topic = Topic(
            topic_id,
            name,
            config=self._config_of(config),
            created_ts=created_ts,
            tags=TagRuns(self._disk, self._stores.maps, topic_id),
        )
        topic.replaying = True
        self._found.topics[topic_id] = topic
        self._found.next_topic_id = max(self._found.next_topic_id, topic_id + 1)
        return topic

    def _open_segments(self, topic: Topic) -> None:
        """Open the segments up to the highest absorbed seq.

        What is behind it was never finished.
        """
        names = self._names[topic.id] = self._disk.list(paths.topic_dir(topic.id))
        cold = self._cold.get(topic.id, set())
        hot = {
            found[0]
            for name in names
            if (found := paths.parse_segment_name(name)) and found[1] == "data"
        }
        found_cold = {s for s in cold - hot if self._in_cold(topic.id, s)}
        if cold - hot - found_cold:
            self._gone_cold.add(topic.id)
        first_seqs = sorted(s for s in hot | found_cold if s <= topic.absorbed_seq)
        for place, first_seq in enumerate(first_seqs):
            segment = self._stores.new_segment(topic.id, first_seq, durable=True)
            if first_seq not in hot:
                self._take_from_cold(segment)
            is_last = place == len(first_seqs) - 1
            self._load(segment, keep=topic.absorbed_seq - first_seq + 1 if is_last else None)
            topic.runs.append(segment)
            if segment.count:
                topic.last_ts = max(topic.last_ts, segment.last_ts)
        topic.tags.load(names)
        topic.tag_pending = _untagged(topic)
        self._held[topic.id] = topic.absorbed_seq

    def _load(self, segment: Segment, *, keep: int | None) -> None:
        """Load a segment; the last one may have a torn tail behind what was absorbed."""
        if segment.tier == "cold":
            keep = None
        if keep is not None and self._disk.exists(segment.idx_path):
            # Absorbed records below the live floor were never copied: then there are fewer.
            keep = min(keep, self._disk.size(segment.idx_path) // IDX_ENTRY_BYTES) or keep
        segment.load(keep=keep)
        segment.release()

    def _in_cold(self, topic_id: int, first_seq: int) -> bool:
        """Tell whether the cold tier still has a segment; a reclaimed one is rightly gone."""
        cold = self._stores.cold
        return cold is not None and cold.has(topic_id, first_seq)

    def _take_from_cold(self, segment: Segment) -> None:
        cold = self._stores.cold
        assert cold is not None
        segment.move_to_cold(cold)
        if not self._disk.exists(segment.idx_path):
            # Lost, or the first half of a cut reclaim.
            self._disk.make_dir(paths.topic_dir(segment.topic_id))
            idx = cold.read_idx(segment.topic_id, segment.first_seq)
            write_file(self._disk, segment.idx_path, idx)
        segment.cold_stale = True

    # Applying frames.

    def _apply_frames(self) -> None:
        files = [f for replay in self._found.replays.values() for f in replay.files]
        for done, file in enumerate(files):
            for run in file.runs:
                if run[0] == APPEND:
                    self._apply_append(file, run)
                elif run[0] not in _READ_BEFORE:
                    self._apply_control(file, run)
            self._progress((done + 1) / len(files))

    def _apply_append(self, file: ReplayedFile, run: Run) -> None:
        _, topic_id, first_seq, count, start, end = run
        topic = self._found.topics.get(topic_id)
        if topic is None:
            self._check_known(topic_id)
            return
        held = self._held[topic_id]
        idx = index_frames(file.buffer, start, end)
        skip = min(count, max(0, held + 1 - first_seq))
        if skip < count:
            offset = int.from_bytes(
                idx[skip * IDX_ENTRY_BYTES : skip * IDX_ENTRY_BYTES + 4], "little"
            )
            if skip:
                idx = index_frames(file.buffer, start + offset, end)
            chunk = Chunk(
                first_seq + skip,
                count=count - skip,
                frames=file.buffer[start + offset : end],
                idx=idx,
                durable=True,
            )
            self._lose_before(topic, chunk.first_seq)
            topic.runs.append(chunk)
            self._held[topic_id] = chunk.last_seq
        # Also of records that a segment held and that are gone since: time does not step back.
        topic.last_ts = max(topic.last_ts, int.from_bytes(idx[-12:-4], "little"))
        topic.head_seq = max(topic.head_seq, first_seq + count - 1)
        topic.next_seq = topic.head_seq + 1

    def _apply_control(self, file: ReplayedFile, run: Run) -> None:
        topic_id, offset = run[1], run[4]
        body = frame.decode_control(file.buffer, offset)
        if isinstance(body, frame.TopicCreate):
            self._create(topic_id, body)
        elif isinstance(body, frame.TopicDelete):
            self._found.topics.pop(topic_id, None)
            self._parents.parents.pop(topic_id, None)
        elif isinstance(body, frame.Group):
            self._found.groups.apply(body)
        elif topic_id in self._parents.parents and isinstance(body, frame.ConfigUpdate):
            self._parents.change(topic_id, body)
        elif isinstance(body, frame.Hole):
            self._apply_hole(topic_id, body)
        elif topic_id in self._found.topics:
            self._apply_known(topic_id, body, ts=frame.frame_ts(file.buffer, offset))
        else:
            self._check_known(topic_id)

    def _apply_hole(self, topic_id: int, body: frame.Hole) -> None:
        topic = self._found.topics.get(topic_id)
        if topic is None:
            self._check_known(topic_id)
            return
        self._lose_before(topic, body.first_seq)
        topic.apply_hole(Hole(body.first_seq, body.last_seq, body.reason))
        topic.runs = [run for run in topic.runs if not _inside(run.first_seq, run.last_seq, body)]
        topic.head_seq = max(topic.head_seq, body.last_seq)
        topic.next_seq = topic.head_seq + 1
        self._held[topic_id] = max(self._held[topic_id], body.last_seq)

    def _lose_before(self, topic: Topic, seq: int) -> None:
        """Note what was in memory only before something that the log has; copies are made again."""
        first_seq = max(self._held[topic.id] + 1, topic.floors.earliest_seq)
        if first_seq < seq and topic.id not in self._links:
            topic.apply_hole(Hole(first_seq, seq - 1, "crash"))

    def _apply_known(self, topic_id: int, body: frame.Body, *, ts: int) -> None:
        if isinstance(body, frame.RouterCreate):
            self._link_of(topic_id).apply(body)
        elif isinstance(body, frame.RouterDelete):
            self._link_of(topic_id).routers.pop(body.name, None)
        else:
            if isinstance(body, frame.Delete) and topic_id in self._links:
                self._links[topic_id].deletes.append(body)  # for the copies that are not there yet
            _apply_to_topic(self._found.topics[topic_id], body, ts=ts)

    def _link_of(self, topic_id: int) -> FoundLink:
        return self._links.setdefault(topic_id, FoundLink())

    def _create(self, topic_id: int, body: frame.TopicCreate) -> None:
        self._found.next_topic_id = max(self._found.next_topic_id, topic_id + 1)
        if topic_id in self._deleted_ids and body.name:
            self._found.former.note(body.name)
        if topic_id in self._found.topics or topic_id in self._deleted_ids or not body.name:
            return  # without a name it only takes the id, for an upload
        if body.partitions:
            self._parents.create(topic_id, body)
            return
        topic = self._new_topic(topic_id, body.name, body.config, body.created_ts)
        self._parents.note_partition(topic_id, parent_id=body.parent_id, partition=body.partition)
        topic.absorbed_seq = self._absorbed.get(topic_id, 0)
        self._open_segments(topic)

    def _check_known(self, topic_id: int) -> None:
        """Refuse frames of a topic that never began; those of a deleted one are rightly skipped."""
        if topic_id >= self._found.next_topic_id:
            raise CorruptData(
                f"the WAL names topic {topic_id}, which was never created: run topics repair"
            )

    # Settling.

    def _settle_names(self) -> None:
        """Leave one topic a name, and no partition without its parent."""
        found, parents = self._found, self._parents
        names = {topic_id: topic.name for topic_id, topic in found.topics.items()}
        parents.settle_names(found.topics)
        found.gone_partitions = parents.drop_orphans(found.topics, self._deleted_ids)
        found.parents = parents.join(found.topics)
        for topic_id in names.keys() - found.topics.keys():
            found.former.note(names[topic_id])

    def _rebuild_copies(self) -> None:
        """Make the copies of routers again, a source before what is copied from it."""
        topics = self._found.topics
        for topic_id, cursor in self._cursors.items():
            if topic_id in self._links:
                self._links[topic_id].mark(*cursor)
        self._found.links = build_links(self._links, topics)
        linked: dict[int, Link | None] = {
            link.dest.id: link for link in in_order(self._found.links)
        }
        unlinked = [topic_id for topic_id in self._links if topic_id not in linked]
        for topic_id in [*unlinked, *linked]:
            if topic_id in topics:
                rebuild = Rebuild(topics[topic_id], self._links[topic_id], linked.get(topic_id))
                rebuild.run()
                self._found.new_holes += [(topics[topic_id], hole) for hole in rebuild.new_holes]

    def _settle(self, topic: Topic) -> None:
        segments = topic.segments()
        # Attached segments are on the log only by their mark, and may have been reclaimed since.
        topic.head_seq = max(topic.head_seq, topic.absorbed_seq)
        for segment in segments:
            topic.head_seq = max(topic.head_seq, segment.last_seq)
        topic.next_seq = topic.head_seq + 1
        self._announce_loss(topic)
        _check_cover(topic, cold_is_gone=topic.id in self._gone_cold)
        if segments and segments[-1].tier == "hot" and self._has_room(segments[-1]):
            segments[-1].reopen_active()
        rest = self._rests.get(topic.id)
        if rest is None or topic.replayed_deletes:
            _apply_replayed_deletes(topic)
        topic.flagged.intersection_update(segments)
        for segment in sorted(topic.flagged, key=lambda segment: segment.first_seq):
            segment.renew_flags()
        topic.tag_pending = _untagged(topic)
        topic.replaying = False
        topic.floors = topic.floors.advanced(topic.delete_below)
        if rest is None:
            topic.recount()
            topic.settle_earliest(topic.floors.earliest_seq)
        else:  # exact: nothing on the log is newer
            topic.live_records, topic.live_bytes = rest.live_records, rest.live_bytes
            topic.oldest_ts = rest.oldest_ts
        settle_queue(topic)
        if rest is None:
            self._remove_strays(topic)

    def _has_room(self, segment: Segment) -> bool:
        return (
            segment.count < self._config.segment_max_events
            and segment.data_bytes < self._config.segment_max_bytes
        )

    def _announce_loss(self, topic: Topic) -> None:
        """Turn reserved seqs that may have been handed out and lost into a gap."""
        intact = self._cache_intact and topic.config.persists
        if topic.reserved_seq > topic.head_seq and not intact:
            # What was deleted before the crash is not lost by it.
            first_seq = max(topic.head_seq + 1, topic.floors.earliest_seq)
            hole = Hole(first_seq, topic.reserved_seq, "crash")
            if first_seq <= topic.reserved_seq:
                topic.apply_hole(hole)
                self._found.new_holes.append((topic, hole))
            topic.head_seq = topic.reserved_seq
            topic.next_seq = topic.head_seq + 1

    def _remove_strays(self, topic: Topic) -> None:
        """Remove what a cut checkpoint, rewrite or reclaim left behind, so that it stays away."""
        directory = paths.topic_dir(topic.id)
        known = {s.first_seq for s in topic.segments()}
        strays = [
            name
            for name in self._names.pop(topic.id)
            if name.endswith(paths.TEMPORARY_SUFFIX)
            or ((found := paths.parse_segment_name(name)) is not None and found[0] not in known)
        ]
        for name in strays:
            if self._disk.exists(
                f"{directory}/{name}"
            ):  # else an index was made again by that name
                self._disk.unlink(f"{directory}/{name}")
        if strays:
            self._disk.sync_dir(directory)

    def _find_orphans(self) -> None:
        for name in self._disk.list(paths.TOPICS_DIR):
            topic_id = paths.parse_topic_dir_name(name)
            if topic_id is None or topic_id in self._found.topics:
                continue
            if topic_id >= self._found.next_topic_id:
                raise CorruptData(
                    f"{paths.topic_dir(topic_id)} belongs to a topic that neither snapshot nor WAL "
                    "knows: restore meta/ and wal/, or run topics repair"
                )
            self._found.orphan_ids.append(topic_id)


def _former_of(snapshot: Snapshot) -> FormerLives:
    """Return what a snapshot knows of topics that are gone."""
    if snapshot.former_rest is not None:
        return FormerLives(snapshot.former, rest=snapshot.former_rest)
    ever = snapshot.next_topic_id - 1
    if len(snapshot.topics) + len(snapshot.partitioned) == ever:
        return FormerLives()  # each id that was given away is still in use
    return FormerLives(rest=ANY_SEQ)


def _apply_to_topic(topic: Topic, body: frame.Body, *, ts: int) -> None:
    if isinstance(body, frame.Delete):
        apply_delete(topic, body)
        _flag_again(topic)
    elif isinstance(body, frame.EvictWatermark):
        topic.apply_eviction(
            evict_floor=body.evict_floor, earliest_seq=body.earliest_seq, reason=body.reason
        )
    elif isinstance(body, frame.ConfigUpdate):
        topic.config = TopicConfig.from_changes(body.config)
    elif isinstance(body, frame.HeadWatermark):
        topic.reserved_seq = body.ceiling
    elif isinstance(body, frame.Dedupe):
        config = topic.config
        window_ms, expiry_ms = config.idempotency_window_ms, config.producer_expiry_ms
        topic.idempotency.remember(body, ts=ts, window_ms=window_ms, expiry_ms=expiry_ms)
    elif isinstance(body, frame.Lease):
        if topic.queue is not None:
            topic.replayed_deletes += apply_lease(topic.queue, body)
    else:
        raise AssertionError(type(body).__name__)  # noqa: TRY004 - our own broken promise


def _apply_replayed_deletes(topic: Topic) -> None:
    """Delete the jobs that are done, all at once: there may be as many frames as jobs."""
    if topic.replayed_deletes:
        topic.apply_delete_seqs(sorted(set(topic.replayed_deletes)))
        topic.replayed_deletes = []
    if topic.queue is not None:
        _flag_again(topic)  # an ack is not always synced: its flags may have outlived its frame


def _flag_again(topic: Topic) -> None:
    """Have flags synced that were there already: they may be of this delete, and in memory only."""
    topic.flagged.update(s for s in topic.segments() if s.live_records < s.count)


def _untagged(topic: Topic) -> list[Segment]:
    """Return the sealed segments with tags that no tag run speaks for.

    Those with flags that are not safe too: without them a tag may come back, in the middle of what
    a run speaks for.
    """
    return [
        s
        for s in topic.segments()
        if s.sealed and (s.tagged_records or s in topic.flagged) and not topic.tags.covers(s)
    ]


def _inside(first_seq: int, last_seq: int, hole: frame.Hole) -> bool:
    return hole.first_seq <= first_seq and last_seq <= hole.last_seq


def _check_cover(topic: Topic, *, cold_is_gone: bool) -> None:
    """Make sure that every seq from the live floor to the head is in a run or a hole."""
    seq = topic.floors.earliest_seq
    ranges = sorted(
        [(run.first_seq, run.last_seq) for run in topic.runs] + [(h[0], h[1]) for h in topic.holes]
    )
    for first_seq, last_seq in ranges:
        if first_seq > seq:
            break
        seq = max(seq, last_seq + 1)
    if seq <= topic.head_seq:
        hint = "set TOPICS_COLD_DIR to the cold folder this directory was used with, or "
        raise CorruptData(
            f"topic {topic.name!r} ({paths.topic_dir(topic.id)}): no file holds seq {seq}: "
            f"{hint if cold_is_gone else ''}run topics repair",
            segment=paths.topic_dir(topic.id),
        )


def wal_directories(disk: Disk) -> list[str]:
    """Return every directory with WAL files, whatever the shard count was."""
    names = disk.list(paths.WAL_DIR)
    directories = [
        f"{paths.WAL_DIR}/{name}" for name in names if paths.parse_shard_dir_name(name) is not None
    ]
    return [d for d in [paths.WAL_DIR, *directories] if list_wal_files(disk, d)]
