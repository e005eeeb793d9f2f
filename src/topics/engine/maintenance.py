"""What is done to segments after their checkpoint: seal, index tags, reclaim, rewrite, relocate.

Each is a function that does one step of work on one topic and may be cut anywhere: what a restart
finds is the state before or after it. None holds the shard's lock while it reads or writes files.
"""

from topics.config import ServerConfig
from topics.engine.checkpoint import seal
from topics.engine.shard import Shard
from topics.engine.stores import Stores
from topics.engine.topics.floors import Hole
from topics.engine.topics.topic import Topic
from topics.errors import DiskFailed, StorageError, TooManyFiles
from topics.storage.disk import paths
from topics.storage.segments.rewrite import Rewrite
from topics.storage.segments.segment import Segment
from topics.storage.wal import frame


def wants_sweep(topic: Topic, *, now_ms: int, max_age_ms: int) -> bool:
    """Tell whether time may have changed something, without a lock: of many topics it has of few.

    What comes while it looks is found the next time.
    """
    if topic.is_over_limits(now_ms) or not topic.idempotency.is_empty:
        return True
    if topic.reserved_seq > topic.head_seq:
        return True
    last = next((run for run in reversed(topic.runs) if isinstance(run, Segment)), None)
    return (
        max_age_ms > 0
        and last is not None
        and not last.sealed
        and now_ms - last.first_ts > max_age_ms
    )


def wants_maintenance(topic: Topic) -> bool:
    """Tell whether there are tags to index, or segments of which a part is gone; without a lock."""
    if topic.tag_pending or topic.tags.may_merge:
        return True
    floor = topic.floors.earliest_seq
    return any(
        isinstance(run, Segment)
        and run.sealed
        and (run.live_records < run.count or run.last_seq < floor)
        for run in topic.runs
    )


def seal_by_age(shard: Shard, topic: Topic, *, now_ms: int, max_age_ms: int) -> None:
    """Seal an active segment whose first record is old, so that it can be moved or dropped."""
    if not max_age_ms or shard.undone:  # what is behind its end has to go before
        return
    with shard.lock:
        for segment in topic.segments()[-1:]:
            if not segment.sealed and now_ms - segment.first_ts > max_age_ms:
                seal(topic, segment)


def index_tags(shard: Shard, topic: Topic) -> None:
    """Give each newly sealed segment its tag run, and merge runs that have become many."""
    for segment in list(topic.tag_pending):
        content = topic.tags.build(segment)
        if segment.live_records < segment.count:
            _sync_flags(shard, segment)
        topic.tags.add(segment, content)
        with shard.lock:
            topic.tag_pending.remove(segment)
    while topic.tags.merge_once():
        pass


def _sync_flags(shard: Shard, segment: Segment) -> None:
    try:
        segment.sync()
    except TooManyFiles:
        raise
    except DiskFailed as error:
        with shard.lock:
            shard.commit.log.fail(error)
        raise


def reclaim(shard: Shard, topic: Topic, *, stores: Stores) -> int:
    """Drop whole sealed segments of which nothing is live; return how many."""
    with shard.lock:
        kept = topic.pinned_from
        sealed = [
            s for s in topic.segments() if s.sealed and s.last_seq < kept and not topic.is_pinned(s)
        ]
        earliest = topic.floors.earliest_seq
        below = [s for s in sealed if s.last_seq < earliest]
        dead = [s for s in sealed if s.live_records == 0 and s.last_seq >= earliest]
        gone = {*below, *dead}
        if not gone:
            return 0
        for segment in gone:
            segment.bound_for = "nowhere"
        shard.submit_floors()
        for segment in dead:
            hole = frame.Hole(segment.first_seq, segment.last_seq, "deleted")
            shard.submit_control(frame.encode_control(hole, topic_id=topic.id))
        ticket = shard.submit_control(
            frame.encode_control(_floors_frame(topic), topic_id=topic.id), needs_sync=True
        )
    shard.commit.commit(ticket)
    with shard.lock:
        for segment in dead:
            topic.apply_hole(Hole(segment.first_seq, segment.last_seq, "deleted"))
        topic.runs = [run for run in topic.runs if run not in gone]
        topic.tag_pending = [s for s in topic.tag_pending if s not in gone]
        topic.flagged.difference_update(gone)
        topic.holes = tuple(
            h for h in topic.holes if h.last_seq >= topic.floors.evict_floor or h.announced
        )
    for segment in gone:
        stores.remove_hot_files(segment)
    topic.cold_strays = topic.cold_strays or any(segment.tier == "cold" for segment in gone)
    topic.tags.drop_below(topic.floors.earliest_seq)
    return len(gone)


