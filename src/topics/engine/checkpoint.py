"""Copy what the WAL holds into segments, so that the WAL can be trimmed.

    take chunks (lock) → convert and write → sync segments → swap chunks for segments (lock)
    → CheckpointMark, sync

Many topics go in slices, each with a mark of its own: nobody waits long for the lock, and a stop
waits for one slice alone. In a flood the device takes and syncs a segment while the next one is
converted.
Keeps: a CheckpointMark is written only after everything it names is synced; a delete that comes
while a chunk is being copied reaches the copy; records below the live floor are not copied at all.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Self

from topics.config import ServerConfig
from topics.engine.shard import Shard
from topics.engine.stores import Stores
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.topic import Topic
from topics.errors import DiskFailed, DiskFull, Exhausted, TooManyFiles
from topics.kernel import IDX_ENTRY_BYTES, frames_to_segment, summarize_idx
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import Segment, fitting_stop
from topics.storage.wal.frame import CheckpointMark, encode_control

WRITE_BYTES = 512 * 1024
"""So much is converted and written at a time: it stays in the cache of a core."""
DIRECT_WRITE_BYTES = 4 * 1024 * 1024
"""The same past the page cache: most often a whole segment, which the device takes uncopied."""
SLICE_TOPICS = 64
"""So many topics are taken at a time: the lock is held for some ms."""
SYNC_THREADS = 8
"""So many syncs of different topics at a time: a file system with a journal does them as one."""
SYNCED_ALONE_MAX = 4
"""Of so few topics threads cost more than they spare."""
WAITING_WRITES_MAX = 2
"""So many may wait for the device: they hold what was converted."""


class _Writes:
    """Makes writes one after the other; beside its user, on two threads, it syncs meanwhile too.

    Keeps: when it is left nothing is under way, so that nothing is written to what was undone.
    """

    def __init__(self, *, beside: bool) -> None:
        self._beside = beside
        self._writer = ThreadPoolExecutor(1, "topics-segment-writes")
        self._syncer = ThreadPoolExecutor(1, "topics-segment-syncs")
        self._waiting: deque[Future[None]] = deque()
        self._syncs: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for thread in (self._writer, self._syncer):
            thread.shutdown(cancel_futures=True)
        if isinstance(error, Exhausted):  # what that undoes must not hide a worse one
            for one in (*self._waiting, *self._syncs):
                failure = None if one.cancelled() else one.exception()
                if failure is not None and not isinstance(failure, Exhausted | CancelledError):
                    raise failure

    def make(self, write: Callable[[], None]) -> None:
        """Make a write, now or soon; raise what one before has met."""
        self._settle(WAITING_WRITES_MAX if self._beside else 0)
        task = self._submit(self._writer, write)
        if task is None:
            write()
        else:
            self._waiting.append(task)

    def sync(self, segment: Segment) -> bool:
        """Sync a segment when all writes asked for are made; False: that is left to the caller."""
        written = self._waiting[-1] if self._waiting else None
        task = self._submit(self._syncer, partial(_sync_written, segment, written))
        if task is not None:
            self._syncs.append(task)
        return task is not None

    def finish(self) -> None:
        """Return when all is made and synced; raise what one of them has met."""
        self._settle(0)
        for sync in self._syncs:
            sync.result()

    def _submit(self, thread: ThreadPoolExecutor, work: Callable[[], None]) -> Future[None] | None:
        """Return what is done beside; None where that cannot be, now and from now on."""
        if not self._beside:
            return None
        try:
            return thread.submit(work)
        except RuntimeError:  # no thread can be begun: the interpreter is ending, or has too many
            self._beside = False  # else the next one would do this work too, and nobody look at it
            self._settle(0)
            return None

    def _settle(self, most: int) -> None:
        while len(self._waiting) > most:
            self._waiting.popleft().result()


def _sync_written(segment: Segment, written: Future[None] | None) -> None:
    if written is not None:
        written.result()
    try:
        segment.sync()
    except DiskFull as error:  # final, as any sync that failed: nobody knows what it left behind
        raise DiskFailed(str(error)) from error


def checkpoint_shard(
    shard: Shard,
    *,
    stores: Stores,
    config: ServerConfig,
    is_flood: bool = False,
    may_write_beside: bool = False,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Absorb every published record of a shard into segments, in a flood past the page cache.

    When it is not wanted any more, what is left stays on the WAL, and is replayed from there.
    What ran out, room or descriptors, leaves everything as it was; any other failure makes the
    shard read-only, because what reached the segment files is unknown until a restart reads them.
    """
    with shard.lock:
        finished = shard.commit.flush()
        replay_from = shard.commit.oldest_unpublished()
        dirty = list(shard.dirty)
    shard.commit.wake(finished)
    for topics in _slices(dirty):
        if not is_wanted():
            return
        _absorb(
            shard,
            topics,
            stores=stores,
            config=config,
            is_flood=is_flood,
            may_write_beside=may_write_beside,
        )
    shard.replay_from = replay_from


