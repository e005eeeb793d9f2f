"""The engine: open a data directory, wire its parts, close it.

Owns the registry of topics, the shards and the order of start and stop. What the words mean is
next door: append, diff, delete, checkpoint, snapshot, maintenance, recover. Everything here is
thread-safe.
"""

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from heapq import nlargest
from typing import Any

from topics.clock import Clock
from topics.config import ServerConfig, wal_shard_count
from topics.engine import maintenance
from topics.engine.append import Append, Repeat, close_reservation, submit_append
from topics.engine.backup import BackupCopy
from topics.engine.checkpoint import absorb_topics, checkpoint_shard
from topics.engine.compact import Compaction
from topics.engine.delete import Deletion, bound_delete, collect_delete, submit_delete
from topics.engine.diff import DiffRequest, read_diff, touches_cold
from topics.engine.frames import FramesRequest, read_frames
from topics.engine.groups.groups import Groups
from topics.engine.partitions import Part, Spread, parent_state, plan_spread, submit_parts
from topics.engine.pins import Pins
from topics.engine.queues.claim import Claim
from topics.engine.queues.queues import Queues
from topics.engine.queues.redrive import CheckName, redrive
from topics.engine.queues.settle import Ack, LeaseChange
from topics.engine.recover import Recovered, recover, wal_directories
from topics.engine.request import Write
from topics.engine.routers.forwarder import Forwarder, never
from topics.engine.routers.table import Routers
from topics.engine.seek import is_settled, seq_at
from topics.engine.segments import read_manifest
from topics.engine.shard import Shard
from topics.engine.snapshot import capture
from topics.engine.stores import Stores
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.registry import Registry
from topics.engine.topics.topic import Topic
from topics.engine.uploads import Uploads
from topics.errors import (
    Closed,
    DiskFull,
    Exhausted,
    NotAQueue,
    RequestError,
    RetryLater,
    StorageError,
    Throttled,
    TooManyFiles,
    TopicNotFound,
    TopicRecreated,
    TopicsError,
)
from topics.model.append import Appended
from topics.model.backups import BackedUp
from topics.model.compact import COMPACT_SEGMENTS, Compacted
from topics.model.delete import Deleted
from topics.model.diff import Page
from topics.model.frames import RangePage
from topics.model.queues import (
    Acked,
    AckRequest,
    Claimed,
    ClaimRequest,
    Extended,
    ExtendRequest,
    Nacked,
    NackRequest,
    QueueState,
    Redriven,
)
from topics.model.routers import RouterDefinition, RouterState
from topics.model.segments import Manifest
from topics.model.topics import TopicState
from topics.model.uploads import BuiltSegment, UploadState
from topics.storage.disk import data_dir, paths
from topics.storage.disk.disk import Disk, DiskLock
from topics.storage.disk.reserve import Reserve
from topics.storage.segments.store import SegmentStore
from topics.storage.snapshots.snapshot import Snapshot, save_snapshot
from topics.storage.wal import frame
from topics.storage.wal.frame import Delete
from topics.storage.wal.group_commit import RETRY_AFTER_MS, Commitment, GroupCommit, Waiter
from topics.storage.wal.log import Position, WalLog, list_wal_files

COPY_SETTINGS = ("durability", "discard")
BACKUP_PASSES = 2
"""Copies of what there is before checkpoints have to wait for the last of it."""
ABSORBED_AT_STOP_MAX = 256
"""Of so many topics a stop writes segments, which takes a millisecond for each, or ten."""
LARGEST = 20
"""So many topics are looked for to be named on a full disk: not all may be seen by who asks."""
IDLE_MS = 1_000
"""A topic without writes for so long gives its reserved seqs back."""


