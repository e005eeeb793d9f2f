"""Take a snapshot: everything the trimmed part of the WAL would have told.

Keeps: what a snapshot says was synced before the snapshot was written; the WAL is trimmed only up
to the older of the two snapshots that are kept.
"""

from collections.abc import Callable, Iterator

from topics.engine.queues.replay import save_queue
from topics.engine.shard import Shard
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.floors import Hole, with_hole
from topics.engine.topics.former import FormerLives
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.kernel import count_live
from topics.storage.disk.disk import Disk
from topics.storage.segments.segment import Segment
from topics.storage.snapshots.snapshot import (
    GroupsSnapshot,
    LinkSnapshot,
    PartitionedSnapshot,
    RestSnapshot,
    RouterSnapshot,
    ShardSnapshot,
    Snapshot,
    TopicSnapshot,
    encode_topic,
)

SLICE_TOPICS = 64
"""So many are captured at a time: the lock is held for some ms."""


def capture_topic(topic: Topic, *, hot_disk: Disk, with_rest: bool = False) -> TopicSnapshot:
    """Return one topic as a start would have to find it; the shard's lock is held."""
    keys, producers = topic.idempotency.save()
    holes = topic.holes
    for hole in volatile_holes(topic, hot_disk=hot_disk):
        holes = with_hole(holes, hole)
    return TopicSnapshot(
        topic_id=topic.id,
        name=topic.name,
        created_ts=topic.created_ts,
        config=topic.config.as_dict(),
        head_seq=topic.head_seq,
        reserved_seq=max(topic.reserved_seq, topic.reserving_seq),
        last_ts=topic.last_ts,
        evict_floor=topic.floors.evict_floor,
        earliest_seq=topic.floors.earliest_seq,
        evict_reason=topic.floors.reason,
        delete_below=topic.delete_below,
        absorbed_seq=topic.absorbed_seq,
        holes=[(hole.first_seq, hole.last_seq, hole.reason) for hole in holes],
        cold_segments=[s.first_seq for s in topic.segments() if s.tier == "cold"],
        idempotency=keys,
        producers=producers,
        queue=save_queue(topic),
        link=_capture_link(topic),
        parent_id=0 if topic.parent is None else topic.parent.id,
        partition=topic.partition,
        rest=_capture_rest(topic, hot_disk) if with_rest else None,
    )


def _capture_rest(topic: Topic, hot_disk: Disk) -> RestSnapshot | None:
    """Return what spares a start to read the segments; nothing where it has to look at more."""
    segments = [segment for segment in topic.segments() if segment.disk is hot_disk]
    if topic.link is not None or any(segment.tier != "hot" for segment in segments):
        return None
    if topic.flagged:  # a power cut may take delete flags that are not synced yet
        return None
    if not topic.config.persists or len(segments) != len(topic.segments()):
        return None
    return RestSnapshot(
        topic.live_records,
        topic.live_bytes,
        topic.oldest_ts,
        topic.tags.has_runs,
        [segment.sums for segment in segments],
    )


def _capture_link(topic: Topic) -> LinkSnapshot | None:
    link = topic.link
    if link is None:
        return None
    return LinkSnapshot(
        source_id=link.source.id,
        cursor=link.durable_cursor,
        routers=[
            RouterSnapshot(r.name, r.definition.as_dict(), r.number, r.forwarded_total)
            for r in link.routers
        ],
    )


def capture(
    shards: list[Shard],
    topics: dict[Shard, list[Topic]],
    parents: list[Partitioned],
    *,
    next_topic_id: int,
    hot_disk: Disk,
    clean: bool,
    former: Callable[[], FormerLives],
    save_groups: Callable[[], GroupsSnapshot],
    check_wanted: Callable[[], None],
) -> Snapshot:
    """Return the state of every topic, each at one moment and all synced; not all at the same.

    A start applies what the log has behind the shards' places once more, in order: what a topic
    was told since then does no harm twice. One that begins or ends meanwhile is on the log.
    """
    captured: list[TopicSnapshot] = []
    places: list[ShardSnapshot] = []
    ends: list[ShardSnapshot] = []
    groups = GroupsSnapshot()
    is_still = clean
    for shard in shards:
        with shard.lock:
            shard.submit_floors()
            finished = shard.commit.flush()
            shard.commit.log.need_file()
            end = shard.commit.log.position
            is_absorbed = clean and not shard.dirty
        shard.commit.wake(finished)
        for some in _slices(topics[shard]):
            check_wanted()
            with shard.lock:
                finished = shard.commit.flush()  # what was only queued may fail yet
                states = [
                    capture_topic(topic, hot_disk=hot_disk, with_rest=clean)
                    for topic in some
                    if not topic.deleted
                ]
            shard.commit.wake(finished)
            captured += map(encode_topic, states)
        if shard is shards[0]:
            with shard.lock:
                finished = shard.commit.flush()
                groups = save_groups()
            shard.commit.wake(finished)
        shard.commit.sync_once()
        shard.commit.log.check_writable()
        is_still = is_still and shard.commit.log.position == end
        place = end if is_absorbed else shard.replay_from
        places.append(ShardSnapshot(shard.directory, *place))
        ends.append(ShardSnapshot(shard.directory, *end))
    lives = former()  # later than the places: whoever was deleted before them is in it
    return Snapshot(
        next_topic_id=next_topic_id,
        shards=places,
        topics=captured,
        clean=is_still and places == ends,
        partitioned=[_capture_parent(parent) for parent in parents],
        groups=groups,
        ends=ends if is_still else [],
        former=lives.seqs,
        former_rest=lives.rest,
    )


def _slices(topics: list[Topic]) -> Iterator[list[Topic]]:
    for start in range(0, len(topics), SLICE_TOPICS):
        yield topics[start : start + SLICE_TOPICS]


def _capture_parent(parent: Partitioned) -> PartitionedSnapshot:
    return PartitionedSnapshot(
        parent.id,
        parent.name,
        parent.created_ts,
        parent.config.as_dict(),
        list(parent.counts),
    )


def volatile_holes(topic: Topic, *, hot_disk: Disk) -> list[Hole]:
    """Return the seqs that a restart will not find: announced only where live ones are among them.

    What was deleted is not lost, and below the live floor there is nothing left to tell.
    """
    earliest = topic.floors.earliest_seq
    ranges: list[tuple[int, int, int]] = []
    for run in topic.runs:
        if not _is_volatile(run, hot_disk):
            continue
        first, live = run.first_seq, 0
        if run.last_seq >= earliest:
            live, _ = count_live(run.idx(), max(0, earliest - first), run.count)
        if ranges and ranges[-1][1] + 1 == first:
            first, _, before = ranges.pop()
            live += before
        ranges.append((first, run.last_seq, live))
    holes: list[Hole] = []
    for first, last, live in ranges:
        lost_from = max(first, earliest) if live else last + 1
        if first < lost_from:
            holes.append(Hole(first, lost_from - 1, "deleted"))
        if live:
            holes.append(Hole(lost_from, last, "crash"))
    return holes


def _is_volatile(run: Segment | Chunk, hot_disk: Disk) -> bool:
    return not run.durable if isinstance(run, Chunk) else run.disk is not hot_disk