def absorb_topics(
    shard: Shard, topics: Iterable[Topic], *, stores: Stores, config: ServerConfig
) -> None:
    """Absorb what some topics of a shard have published."""
    for some in _slices(topics):
        _absorb(shard, some, stores=stores, config=config, is_flood=False, may_write_beside=False)


def _slices(topics: Iterable[Topic]) -> Iterator[list[Topic]]:
    """Yield topics by their ids, some at a time; at least once, for the mark."""
    ordered = sorted(topics, key=attrgetter("id"))
    for start in range(0, max(1, len(ordered)), SLICE_TOPICS):
        yield ordered[start : start + SLICE_TOPICS]


def _absorb(
    shard: Shard,
    topics: list[Topic],
    *,
    stores: Stores,
    config: ServerConfig,
    is_flood: bool,
    may_write_beside: bool,
) -> None:
    _finish_undo(shard)
    with shard.lock:
        finished = shard.commit.flush()
        works = [
            _Absorption(topic, stores, config, is_flood=is_flood)
            for topic in topics
            if topic in shard.dirty and not topic.deleted
        ]
        shard.dirty.difference_update(topics)
    shard.commit.wake(finished)
    try:
        with _Writes(beside=is_flood and may_write_beside) as writes:
            for work in works:
                work.write(writes)
            writes.finish()
        _sync(works, beside=may_write_beside)
    except Exhausted:
        _undo(shard, works)
        raise
    except BaseException as error:
        _fail(shard, error)
        raise
    _mark_absorbed(shard, works)


def _mark_absorbed(shard: Shard, works: list["_Absorption"]) -> None:
    """Show the segments instead of the chunks, and say on the log that they hold them."""
    absorbed, cursors = {}, {}
    with shard.lock:
        for work in works:
            shard.tail_bytes -= work.swap()
            absorbed[work.topic.id] = work.topic.absorbed_seq
            if work.link is not None:
                cursors[work.topic.id] = (work.link.source.id, work.cursor)
            if work.skipped:
                # No segment has these seqs: only the floor explains them once they are absorbed.
                shard.floors_due.add(work.topic)
        shard.submit_floors()
        body = CheckpointMark(absorbed, cursors)
        mark = shard.submit_control(encode_control(body), needs_sync=True)
    shard.commit.commit(mark)
    for work in works:
        if work.link is not None:
            work.link.durable_cursor = max(work.link.durable_cursor, work.cursor)


def _sync(works: list["_Absorption"], *, beside: bool) -> None:
    try:
        if beside and len(works) > SYNCED_ALONE_MAX:
            with ThreadPoolExecutor(SYNC_THREADS, "topics-segment-syncs") as threads:
                begun = _begin_syncs(threads, works)
            for sync in begun:
                sync.result()
            works = works[len(begun) :]
        for work in works:
            work.sync()
    except DiskFull as error:  # final: nobody knows what a failed sync left behind
        raise DiskFailed(str(error)) from error


def _begin_syncs(threads: ThreadPoolExecutor, works: list["_Absorption"]) -> list[Future[None]]:
    """Begin the syncs; fewer where no thread can be begun."""
    begun: list[Future[None]] = []
    with suppress(RuntimeError):  # the interpreter is ending, or has too many
        for work in works:
            begun.append(threads.submit(work.sync))  # noqa: PERF401 - those before count
    return begun


def _undo(shard: Shard, works: list["_Absorption"]) -> None:
    """Leave no file of a checkpoint that could not be made: a later one may not need it any more.

    What cannot be removed now has to be before the next one begins.
    """
    with shard.lock:
        for work in works:
            shard.dirty.add(work.topic)
            work.give_back()
    shard.undone += [work.remove_new_files for work in works]
    with suppress(TooManyFiles):
        _finish_undo(shard)


def _finish_undo(shard: Shard) -> None:
    try:
        while shard.undone:
            shard.undone[0]()
            del shard.undone[0]
    except TooManyFiles:
        raise
    except BaseException as error:
        _fail(shard, error)
        raise


def _fail(shard: Shard, error: BaseException) -> None:
    """Take no more writes: what was taken to be absorbed is in no segment, and no later one's."""
    if not isinstance(error, DiskFailed):  # damage, a bug, an interrupt from the keyboard
        error = DiskFailed(f"a checkpoint could not be finished: {error!r}")
    with shard.lock:
        shard.commit.log.fail(error)