def rewrite_one(shard: Shard, topic: Topic, *, config: ServerConfig) -> bool:
    """Rewrite one sealed hot segment that is mostly dead; tell whether there was one."""
    ratio = config.compact_dead_ratio
    if not ratio:
        return False
    kept = topic.pinned_from
    segment = next(
        (
            s
            for s in topic.segments()
            if s.last_seq < kept and wants_rewrite(s, ratio) and not topic.is_pinned(s)
        ),
        None,
    )
    if segment is None:
        return False
    rewrite = Rewrite(segment)
    try:
        rewrite.prepare()
    except StorageError:
        rewrite.abandon()  # where there was no room, what was written takes more of it
        raise
    finish_rewrite(shard, topic, segment, rewrite)
    return True


def finish_rewrite(shard: Shard, topic: Topic, segment: Segment, rewrite: Rewrite) -> bool:
    """Put a prepared rewrite in place unless its segment is held or gone; tell whether."""
    with shard.lock:
        marked = rewrite.take_marked()
    try:
        rewrite.carry_over(marked)  # most often all there is: under the lock others wait for it
        with shard.lock:
            is_wanted = segment in topic.runs and not topic.is_pinned(segment)
            if is_wanted:
                _finish(shard, rewrite)
    except TooManyFiles:  # before a name was changed
        rewrite.abandon()
        raise
    if not is_wanted:
        rewrite.abandon()
        return False
    try:
        rewrite.settle()
    except DiskFailed as error:
        with shard.lock:
            shard.commit.log.fail(error)
        raise
    return True


def _finish(shard: Shard, rewrite: Rewrite) -> None:
    try:
        rewrite.finish()
    except TooManyFiles:
        raise
    except DiskFailed as error:
        # The names may be of two pairs now: nothing may be deleted in either of them.
        shard.commit.log.fail(error)
        raise


def plan_relocation(topic: Topic, *, config: ServerConfig) -> list[Segment]:
    """Return the sealed hot segments that belong in the cold tier, oldest first."""
    sealed = [
        s
        for s in topic.segments()
        if s.sealed and s.tier == "hot" and s.last_seq <= topic.absorbed_seq
    ]
    # Counted like the others, and left where they are until nobody holds them.
    pinned = {s.first_seq for s in sealed if topic.is_pinned(s)}
    keep = config.hot_retain_segments
    moved = sealed[: max(0, len(sealed) - keep)]
    if config.hot_retain_bytes:
        total = 0
        for place in range(len(sealed) - 1, -1, -1):
            total += sealed[place].data_bytes
            if total > config.hot_retain_bytes:
                moved = sealed[: max(len(moved), place + 1)]
                break
    return [s for s in moved if s.first_seq not in pinned]


def relocate(shard: Shard, topic: Topic, *, stores: Stores, config: ServerConfig) -> int:
    """Move old segments to the cold tier: copy, sync, durable pointer, delete the hot data."""
    if stores.cold is None:
        return 0
    moved = 0
    for segment in plan_relocation(topic, config=config):
        if not stores.is_durable(segment):
            continue
        with shard.lock:
            segment.marked_since = set()
        try:
            idx = bytes(segment.idx())
            stores.cold.put(topic.id, segment.first_seq, data=segment.flagged_data(idx), idx=idx)
        except StorageError:
            segment.marked_since = None
            raise
        with shard.lock:
            if topic.is_pinned(segment):  # since the copy began: it is made again another time
                segment.marked_since = None
                topic.cold_strays = True
                continue
            segment.bound_for = "cold"
            tier = frame.Tier(segment.first_seq, "cold")
            ticket = shard.submit_control(
                frame.encode_control(tier, topic_id=topic.id), needs_sync=True
            )
        try:
            shard.commit.commit(ticket)
        except StorageError:
            segment.bound_for = None
            raise
        with shard.lock:
            if topic.deleted:
                return moved
            segment.move_to_cold(stores.cold)
        stores.hot_disk.unlink(paths.segment_data_path(topic.id, segment.first_seq))
        moved += 1
    return moved


def refresh_cold(shard: Shard, topic: Topic, *, stores: Stores) -> None:
    """Show deletes in the cold copies and remove strays, for those who read the tier alone."""
    if stores.cold is None:
        return
    cold = {s.first_seq: s for s in topic.segments() if s.tier == "cold"}
    for first_seq in stores.cold.list(topic.id) if topic.cold_strays else ():
        if first_seq not in cold:
            stores.cold.remove(topic.id, first_seq)
    topic.cold_strays = False
    for segment in cold.values():
        if segment.cold_stale:
            with shard.lock:
                segment.cold_stale = False
                data_offsets, idx_flags = segment.deleted_flags()
            stores.cold.mark_deleted(
                topic.id, segment.first_seq, data_offsets=data_offsets, idx_flags=idx_flags
            )


def wants_rewrite(segment: Segment, ratio: float, *, tier: str = "hot") -> bool:
    """Tell whether more than a share of a segment would be given back by a rewrite."""
    return (
        segment.sealed
        and segment.tier == tier
        and segment.live_records > 0
        and segment.reclaimable_bytes > ratio * segment.data_bytes
    )


def _floors_frame(topic: Topic) -> frame.EvictWatermark:
    floors = topic.floors
    return frame.EvictWatermark(floors.evict_floor, floors.earliest_seq, floors.reason)