class Engine:
    """One open data directory."""

    def __init__(
        self,
        disk: Disk,
        config: ServerConfig,
        *,
        clock: Clock,
        cold: SegmentStore | None = None,
        lock: DiskLock | None = None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Open a directory; who has locked it already hands the `lock` over."""
        self.config = config
        self.clock = clock
        self.disk = disk
        self.stores = Stores(disk, cold=cold)
        self.pins = Pins(clock)
        self._work_lock = threading.RLock()
        """Held by whoever changes segments: checkpoint, snapshot, maintenance, close."""
        self._cold_lock = threading.Lock()
        """Held by whoever moves or drops sealed segments; taken before `_work_lock`."""
        self._redrive_lock = threading.Lock()
        """Held by whoever brings dead letters back; taken before any other."""
        self._closed = False
        self._is_stopping = False
        """Long work in the background ends where it may be cut."""
        self._dropped_ids: deque[int] = deque()
        """Deleted topics whose files wait for whoever holds `_cold_lock`."""
        self._log_hold: dict[str, Position] = {}
        """Where a backup began: the log behind it is not trimmed."""
        self.may_write_beside = False
        """Threads may be begun: the device takes a segment while the next one is converted."""
        self.on_routers_due: Callable[[], None] = _nothing
        """Called when there is something to forward, with a shard's lock held: it may only ask."""
        self._lock = lock or data_dir.open_data_dir(disk)
        self.reserve = Reserve(
            disk,
            size=min(config.disk_reserve_bytes, config.wal_file_bytes),
            margin_bytes=config.wal_file_bytes,
            clock=clock,
        )
        self.largest: list[Topic] = []
        """Those with most bytes, while the disk is full."""
        try:
            self._open(progress)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, progress: Callable[[float], None]) -> None:
        self.reserve.prepare(
            needed_bytes=self.config.wal_file_bytes * (wal_shard_count(self.config) + 1)
        )
        found = recover(
            self.disk,
            self.stores,
            self.config,
            cache_intact=data_dir.cache_is_intact(self.disk),
            progress=progress,
        )
        data_dir.mark_started(self.disk)
        self._snapshot_number = found.snapshot_number
        self._kept_places = [found.snapshot_places] if found.snapshot_places else []
        self.shards = self._open_shards(found)
        self.registry = Registry(
            found.topics,
            next_topic_id=found.next_topic_id,
            former=found.former,
            shards=self.shards,
            stores=self.stores,
            config=self.config,
            clock=self.clock,
        )
        self.find_topic = self.registry.find
        self.find_partitioned = self.registry.parents.find
        self.queues = Queues(
            self.registry,
            self.shards,
            self.config,
            clock=self.clock,
            append=self.append,
            append_partitioned=self.append_partitioned,
        )
        self._tail_share = self.config.tail_cache_bytes // len(self.shards)
        self._open_routers(found)
        self.groups = Groups(
            found.groups,
            self.shards[0],
            self.config,
            clock=self.clock,
            partitions_of=self.partitions_of,
            read=self.diff,
            must_forward=self.must_forward,
            seq_at=self.seq_at,
        )
        for topic, hole in found.new_holes:
            self.shard_of(topic).submit_control(
                frame.encode_control(frame.Hole(*hole), topic_id=topic.id)
            )
        self._take_up_work()
        self._finish_partitions(found)
        for shard in self.shards:
            shard.commit.sync_once()
            shard.commit.log.check_writable()
        for topic_id in found.orphan_ids:
            self.stores.remove_topic(topic_id)
        self.uploads = Uploads(self.registry, self.stores, self.config, clock=self.clock)
        if set(found.snapshot_places) != {shard.directory for shard in self.shards}:
            self.snapshot()
            if found.snapshot_places:
                self.snapshot()  # the older one of the two that are kept needs no old log either
        self._remove_stale_logs()
        # Only now: what this start announced is durable, so that after a kill nobody has to again.
        if not any(shard.commit.log.has_no_file for shard in self.shards):
            data_dir.mark_running(self.disk)
        self.reserve.take()
        self.sweep()

    def _take_up_work(self) -> None:
        """Note what the process before this one left to be done."""
        for shard, topic in self.registry.each():
            shard.tail_bytes += sum(chunk.size for chunk in topic.chunks())
            if topic.chunks() or topic.flagged or (topic.link and topic.link.needs_mark):
                shard.dirty.add(topic)
            if topic.queue and topic.queue.moves:
                shard.moves_due.add(topic)

    def _finish_partitions(self, found: Recovered) -> None:
        """Do what a crash cut of the making, changing or deleting of partitioned topics."""
        for topic_id in found.gone_partitions:
            shard = self.shards[topic_id % len(self.shards)]
            shard.submit_control(frame.encode_control(frame.TopicDelete(), topic_id=topic_id))
        self.registry.parents.complete(found.parents)

    def _open_routers(self, found: Recovered) -> None:
        self._forwarder = Forwarder(
            self.shards, stores=self.stores, clock=self.clock, make_room=self._make_room
        )
        self._routers = Routers(
            found.links,
            registry=self.registry,
            forwarder=self._forwarder,
            checkpoint=self.checkpoint,
            config=self.config,
            clock=self.clock,
        )
        for shard in self.shards:
            shard.on_routed = self._routed

    def _open_shards(self, found: Recovered) -> list[Shard]:
        count = wal_shard_count(self.config)
        shards = []
        for number in range(count):
            directory = paths.wal_shard_dir(number, shards=count)
            self.disk.make_dir(directory)
            replay = found.replays.get(directory)
            if replay is None:
                self._remove_logs(directory)
            log = WalLog(
                self.disk,
                directory,
                file_bytes=self.config.wal_file_bytes,
                next_frame=replay.next_frame if replay else 1,
                reserve=self.reserve,
            )
            commit = GroupCommit(
                log,
                clock=self.clock,
                queue_bytes=self.config.wal_queue_bytes,
                window_us=(self.config.commit_window_min_us, self.config.commit_window_max_us),
            )
            replay_from = found.snapshot_places.get(directory, Position(1, 0))
            shards.append(
                Shard(number, directory, commit, replay_from=replay_from, config=self.config)
            )
        return shards

    def _remove_stale_logs(self) -> None:
        """Remove the logs of an older shard count, which the snapshot has made needless."""
        current = {shard.directory for shard in self.shards}
        for directory in wal_directories(self.disk):
            if directory not in current:
                self._remove_logs(directory)

    def _remove_logs(self, directory: str) -> None:
        """Remove the files of a log that no snapshot names, before a new one takes their place."""
        numbers = list_wal_files(self.disk, directory)
        if numbers and self.disk.exists(f"{directory}/{paths.CURRENT}"):
            self.disk.unlink(f"{directory}/{paths.CURRENT}")
        for number in numbers:
            self.disk.unlink(f"{directory}/{paths.wal_file_name(number)}")
        if numbers:
            self.disk.sync_dir(directory)

    # Topics.

    def shard_of(self, topic: Topic) -> Shard:
        return self.registry.shard_of(topic)

    def topic(self, name: str) -> Topic:
        return self.registry.get(name)

    def partitions_of(self, name: str) -> tuple[Topic, ...]:
        """Return the partitions of a topic in order; a plain topic is its own only one."""
        return self.registry.partitions_of(name)

    def topics(self) -> list[Topic]:
        """Return all topics by name: for threads that have time."""
        return self.registry.all()

    def each_topic(self) -> Iterator[Topic]:
        """Yield all topics, in no order; with very many others get their turn in between."""
        return (topic for _, topic in self.registry.each())

    @property
    def topic_count(self) -> int:
        return len(self.registry)

    def topics_starting(self, prefix: str, limit: int) -> list[Topic]:
        """Return the first topics by name that begin so, at most `limit` of them."""
        return self.registry.starting(prefix, limit)

    def partitioned(self) -> list[Partitioned]:
        return self.registry.parents.all()

    def names(self, prefixes: Iterable[str] = ("",), *, after: str = "", limit: int) -> list[str]:
        """Return the next names of topics, partitioned ones among them, that begin in such a way.

        None of the prefixes, which ascend, begins with another one.
        """
        found: list[str] = []
        for prefix in prefixes:
            found += self.registry.names_starting(prefix, limit - len(found), after=after)
            if len(found) == limit:
                break
        return found

    def create_topic(self, name: str, changes: Mapping[str, Any]) -> bool:
        """Create a topic or change the config of an existing one; tell whether it was created."""
        self._check_open()
        topics = self._topics_of(name)
        if not any(topic.link or _changes_copies(topic, changes) for topic in topics):
            return self.registry.create(name, changes)
        with self._routers.held():
            if not any(topic.link for topic in topics):
                return self.registry.create(name, changes)
            # It says how copies outlive a restart: those of the old config must be safe before.
            with self._work_lock:
                self.checkpoint()
                return self.registry.create(name, changes)

    def _topics_of(self, name: str) -> tuple[Topic, ...]:
        """Return what a name stands for: a topic, the partitions of one, or nothing."""
        parent = self.find_partitioned(name)
        if parent is not None:
            return parent.partitions
        topic = self.registry.find(name)
        return () if topic is None else (topic,)

    def topic_for_write(self, name: str, write: Write) -> tuple[Topic, bool]:
        """Return the topic a write goes to, and whether the write created it."""
        if self._closed:
            self._check_open()
        if self.reserve.is_short:
            self.reserve.check()  # before a topic is made for a write that is refused
        return self.registry.for_write(name, write)

    def delete_topic(self, name: str, *, if_empty: bool = False) -> bool:
        """Delete a topic with all that it holds; False where there was none."""
        return self.drop_topic(name, if_empty=if_empty)[0]

    def drop_topic(
        self,
        name: str,
        *,
        if_empty: bool = False,
        check_router: Callable[[str, RouterDefinition], None] | None = None,
    ) -> tuple[bool, list[str]]:
        """Delete a topic; tell whether there was one, and which routers went with it.

        `check_router` may refuse: then all of it stays.
        """
        self._check_open()
        removed: list[str] = []
        with self._routers.held():
            if check_router is not None:
                for topic in self._topics_of(name):
                    for router in self._routers.routers_at(topic):
                        check_router(router.name, router.definition)
            for topic in self._topics_of(name):
                self._routers.settle_topic(topic)
            ended = self.registry.remove(name, if_empty=if_empty)
            for topic in ended:
                removed += self._routers.remove_topic(topic)
        for topic in ended:
            self.pins.drop_topic(topic)
            self._remove_files(topic)
        return bool(ended), removed

    def _remove_files(self, topic: Topic) -> None:
        shard = self.shard_of(topic)
        with self._work_lock, shard.lock:
            shard.tail_bytes -= sum(chunk.size for chunk in topic.chunks())
            shard.dirty.discard(topic)
            shard.floors_due.discard(topic)
            shard.moves_due.discard(topic)
            shard.records_evicted += topic.evicted_records
            runs, topic.runs = topic.runs, []  # what they hold is let go of without the lock
            if topic.queue is not None:
                topic.queue.notify()  # whoever waits for a job learns that there is no queue
        del runs
        self._dropped_ids.append(topic.id)
        if self._cold_lock.acquire(blocking=False):
            self._release_segments()

    def _release_segments(self) -> None:
        """Let go of `_cold_lock`, after the files of topics that were deleted meanwhile."""
        try:
            while self._dropped_ids:
                topic_id = self._dropped_ids.popleft()
                try:
                    self.stores.remove_topic(topic_id)
                except TooManyFiles:  # the topic is gone: its files go the next time
                    self._dropped_ids.appendleft(topic_id)
                    break
        finally:
            self._cold_lock.release()

    @contextmanager
    def _segments_held(self) -> Iterator[None]:
        """Keep sealed segments and the files of topics where they are."""
        self._cold_lock.acquire()
        try:
            yield
        finally:
            self._release_segments()

    def topic_state(self, name: str, *, touch: bool = True) -> TopicState:
        """Return the state of a topic, of a partitioned one the sum of its partitions."""
        parent = self.find_partitioned(name)
        if parent is not None:
            states = [self._state_of(topic, touch=touch) for topic in parent.partitions]
            return parent_state(parent, states)
        return self._state_of(self.topic(name), touch=touch)

    def _state_of(self, topic: Topic, *, touch: bool) -> TopicState:
        self._forward_for_reader(topic)
        shard = self.shard_of(topic)
        with shard.lock:
            self.registry.expire(topic)
            if touch:
                topic.last_read_ts = self.clock.now_ms()
            segments = topic.segments()
            queue = None
            if topic.queue is not None:
                self.queues.settle(topic, topic.queue)
                queue = self.queues.state_of_settled(topic, topic.queue)
            return TopicState(
                topic=topic.name,
                type=topic.config.type,
                epoch=topic.id,
                head_seq=topic.head_seq,
                earliest_seq=topic.floors.earliest_seq,
                evict_floor=topic.floors.evict_floor,
                next_seq=topic.head_seq + 1,
                count=topic.live_records,
                bytes=topic.live_bytes,
                config=topic.config,
                last_write_ts=topic.last_ts or None,
                last_read_ts=topic.last_read_ts,
                segments=len(segments),
                cold_segments=sum(segment.tier == "cold" for segment in segments),
                queue=queue,
            )

    # Segments, for those who read files.

    def manifest(self, topic: Topic, *, pin_ms: int | None = None, owner: str = "") -> Manifest:
        """Name the segments of a topic; with `pin_ms` they stay as they are for so long."""
        self._check_open()
        self._forward_for_reader(topic)
        with self.shard_of(topic).lock:
            if topic.deleted:
                raise TopicNotFound(topic.name)
            self.registry.expire(topic)
            return read_manifest(
                topic, stores=self.stores, pins=self.pins, owner=owner, pin_ms=pin_ms
            )

    def compact(
        self, topic: Topic, *, min_dead_ratio: float, max_segments: int = COMPACT_SEGMENTS
    ) -> Compacted:
        """Rewrite cold segments with dead records, some at a time; tell how many are left."""
        self._check_open()
        self.pins.sweep()
        with self._segments_held():
            compaction = Compaction(
                self.shard_of(topic),
                topic,
                stores=self.stores,
                config=self.config,
                work_lock=self._work_lock,
            )
            return compaction.run(min_dead_ratio=min_dead_ratio, max_segments=max_segments)

    # Segments that others build.

    def begin_upload(
        self, name: str, changes: Mapping[str, Any], *, owner: str = ""
    ) -> UploadState:
        """Make a directory for the segments of a new topic."""
        self._check_open()
        return self.uploads.begin(name, changes, owner=owner)

    def attach(
        self, upload: str, segments: Sequence[BuiltSegment], *, owner: str = ""
    ) -> TopicState:
        """Let the topic of an upload begin, with all its segments or not at all."""
        self._check_open()
        return self.topic_state(self.uploads.attach(upload, segments, owner=owner).name)

    def abandon_upload(self, upload: str, *, owner: str = "") -> None:
        """Remove an upload and its files."""
        self._check_open()
        self.uploads.abandon(upload, owner=owner)

    # Routers.

    def put_router(self, name: str, fields: Mapping[str, Any]) -> tuple[RouterDefinition, bool]:
        """Make or change a router; tell whether it was made."""
        self._check_open()
        made = self._routers.put(name, fields)
        self.on_routers_due()
        return made

    def delete_router(self, name: str) -> bool:
        """Remove a router; its copies stay. False where there was none."""
        self._check_open()
        return self._routers.delete(name)

    def router_state(self, name: str) -> RouterState:
        return self._routers.state(name)

    def find_router(self, name: str) -> RouterState | None:
        return self._routers.find(name)

    def routers(self) -> list[RouterState]:
        return self._routers.all()

    def some_routers(
        self,
        is_wanted: Callable[[str, RouterDefinition], bool],
        *,
        after: str = "",
        limit: int,
    ) -> list[RouterState]:
        """Return the next routers by name that are wanted; takes no lock."""
        return self._routers.some(is_wanted, after=after, limit=limit)

    @property
    def router_count(self) -> int:
        return len(self._routers)

    @property
    def has_routers(self) -> bool:
        """Tell whether there is any; takes no lock."""
        return len(self._routers) > 0

    def forward_once(self) -> bool:
        """Forward what is due; tell whether anything moved."""
        return self._routers.forward_once()

    @property
    def has_due_routers(self) -> bool:
        return bool(self._forwarder.due)

    def forward_for(self, topic: Topic) -> None:
        """Forward all that is due into a topic, so that a reader finds it."""
        self._routers.forward_for(topic, is_enough=never)

    def must_forward(self, topic: Topic) -> bool:
        """Tell whether a look at the topic would first forward into it: locks, perhaps a sync."""
        return topic.link is not None and self._routers.is_due(topic)

    def _forward_for_reader(self, topic: Topic, is_enough: Callable[[], bool] = never) -> bool:
        if topic.link is not None:
            # A shard that takes no writes, or is full, still shows what it has.
            with suppress(StorageError, RetryLater):
                return self._routers.forward_for(topic, is_enough=is_enough)
        return False

    def _routed(self, topic: Topic) -> None:
        self._forwarder.due.add(topic)
        self.on_routers_due()

    def _make_room(self, shard: Shard) -> None:
        if self._tail_is_full(shard):
            self.checkpoint()

    # Records.

    def submit_append(
        self, topic: Topic, write: Write, *, waiter: Waiter | None = None
    ) -> tuple[Shard, Append | Repeat]:
        """Queue a write without waiting for it: `GroupCommit.flush` and a sync make it done."""
        if self._closed:
            self._check_open()
        if write.options.queue and topic.queue is None:
            raise NotAQueue(topic.name)
        if self.reserve.is_short:
            self.reserve.check()
        shard = self.registry.shard_of(topic)
        batch = write.batch
        if self.config.max_total_bytes:
            self.registry.budget.take(batch.payload_bytes)
        if shard.tail_bytes > self._tail_share and self._tail_is_full(shard):
            raise Throttled(RETRY_AFTER_MS)
        with shard.lock:
            ticket = submit_append(
                shard,
                topic,
                batch,
                write.options,
                clock=self.clock,
                waiter=waiter,
            )
        return shard, ticket

    def append(self, topic: Topic, write: Write) -> Appended:
        """Write a batch and wait until its durability class is satisfied."""
        shard = self.registry.shard_of(topic)
        if shard.tail_bytes > self._tail_share and self._tail_is_full(shard):
            self.checkpoint()
        shard, ticket = self.submit_append(topic, write)
        shard.commit.commit(ticket)
        assert ticket.appended is not None
        return ticket.appended

    def plan_spread(self, parent: Partitioned, write: Write) -> Spread:
        """Decide which partition each record of a write goes to."""
        self._check_open()
        if write.options.queue and parent.config.type != "queue":
            raise NotAQueue(parent.name)
        if self.reserve.is_short:
            self.reserve.check()
        if self.config.max_total_bytes:  # before the first part: all of it fits, or none
            self.registry.budget.take(write.batch.payload_bytes)
        return plan_spread(parent, write, shard_of=self.registry.shard_of, clock=self.clock)

    def check_room(self, shard: Shard, size: int) -> None:
        """Refuse a write of this size while its shard has no room for it."""
        if self._tail_is_full(shard):
            raise Throttled(RETRY_AFTER_MS)
        with shard.lock:
            shard.commit.admit(size)

    def append_partitioned(self, parent: Partitioned, write: Write) -> Appended:
        """Write to partitions and wait until the durability class of all parts is satisfied."""
        spread = self.plan_spread(parent, write)
        if any(self._tail_is_full(part.shard) for part in spread.parts):
            self.checkpoint()
        self.submit_parts(spread.parts, waiter_of=lambda _: None)
        # From the last one, whose sync is most often that of all. But some wait for one where a
        # later one does not: a repeat, or a write whose seqs are reserved already.
        for part in reversed(spread.parts):
            if part.ticket is None:
                continue
            with suppress(TopicsError):  # the spread tells of it, with what went well
                part.shard.commit.commit(part.ticket)
            part.take(part.ticket)
        try:
            return spread.answer()
        finally:
            spread.end()

    def submit_parts(
        self, parts: Sequence[Part], *, waiter_of: Callable[[Topic], Waiter | None]
    ) -> None:
        """Queue parts of a write without waiting for them; a refused one knows why."""
        room: list[Part] = []
        for part in parts:
            if self._tail_is_full(part.shard):
                part.error = Throttled(RETRY_AFTER_MS)
            else:
                room.append(part)
        submit_parts(room, clock=self.clock, waiter_of=waiter_of)

    @property
    def tail_bytes(self) -> int:
        """Return how much of the WAL no segment holds yet."""
        return sum([shard.tail_bytes for shard in self.shards])

    @property
    def is_behind(self) -> bool:
        """Tell whether segments have to hurry, or writers will wait for room."""
        return self.tail_bytes >= self.config.tail_cache_bytes // 4

    def diff(self, topic: Topic, request: DiffRequest) -> Page:
        """Read what comes after a cursor, and bring what routers still have to bring where it ends.

        At first no more than a page: a router that is far behind does not hold up its readers.
        """
        if topic.link is None:
            return self.read(topic, request)
        is_due = self.must_forward(topic)  # before the read: what was due then is on its page
        page = self.read(topic, request)
        full_seq = page.head_seq + request.limit
        for is_enough in (lambda: topic.head_seq > full_seq, never):
            if not (is_due and page.caught_up):
                break
            moved = self._forward_for_reader(topic, is_enough)
            is_due = moved and self.must_forward(topic)
            page = self.read(topic, request)
        return page

    def read(self, topic: Topic, request: DiffRequest) -> Page:
        """Read what is there: for whoever is woken by what routers bring, and must not wait."""
        now_ms = self._settle_for_reader(topic)
        page = read_diff(topic, request)
        if request.until_ts and now_ms >= request.until_ts and page.caught_up:
            page.until_reached = page.until_reached or is_settled(
                topic, page.head_seq, shard_of=self.shard_of
            )
        return page

    def touches_cold(self, topic: Topic, from_seq: int, from_ts: int = 0) -> bool:
        """Tell whether a read there starts in a cold segment and so belongs on the cold pool."""
        return self.stores.cold is not None and touches_cold(topic, from_seq, from_ts)

    def read_frames(self, topic: Topic, request: FramesRequest) -> RangePage:
        """Read a range as raw frames, with the floors and gaps that a diff would tell."""
        if request.epoch is not None and request.epoch != topic.id:
            raise TopicRecreated(topic.name, topic.id)
        self._forward_for_reader(topic)
        self._settle_for_reader(topic)
        return read_frames(topic, request, lock=self.shard_of(topic).lock)

    def _settle_for_reader(self, topic: Topic) -> int:
        """Expire what is too old and note the read; return its time."""
        now_ms = self.clock.now_ms()
        if topic.config.ttl_ms and now_ms - topic.oldest_ts > topic.config.ttl_ms:
            with self.shard_of(topic).lock:
                self.registry.expire(topic)
        topic.last_read_ts = now_ms
        return now_ms

    def seq_at(self, topic: Topic, ts: int) -> int:
        """Return the first seq whose `$ts` is at or after `ts`, head + 1 where there is none."""
        if topic.link is not None:
            self._forward_for_reader(topic)
        return seq_at(topic, ts)

    def bound_delete(
        self, topic: Topic, *, before_seq: int | None, match: tuple[str, str] | None
    ) -> Delete:
        """Return a delete of what is there now: what comes later is no part of it."""
        self._check_open()
        if before_seq is None and match is None:
            raise RequestError("a delete needs before_seq, match, or both")
        if before_seq is not None and before_seq < 0:
            raise RequestError("before_seq must be 0 or more")
        # In a frame 0 is no bound. Nothing lies before 0 nor before 1: a given 0 is written as 1.
        bound = 0 if before_seq is None else max(before_seq, 1)
        shard = self.shard_of(topic)
        with shard.lock:
            if topic.deleted:
                raise TopicNotFound(topic.name)
            self.registry.expire(topic)
            # What is queued belongs to the past of this delete.
            finished = shard.commit.flush()
            body = bound_delete(topic, before_seq=bound, match=match)
        shard.commit.wake(finished)
        return body

    def collect_delete(self, topic: Topic, body: Delete) -> "array[int] | None":
        """Find what a delete names: slow where it is much, and nobody waits for it."""
        return collect_delete(self.shard_of(topic), topic, body)

    def submit_delete(
        self,
        topic: Topic,
        body: Delete,
        seqs: "array[int] | None",
        *,
        waiter: Waiter | None = None,
    ) -> tuple[Shard, Deletion]:
        """Queue a delete with what was collected for it."""
        self._check_open()
        shard = self.shard_of(topic)
        with shard.lock:
            if topic.deleted:
                raise TopicNotFound(topic.name)
            ticket = submit_delete(shard, topic, body, seqs, waiter=waiter)
        return shard, ticket

    def delete_records(
        self, topic: Topic, *, before_seq: int | None = None, match: tuple[str, str] | None = None
    ) -> Deleted:
        """Delete records for good; return when the delete is durable and visible."""
        body = self.bound_delete(topic, before_seq=before_seq, match=match)
        shard, ticket = self.submit_delete(topic, body, self.collect_delete(topic, body))
        shard.commit.commit(ticket)
        assert ticket.deleted is not None
        return ticket.deleted

    # Jobs.

    def check_claim(self, topic: Topic, request: ClaimRequest) -> ClaimRequest:
        """Refuse a claim that cannot be served, and clamp it: before it waits for others."""
        return self.queues.check_claim(topic, request)

    def submit_claim(
        self, topic: Topic, request: ClaimRequest, *, waiter: Waiter | None = None
    ) -> tuple[Shard, Claim]:
        shard, (claim,) = self.submit_claims(topic, [request], waiter=waiter)
        return shard, claim

    def submit_claims(
        self, topic: Topic, requests: Sequence[ClaimRequest], *, waiter: Waiter | None = None
    ) -> tuple[Shard, list[Claim]]:
        """Deal what is ready to several claimers, in proportion to what each wants."""
        self._check_open()
        return self.queues.submit_claims(topic, requests, waiter=waiter)

    def submit_each_claim(
        self, topic: Topic, requests: Sequence[ClaimRequest], *, waiter: Waiter | None = None
    ) -> tuple[Shard, list[Claim | StorageError]]:
        """Serve several claimers one after the other; return each claim, or why it failed."""
        self._check_open()
        return self.queues.submit_each(topic, requests, waiter=waiter)

    def submit_ack(
        self, topic: Topic, request: AckRequest, *, waiter: Waiter | None = None
    ) -> tuple[Shard, Ack]:
        self._check_open()
        return self.queues.submit_ack(topic, request, waiter=waiter)

    def submit_nack(
        self, topic: Topic, request: NackRequest, *, waiter: Waiter | None = None
    ) -> tuple[Shard, LeaseChange]:
        self._check_open()
        return self.queues.submit_nack(topic, request, waiter=waiter)

    def submit_extend(
        self, topic: Topic, request: ExtendRequest, *, waiter: Waiter | None = None
    ) -> tuple[Shard, LeaseChange]:
        self._check_open()
        return self.queues.submit_extend(topic, request, waiter=waiter)

    def submit_release(
        self, topic: Topic, node: str, lease_ids: Sequence[str], *, waiter: Waiter | None = None
    ) -> tuple[Shard, LeaseChange]:
        self._check_open()
        return self.queues.submit_release(topic, node, lease_ids, waiter=waiter)

    def claim(self, topic: Topic, request: ClaimRequest) -> Claimed:
        """Claim jobs; with `claim_jitter_ms` together with whoever else comes in that time."""
        self._check_open()
        self._forward_for_reader(topic)
        return self.queues.claim(topic, request)

    def ack(self, topic: Topic, request: AckRequest) -> Acked:
        """Delete jobs that are done; return when that is as safe as the queue's class."""
        self._check_open()
        return self.queues.ack(topic, request)

    def nack(self, topic: Topic, request: NackRequest) -> Nacked:
        self._check_open()
        return self.queues.nack(topic, request)

    def extend(self, topic: Topic, request: ExtendRequest) -> Extended:
        self._check_open()
        return self.queues.extend(topic, request)

    def release(self, topic: Topic, node: str, lease_ids: Sequence[str]) -> int:
        """Make ready at once what a worker that left still held; return how many jobs it was."""
        self._check_open()
        return self.queues.release(topic, node, lease_ids)

    def queue_state(self, topic: Topic) -> QueueState:
        return self.queues.state(topic)

    def next_claimable_ms(self, topic: Topic) -> int | None:
        """Return when the next lease or delay ends: nothing becomes ready by itself before."""
        return self.queues.next_claimable_ms(topic)

    def sweep_queues(self) -> None:
        """Make expired and delayed jobs ready again, and move worn-out ones."""
        self.queues.sweep()
        self.move_dead_letters()

    @property
    def dead_letters_due(self) -> bool:
        """Whether jobs wait to be moved; takes no lock."""
        return self.queues.dead_letters.due

    def move_dead_letters(self) -> int:
        """Carry worn-out jobs to their dead-letter topics; return how many left their queues."""
        return self.queues.dead_letters.move_all() if self.dead_letters_due else 0

    def redrive(
        self, topic: Topic | Partitioned, *, to: str | None, wanted: int, check_name: CheckName
    ) -> Redriven:
        """Bring dead letters back to their queues; `check_name` may refuse a queue."""
        self._check_open()
        with self._redrive_lock:
            return redrive(self, topic, to=to, wanted=wanted, check_name=check_name)

    # Work in the background; also called by hand.

    def sync(self) -> None:
        """Make everything written so far durable."""
        for shard in self.shards:
            shard.commit.sync_once()
            shard.commit.log.check_writable()

    def prepare_spares(self) -> None:
        """Have the next WAL file of each shard ready, and begin it early where that is better."""
        for shard in self.shards:
            log = shard.commit.log
            if log.failed is None:
                log.prepare_spare(in_flood=self.is_behind)
                if log.has_better_spare:
                    with shard.lock:
                        if log.has_better_spare:  # nobody has taken it meanwhile
                            log.end_file()

    def checkpoint(self) -> None:
        """Copy everything published into segments."""
        failure: StorageError | None = None
        with self._work_lock:
            is_flood = self.tail_bytes >= self.config.checkpoint_bytes
            for shard in self.shards:
                try:
                    shard.commit.log.check_writable()
                    self._with_room(
                        partial(
                            checkpoint_shard,
                            shard,
                            stores=self.stores,
                            config=self.config,
                            is_flood=is_flood,
                            may_write_beside=self.may_write_beside,
                            is_wanted=lambda: not self._is_stopping,
                        )
                    )
                except StorageError as error:
                    # One bad shard does not keep the others' WAL from being absorbed.
                    failure = failure or error
        if failure is not None:
            raise failure

    def _with_room(self, step: Callable[[], None]) -> None:
        """Do what makes room later, if need be with what is kept for a full disk."""
        try:
            step()
        except DiskFull:
            kept = [shard.commit.log.give_room() for shard in self.shards]
            if not (self.reserve.give() or any(kept)):
                raise
            step()

    def look_at_room(self) -> None:
        """Take records again if there is room for them, else find out who takes it."""
        if self.reserve.is_short and not self.reserve.restore():
            self.largest = nlargest(LARGEST, self.topics(), key=lambda topic: topic.live_bytes)

    def snapshot(self) -> Snapshot:
        """Checkpoint, save the metadata, trim the WAL."""
        with self._work_lock:
            self.checkpoint()
            return self._save_snapshot(clean=False)

    def _absorb_at_stop(self) -> None:
        """Checkpoint, unless that takes longer than to replay the log: a start does so.

        Copies are not on the log: those are absorbed in any case.
        """
        for shard in self.shards:
            shard.commit.log.check_writable()
        if sum(len(shard.dirty) for shard in self.shards) <= ABSORBED_AT_STOP_MAX:
            self.checkpoint()
            return
        for shard in self.shards:
            copies = [topic for topic in shard.dirty if topic.link is not None]
            absorb_topics(shard, copies, stores=self.stores, config=self.config)

    def _save_snapshot(self, *, clean: bool) -> Snapshot:
        with self._work_lock:
            with self.registry.lock:
                by_shard: dict[Shard, list[Topic]] = {shard: [] for shard in self.shards}
                for shard, topic in self.registry.each():
                    by_shard[shard].append(topic)
                parents = self.registry.parents.all()
                next_topic_id = self.registry.next_topic_id
            snapshot = capture(
                self.shards,
                by_shard,
                parents,
                next_topic_id=next_topic_id,
                hot_disk=self.disk,
                clean=clean,
                former=self.registry.former_lives,
                save_groups=self.groups.save,
                check_wanted=self._check_wanted,
            )
            self._snapshot_number += 1
            self._with_room(partial(save_snapshot, self.disk, self._snapshot_number, snapshot))
            places = {s.directory: Position(s.file, s.offset) for s in snapshot.shards}
            self._kept_places = [*self._kept_places, places][-2:]
            if len(self._kept_places) == 2:
                for shard in self.shards:
                    oldest = self._kept_places[0].get(shard.directory)
                    if oldest is not None:
                        held = self._log_hold.get(shard.directory, oldest)
                        shard.commit.log.trim(min(oldest, held))
        return snapshot

    def backup(self, target: Disk) -> BackedUp:
        """Copy the whole directory to an empty disk while it is used: all of it at one moment."""
        self._check_open()
        copy = BackupCopy(self.stores, target)
        try:
            return self._backup(copy)
        except DiskFull:
            with suppress(StorageError):
                copy.remove()  # it may have taken the room of the log
            raise

    def _backup(self, copy: BackupCopy) -> BackedUp:
        with self._segments_held():
            with self._work_lock:
                self._check_open()
                snapshot = self.snapshot()
                places = {s.directory: Position(s.file, s.offset) for s in snapshot.shards}
                self._log_hold = places
            try:
                for _ in range(BACKUP_PASSES):
                    self._copy_segments(copy)
                for _, topic in self.registry.each():
                    copy.copy_tag_runs(topic)
                # No checkpoint, no attach: what the log calls absorbed is copied.
                with self._work_lock, self.registry.lock:
                    self._check_open()
                    self._copy_segments(copy)
                    ends, at_ts = self._end_of_logs()
                for directory, start in places.items():
                    copy.copy_log(directory, start, ends[directory])
            finally:
                self._log_hold = {}
        copy.finish(snapshot)
        return BackedUp(
            topics=len(self.registry),
            segments=copy.segments,
            bytes=copy.bytes_written,
            at_ts=at_ts,
        )

    def _copy_segments(self, copy: BackupCopy) -> None:
        for _, topic in self.registry.each():
            self._check_open()
            copy.copy_topic(topic)

    def _end_of_logs(self) -> tuple[dict[str, Position], int]:
        """Return where all logs end at one moment, and the moment.

        A move from one shard to another is in none of them, in the first, or in both.
        """
        finished: list[tuple[Shard, list[Commitment]]] = []
        with ExitStack() as locks:
            for shard in self.shards:
                locks.enter_context(shard.lock)
            at_ts = self.clock.now_ms()
            for shard in self.shards:
                shard.submit_floors()
                finished.append((shard, shard.commit.flush()))
                shard.commit.log.check_writable()
            ends = {shard.directory: shard.commit.log.position for shard in self.shards}
        for shard, tickets in finished:
            shard.commit.wake(tickets)
        return ends, at_ts

    def sweep(self) -> None:
        """Apply TTL and caps to every topic, seal by age, and give back idle reservations."""
        self.pins.sweep()
        self.uploads.sweep()
        now_ms, max_age_ms = self.clock.now_ms(), self.config.segment_max_age_ms
        for shard, topic in self.registry.each():
            if self._is_stopping:
                return
            if not maintenance.wants_sweep(topic, now_ms=now_ms, max_age_ms=max_age_ms):
                continue
            with shard.lock:
                self.registry.expire(topic)
                if topic.enforce_caps():
                    shard.floors_due.add(topic)
                topic.idempotency.forget_old(now_ms=now_ms, config=topic.config)
                if now_ms - topic.last_ts > IDLE_MS:
                    close_reservation(shard, topic)
            with self._work_lock:
                maintenance.seal_by_age(shard, topic, now_ms=now_ms, max_age_ms=max_age_ms)
        self.sweep_queues()
        self.groups.sweep()

    def maintain(self) -> None:
        """Index tags, drop dead segments, rewrite mostly dead ones."""
        # While the cold tier is busy the checkpoint goes on and this waits for its next time.
        self.pins.sweep()
        if not self._cold_lock.acquire(blocking=False):
            return
        short: Exhausted | None = None
        try:
            with self._work_lock:
                for shard, topic in self.registry.each():
                    if self._is_stopping:
                        return
                    if not maintenance.wants_maintenance(topic):
                        continue
                    # What gives room first, and one topic's lack of it keeps no other from that.
                    try:
                        maintenance.reclaim(shard, topic, stores=self.stores)
                        maintenance.index_tags(shard, topic)
                        while maintenance.rewrite_one(shard, topic, config=self.config):
                            pass
                    except Exhausted as error:
                        short = error
        finally:
            self._release_segments()
        if short is not None:
            raise short

    def relocate(self) -> int:
        """Move old sealed segments to the cold tier and bring it up to date; return how many."""
        self.pins.sweep()
        moved, short = 0, None
        with self._segments_held():
            for shard, topic in self.registry.each():
                if self._closed or self._is_stopping:
                    break
                try:
                    moved += maintenance.relocate(
                        shard, topic, stores=self.stores, config=self.config
                    )
                except Exhausted as error:  # all the more what is gone has to leave the tier
                    short = error
                maintenance.refresh_cold(shard, topic, stores=self.stores)
        if short is not None:
            raise short
        return moved

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Have long work of other threads end where it may be cut: a stop waits for them."""
        self._is_stopping = True
        try:
            yield
        finally:
            self._is_stopping = False

    def _check_wanted(self) -> None:
        if self._is_stopping:
            raise Closed("the log is being closed")

    def close(self) -> None:
        """Stop cleanly: give back reservations, checkpoint, snapshot, release the directory."""
        with self.hurried():
            self._work_lock.acquire()
        try:
            self._close()
        finally:
            self._work_lock.release()

    def _close(self) -> None:
        with self._work_lock:
            with self.registry.lock:
                if self._closed:
                    return
                self._closed = True
            for shard in self.shards:
                shard.commit.stop_admitting()
            try:
                for shard in self.shards:
                    # A reservation that is still on its way cannot be given back.
                    shard.commit.sync_once()
                for shard, topic in self.registry.each():
                    with shard.lock:
                        close_reservation(shard, topic)
                with suppress(Exhausted):  # it is all on the log: the next start reads more of it
                    self._absorb_at_stop()
                    snapshot = self._save_snapshot(clean=True)
                    number = self._snapshot_number if snapshot.ends else None
                    data_dir.mark_stopped(self.disk, snapshot_number=number)
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Let go of the directory without a word, as a crash would."""
        self._closed = True
        for shard in self.shards:
            shard.commit.close()
        self.stores.maps.release_all()
        self._lock.close()

    # Inside.

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed")

    def _tail_is_full(self, shard: Shard) -> bool:
        """Tell whether segments are too far behind; a shard within its share never waits."""
        return (
            shard.tail_bytes > self._tail_share and self.tail_bytes > self.config.tail_cache_bytes
        )


def _changes_copies(topic: Topic, changes: Mapping[str, Any]) -> bool:
    """Tell whether a change of config is one of how a router's copies outlive a restart."""
    config = topic.config.as_dict()
    return any(name in changes and changes[name] != config[name] for name in COPY_SETTINGS)


def _nothing() -> None:
    """Ask nobody."""