class _Piece:
    """What one segment gets in this checkpoint.

    Chunks are gathered and converted many at a time: each time gives up the interpreter, and it
    takes a while to get it back from an event loop that is busy.
    """

    def __init__(
        self, segment: Segment, writes: _Writes, *, is_new: bool, past_cache: bool
    ) -> None:
        self.segment = segment
        self._writes = writes
        self.is_new = is_new
        self._past_cache = past_cache
        self._write_bytes = DIRECT_WRITE_BYTES if past_cache else WRITE_BYTES
        self.entries = bytearray()
        self.data_bytes = 0
        self.is_synced = False
        """Or it will be when all writes are finished."""
        self._stretches: list[tuple[Buffer, Buffer, int, int]] = []
        """Added, and not yet converted."""
        self._added_count = 0
        self._added_bytes = 0

    @property
    def end_bytes(self) -> int:
        """Return where the data ends; more than that as long as something is not converted."""
        return self.segment.data_bytes + self.data_bytes + self._added_bytes

    @property
    def end_count(self) -> int:
        return self.segment.count + len(self.entries) // IDX_ENTRY_BYTES + self._added_count

    @property
    def next_seq(self) -> int:
        return self.segment.first_seq + self.end_count

    def add(self, chunk: Chunk, start: int, stop: int) -> None:
        self._stretches.append((chunk.frames, chunk.idx(), start, stop))
        self._added_count += stop - start
        self._added_bytes += chunk.size
        if self._added_bytes >= self._write_bytes:
            self.settle()

    def settle(self) -> None:
        """Convert and write what was added; then its memory is free, and `end_bytes` is exact."""
        if not self._stretches:
            return
        end_bytes = self.segment.data_bytes + self.data_bytes
        data, entries = frames_to_segment(self._stretches, base=end_bytes)
        write = self.segment.write_data
        self._writes.make(partial(write, end_bytes, data, past_cache=self._past_cache))
        self.entries += entries
        self.data_bytes += len(data)
        self._stretches, self._added_count, self._added_bytes = [], 0, 0

    def finish(self) -> None:
        self.settle()
        self.segment.write_entries(self.segment.count, self.entries)


class _Absorption:
    """The checkpoint of one topic. Made and swapped under the shard's lock, written without it."""

    def __init__(
        self, topic: Topic, stores: Stores, config: ServerConfig, *, is_flood: bool
    ) -> None:
        self.topic = topic
        self._past_cache = is_flood
        self._stores = stores
        self._config = config
        self._chunks = topic.chunks()
        for chunk in self._chunks:
            chunk.taken = True
        self._flagged = topic.flagged
        topic.flagged = set()
        self.link = topic.link
        self.cursor = topic.link.cursor if topic.link is not None else 0
        """How far into its source the copies reach that are among the chunks."""
        self._active = next((s for s in reversed(topic.segments()) if not s.sealed), None)
        self.skipped = False
        """Chunks below the live floor were left out."""
        self._pieces: list[_Piece] = []
        self._copied: list[tuple[Chunk, int, int, _Piece]] = []

    def write(self, writes: _Writes) -> None:
        if self._past_cache:  # what has tags is read again once it is sealed, to index them
            self._past_cache = not any(
                summarize_idx(chunk.idx()).tagged_records for chunk in self._chunks
            )
        kept_from = min(self.topic.floors.earliest_seq, self.topic.pinned_from)
        for chunk in self._chunks:
            if chunk.last_seq >= kept_from:
                self._copy(chunk, writes)
            else:
                self.skipped = True
        self._finish_last(writes)

    def _finish_last(self, writes: _Writes) -> None:
        if self._pieces:
            piece = self._pieces[-1]
            piece.finish()
            # The active one of before may have flags to sync as well: it is synced at the end.
            if piece.is_new and self._stores.is_durable(piece.segment):
                piece.is_synced = writes.sync(piece.segment)

    def sync(self) -> None:
        written = (piece.segment for piece in self._pieces if not piece.is_synced)
        segments = {*self._flagged, *written}
        for segment in sorted(segments, key=lambda segment: segment.first_seq):
            if self._stores.is_durable(segment):
                segment.sync()
        if self._has_new_files:
            self._stores.hot_disk.sync_dir(paths.topic_dir(self.topic.id))

    @property
    def _has_new_files(self) -> bool:
        return any(
            piece.is_new and self._stores.is_durable(piece.segment) for piece in self._pieces
        )

    def give_back(self) -> None:
        """Leave the delete flags that are not synced yet to the next checkpoint."""
        self.topic.flagged |= self._flagged

    def remove_new_files(self) -> None:
        """Take back what was written: new files, and what stands behind the end of the active."""
        if self.topic.deleted:
            return  # and its files with it
        for piece in self._pieces:
            if piece.is_new:
                self._stores.remove_hot_files(piece.segment)
            else:
                piece.segment.cut_tail()
        directory, disk = paths.topic_dir(self.topic.id), self._stores.hot_disk
        if self._has_new_files and disk.exists(directory):
            disk.sync_dir(directory)  # also of what was removed before, and could not be synced

    def swap(self) -> int:
        """Put the segments in the place of the chunks; return the bytes of the chunks."""
        topic = self.topic
        for piece in self._pieces:
            piece.segment.grow(piece.entries, data_bytes=piece.data_bytes)
        for chunk, start, stop, piece in self._copied:
            self._carry_over(chunk, start, stop, piece.segment)
        last = self._pieces[-1].segment if self._pieces else self._active
        new = [piece.segment for piece in self._pieces if piece.is_new]
        for segment in [s for s in [self._active, *new] if s is not None and not s.sealed]:
            if segment is not last or self._is_full(segment):
                seal(topic, segment)
        gone = set(map(id, self._chunks))
        kept = [run for run in topic.runs if id(run) not in gone]
        segments = [run for run in kept if isinstance(run, Segment)]
        chunks = [run for run in kept if isinstance(run, Chunk)]
        topic.runs = [*segments, *new, *chunks]
        durable = [chunk.last_seq for chunk in self._chunks if chunk.durable]
        topic.absorbed_seq = max([topic.absorbed_seq, *durable])
        return sum(chunk.size for chunk in self._chunks)

    def _copy(self, chunk: Chunk, writes: _Writes) -> None:
        start = 0
        while start < chunk.count:
            piece = self._piece_for(chunk, chunk.first_seq + start, writes)
            stop = self._stop_in(chunk, start, piece)
            piece.add(chunk, start, stop)
            self._copied.append((chunk, start, stop, piece))
            start = stop

    def _piece_for(self, chunk: Chunk, seq: int, writes: _Writes) -> _Piece:
        """Return the piece that takes `seq`: the last one, the active segment's, or a new one."""
        if self._pieces:
            piece = self._pieces[-1]
            if self._takes(piece, chunk, seq):
                return piece
            piece.settle()
            if self._takes(piece, chunk, seq):
                return piece
        elif self._active is not None:
            self._active.idx()  # read now if it was not yet: nothing may fail in the swap
            piece = _Piece(self._active, writes, is_new=False, past_cache=self._past_cache)
            if self._takes(piece, chunk, seq):
                self._pieces.append(piece)
                return piece
        self._finish_last(writes)
        segment = self._stores.new_segment(self.topic.id, seq, durable=chunk.durable)
        self._pieces.append(_Piece(segment, writes, is_new=True, past_cache=self._past_cache))
        segment.create_files()  # noted first, so that a full disk can take it back
        return self._pieces[-1]

    def _takes(self, piece: _Piece, chunk: Chunk, seq: int) -> bool:
        return (
            piece.next_seq == seq
            and self._stores.is_durable(piece.segment) == chunk.durable
            and piece.end_count < self._config.segment_max_events
            and piece.end_bytes < self._config.segment_max_bytes
        )

    def _stop_in(self, chunk: Chunk, start: int, piece: _Piece) -> int:
        """Return how far the piece takes the chunk; it may take more once it is settled."""
        room = self._config.segment_max_events - piece.end_count
        stop = min(chunk.count, start + room)
        idx = chunk.idx()
        offset = int.from_bytes(
            idx[start * IDX_ENTRY_BYTES : start * IDX_ENTRY_BYTES + 4], "little"
        )
        room_bytes = self._config.segment_max_bytes - piece.end_bytes
        return fitting_stop(idx, start, stop, offset + room_bytes)

    def _is_full(self, segment: Segment) -> bool:
        return (
            segment.count >= self._config.segment_max_events
            or segment.data_bytes >= self._config.segment_max_bytes
        )

    def _carry_over(self, chunk: Chunk, start: int, stop: int, segment: Segment) -> None:
        """Delete in the copy what was deleted in the chunk while it was being copied."""
        first_seq, end_seq = chunk.first_seq + start, chunk.first_seq + stop
        missed = sorted(seq for dead in chunk.changed for seq in dead if first_seq <= seq < end_seq)
        if missed:
            segment.mark_deleted(array("Q", missed))
            self.topic.flagged.add(segment)


def seal(topic: Topic, segment: Segment) -> None:
    """Make a segment immutable and have its tags indexed; the shard's lock is held."""
    segment.seal()
    if segment.tagged_records:
        topic.tag_pending.append(segment)
