"""One segment: a dense range of seqs in a `.data` and an `.idx` file.

Owns both files while the segment is active, and their maps while it is sealed. The `.idx` always
lives on the hot disk, whichever tier holds the `.data`, so that no write and no floor ever waits
for a slow tier.
Keeps: entry i is seq `first_seq + i`; what `idx()` and `read()` show belongs together, also while
a rewrite swaps the files.
Byte reference: docs/internals/formats/segment.md.
"""

import struct
import threading
import weakref
from array import array
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from topics.errors import CorruptData, DiskFailed, FileMissing, TooManyFiles
from topics.kernel import (
    SEGMENT_LAYOUT,
    IdxSummary,
    count_live,
    delete_entries,
    flag_frames,
    index_segment,
    summarize_idx,
)
from topics.kernel.layout import FLAG_DELETED, FRAME_OVERHEAD_BYTES, IDX_ENTRY, IDX_ENTRY_BYTES
from topics.storage.disk import paths
from topics.storage.disk.data_dir import write_file
from topics.storage.disk.disk import Buffer, Disk, DiskFile
from topics.storage.disk.open_maps import MapOwner, OpenMaps
from topics.storage.segments.store import (
    DELETED_FLAG,
    IDX_FLAGS_OFFSET,
    DataReader,
    SegmentStore,
)

_OFFSET_LEN = struct.Struct("<II")
FLAGS_ONE_BY_ONE = 16
"""So few delete flags are written by themselves; for more, the entries around them are."""
FLAGGED_TOGETHER = 1024
FLAG_PAGE_BYTES = 4096
"""Frames closer than this are written back together: the device writes whole pages anyway."""
_PROVING = threading.Lock()
"""Held by whoever compares an index with its sums: once, for some µs, and no sum changes then."""
_READING = threading.Lock()
"""Held by whoever reads the index of an active segment for the first time."""


class SegmentSums(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a segment without its files."""

    first_seq: int
    count: int
    data_bytes: int
    live_records: int
    live_bytes: int
    tagged_records: int
    first_ts: int
    last_ts: int


class View(NamedTuple):
    """Some entries and the bytes that their offsets point into, minus `base`."""

    idx: Buffer
    buffer: Buffer
    base: int


class _Files:
    """Files of a segment, which go with it: nothing here keeps it alive."""

    __slots__ = ("__weakref__", "_reference")

    def __init__(self, segment: "Segment") -> None:
        self._reference = weakref.ref(segment)

    @property
    def _segment(self) -> "Segment":
        segment = self._reference()
        assert segment is not None  # only a segment asks for its files
        return segment


class SealedPair(_Files):
    """The two files of a sealed segment, opened when first used."""

    __slots__ = ("_data", "_idx", "_idx_file")

    def __init__(self, segment: "Segment") -> None:
        super().__init__(segment)
        self._idx: Buffer | None = None
        self._data: DataReader | None = None
        self._idx_file: DiskFile | None = None

    def idx(self) -> Buffer:
        idx = self._idx
        if idx is None:
            segment = self._segment
            idx = segment.maps.open(segment, partial(segment.disk.map, segment.idx_path))
            segment.prove(idx)
            self._idx = idx
        return idx

    def data(self) -> DataReader:
        data = self._data
        if data is None:
            segment = self._segment
            opening = partial(segment.store.open_data, segment.topic_id, segment.first_seq)
            data = self._data = segment.maps.open(segment, opening)
        return data

    @property
    def idx_file(self) -> DiskFile:
        """The `.idx`, to set delete flags in it."""
        file = self._idx_file
        if file is None:
            segment = self._segment
            file = self._idx_file = segment.open_file(segment.idx_path)
        return file


class Segment:
    """A range of records on disk, active (growing) or sealed."""

    layout = SEGMENT_LAYOUT

    def __init__(
        self, disk: Disk, store: SegmentStore, maps: OpenMaps, *, topic_id: int, first_seq: int
    ) -> None:
        self.disk = disk
        self.maps = maps
        self.store = store
        self.tier = "hot"
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.count = 0
        self.data_bytes = 0
        self.live_records = 0
        self.live_bytes = 0
        self.tagged_records = 0
        self.first_ts = 0
        self.last_ts = 0
        self.cold_stale = False
        """The cold copy does not show every delete flag yet; the hot `.idx` does."""
        self.marked_since: set[int] | None = None
        """While a rewrite runs: indexes that were deleted since it read them."""
        self.bound_for: Literal["cold", "nowhere"] | None = None
        """Its files are about to move or to go: who names them to others must know."""
        self.swaps = 0
        """Odd while a rewrite changes the files behind the names; who reads without checking
        frames compares it before and after."""
        self._unflagged: list[array[int]] = []
        """Seqs that are deleted in the `.idx` and not yet in the `.data`: `sync` sees to it."""
        self._active: _ActiveFiles | None = None
        self._pair = SealedPair(self)
        self._pinned = False
        self._has_tail = False
        """After `load`: the files hold more than what counts."""
        self._is_proven = True
        """Its index was read in this process; else its sums are those that a stop has saved."""

    # What it is.

    @property
    def idx_path(self) -> str:
        return paths.segment_idx_path(self.topic_id, self.first_seq)

    @property
    def data_path(self) -> str:
        return paths.segment_data_path(self.topic_id, self.first_seq)

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    @property
    def sealed(self) -> bool:
        return self._active is None

    @property
    def sums(self) -> SegmentSums:
        return SegmentSums(
            self.first_seq,
            self.count,
            self.data_bytes,
            self.live_records,
            self.live_bytes,
            self._tagged_now(),
            self.first_ts,
            self.last_ts,
        )

    # Reading: any thread, no lock.

    def idx(self) -> Buffer:
        active = self._active
        return self._pair.idx() if active is None else active.idx

    def view(self, start: int, stop: int, *, max_bytes: int | None = None) -> View:
        """Return entries [start, stop) with their bytes: one, or as many as `max_bytes` holds."""
        active, pair = self._active, self._pair
        idx = memoryview(pair.idx() if active is None else active.idx)
        base, _ = _OFFSET_LEN.unpack_from(idx, start * IDX_ENTRY_BYTES)
        if max_bytes is not None:
            stop = fitting_stop(idx, start, stop, base + max_bytes)
        part = idx[start * IDX_ENTRY_BYTES : stop * IDX_ENTRY_BYTES]
        offset, size = _OFFSET_LEN.unpack_from(part, len(part) - IDX_ENTRY_BYTES)
        wanted = offset + size - base
        if active is not None:
            return View(bytes(part), active.data_file.read_at(base, wanted), base)
        return View(part, pair.data().read(base, wanted), base)

    def whole_data(self) -> Buffer:
        active = self._active
        if active is not None:
            return active.data_file.read_at(0, self.data_bytes)
        return self._pair.data().read(0, self.data_bytes)

    def release(self) -> None:
        """Forget the maps; they come back with the next read."""
        if not self._pinned:
            self._pair = SealedPair(self)

    def pin(self) -> None:
        """Open both files and keep them: their names are about to change hands."""
        self._pinned = True
        try:
            self._pair.idx()
            self._pair.data()
        except TooManyFiles:
            self._pinned = False
            raise
        self.swaps += 1

    def reload(self) -> None:
        """Show what the names stand for now."""
        self._pinned = False
        self.release()
        self.load()
        self.swaps += 1

    def open_file(self, path: str, *, owner: MapOwner | None = None) -> DiskFile:
        """Open one of its files, which is closed when there are too many."""
        return self.maps.open(owner or self, partial(self.disk.open, path))

    # Growing: the checkpoint alone.

    def create_files(self) -> None:
        """Begin an active segment; its names are durable after a sync of the topic's directory."""
        self.disk.make_dir(paths.topic_dir(self.topic_id))
        data, idx = self.disk.create(self.data_path), self.disk.create(self.idx_path)
        self._active = _ActiveFiles(self, bytearray())
        self._active.keep(data, idx)

    def write_data(self, offset: int, frames: Buffer, *, past_cache: bool = False) -> None:
        """Put frames behind the last ones; they count only after `grow`."""
        assert self._active is not None
        if past_cache:
            self._active.data_file.write_past_cache(offset, frames)
        else:
            self._active.data_file.write_at(offset, [frames])

    def write_entries(self, index: int, entries: Buffer) -> None:
        assert self._active is not None
        self._active.idx_file.write_at(index * IDX_ENTRY_BYTES, [entries])

    def cut_tail(self) -> None:
        """Remove what was written and never counted."""
        assert self._active is not None
        self._active.data_file.truncate(self.data_bytes)
        self._active.idx_file.truncate(self.count * IDX_ENTRY_BYTES)

    def grow(self, entries: Buffer, *, data_bytes: int) -> None:
        """Take the frames just written into the segment's range."""
        assert self._active is not None
        # A new buffer: readers may still look at the old one.
        self._active.idx = self._active.idx + entries
        stop = len(entries) // IDX_ENTRY_BYTES
        if self.count == 0:
            self.first_ts = IDX_ENTRY.unpack_from(entries, 0)[2]
        self.last_ts = IDX_ENTRY.unpack_from(entries, len(entries) - IDX_ENTRY_BYTES)[2]
        records, live_bytes = count_live(entries, 0, stop)
        self.live_records += records
        self.live_bytes += live_bytes
        self.data_bytes += data_bytes
        self.count += stop

    def sync(self) -> None:
        """Make frames and delete flags durable."""
        if self._active is not None:
            self.flag_frames()
            self._active.data_file.sync_data()
            self._active.idx_file.sync_data()
            return
        self._sync_file(self.idx_path)
        if self.tier == "hot":
            try:
                self.flag_frames()
                self._sync_file(self.data_path)
            except FileMissing:
                # It may have moved to the cold tier meanwhile, whole and synced.
                if self.tier == "hot":
                    raise

    def _sync_file(self, path: str) -> None:
        file = self.disk.open(path)
        file.sync_data()
        file.close()

    def flag_frames(self) -> None:
        """Set the delete flags in the `.data` that the `.idx` has: one thread at a time."""
        waiting = self._unflagged
        known = len(waiting)  # more may come meanwhile
        if not known:
            return
        seqs = array("Q", sorted(chain(*waiting[:known])))
        active = self._active
        file = self.disk.open(self.data_path) if active is None else active.data_file
        for start in range(0, len(seqs), FLAGGED_TOGETHER):
            self._flag_some(file, seqs[start : start + FLAGGED_TOGETHER])
        if active is None:
            file.close()
        del waiting[:known]

    def flagged_data(self, idx: Buffer) -> Buffer:
        """Return the whole `.data` with every delete flag that `idx` has."""
        data = self.whole_data()
        if not self._unflagged:
            return data
        entries = enumerate(IDX_ENTRY.iter_unpack(idx), self.first_seq)
        seqs = array("Q", [seq for seq, entry in entries if entry[3] & FLAG_DELETED])
        flagged = bytearray(data)
        flag_frames(flagged, idx, seqs, self.first_seq, base=0)
        return flagged

    def _flag_some(self, file: DiskFile, seqs: "array[int]") -> None:
        idx = self.idx()
        places = [self._place_of(idx, seq) for seq in (seqs[0], seqs[-1])]
        begin, end = places[0][0], sum(places[1])
        if begin == end:  # a rewrite has dropped their frames
            return
        if end - begin <= len(seqs) * FLAG_PAGE_BYTES:
            frames = bytearray(file.read_at(begin, end - begin))
            flag_frames(frames, idx, seqs, self.first_seq, base=begin)
            file.write_at(begin, [frames])
            return
        for seq in seqs:
            offset, size = self._place_of(idx, seq)
            if size:
                file.write_at(offset + size - 1, [DELETED_FLAG])

    def _place_of(self, idx: Buffer, seq: int) -> tuple[int, int]:
        offset, size = _OFFSET_LEN.unpack_from(idx, (seq - self.first_seq) * IDX_ENTRY_BYTES)
        return offset, size

    def seal(self) -> None:
        """Make the segment immutable; its files stay open for those who still read from them."""
        assert self._active is not None
        self.tagged_records = self._tagged_now()
        self._pair = SealedPair(self)
        self._active = None

    def _tagged_now(self) -> int:
        """Return how many records have a tag; only those of an active segment become more."""
        active = self._active
        if active is None or not active.was_read:
            return self.tagged_records
        return summarize_idx(active.idx).tagged_records

    # Deleting: the shard's lock held.

    def mark_deleted(self, seqs: "array[int]") -> tuple[int, int]:
        """Set the delete flags of some seqs in place, in the `.idx`; durable after `sync`.

        They ascend. Return records and bytes that were live.
        """
        active = self._active
        start, stop = seqs[0] - self.first_seq, seqs[-1] - self.first_seq + 1
        part = slice(start * IDX_ENTRY_BYTES, stop * IDX_ENTRY_BYTES)
        entries = bytearray(self.idx()[part])
        dead, size = delete_entries(entries, seqs, seqs[0])
        if not dead:
            return 0, 0
        file = self._pair.idx_file if active is None else active.idx_file
        try:
            if len(dead) <= FLAGS_ONE_BY_ONE:
                for seq in dead:
                    at = (seq - seqs[0]) * IDX_ENTRY_BYTES + IDX_FLAGS_OFFSET
                    file.write_at(part.start + at, [entries[at : at + 1]])
            else:
                file.write_at(part.start, [entries])
        except DiskFailed:
            self.live_records, self.live_bytes = count_live(self.idx(), 0, self.count)
            raise
        if active is not None:
            active.idx[part] = entries
        self.live_records -= len(dead)
        self.live_bytes -= size
        self.cold_stale = self.tier == "cold"
        if self.tier == "hot":
            self._unflagged.append(dead)
        if self.marked_since is not None:
            self.marked_since.update(seq - self.first_seq for seq in dead)
        return len(dead), size

    def renew_flags(self) -> None:
        """Write every delete flag once more, durable after `sync`.

        What a process that was killed wrote can be read, but need not be on the device.
        """
        idx = bytes(memoryview(self.idx())[: self.count * IDX_ENTRY_BYTES])
        file = self._pair.idx_file if self._active is None else self._active.idx_file
        file.write_at(0, [idx])
        if self.tier == "hot":
            entries = enumerate(IDX_ENTRY.iter_unpack(idx), self.first_seq)
            self._unflagged = [array("Q", [seq for seq, e in entries if e[3] & FLAG_DELETED])]
            self.flag_frames()

    def deleted_flags(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Return what `SegmentStore.mark_deleted` needs to show every deleted record elsewhere."""
        data_offsets, idx_flags = [], []
        for i, (offset, size, _, flags) in enumerate(IDX_ENTRY.iter_unpack(self.idx())):
            if flags & FLAG_DELETED:
                idx_flags.append((i * IDX_ENTRY_BYTES + IDX_FLAGS_OFFSET, flags))
                if size:
                    data_offsets.append(offset + size - 1)
        return data_offsets, idx_flags

    @property
    def reclaimable_bytes(self) -> int:
        """Return what a rewrite would free: the frame of the last record stays, deleted or not."""
        dead = self.data_bytes - self.live_bytes - self.live_records * FRAME_OVERHEAD_BYTES
        if not dead:
            return 0
        _, size, _, flags = IDX_ENTRY.unpack_from(self.idx(), (self.count - 1) * IDX_ENTRY_BYTES)
        return dead - size if flags & FLAG_DELETED else dead

    def move_to_cold(self, store: SegmentStore) -> None:
        """Read the data from `store` from now on; the `.idx` stays where it is."""
        self.cold_stale = bool(self.marked_since)
        self.marked_since = None
        self.store = store
        self.tier = "cold"
        self._unflagged.clear()
        self.bound_for = None
        self._pair = SealedPair(self)

    def move_to_hot(self, store: SegmentStore) -> None:
        """Read the data from `store` again; `reload` follows."""
        self.cold_stale = False
        self.store = store
        self.tier = "hot"

    # Opening: recovery, and after a rewrite.

    def load(self, *, keep: int | None = None) -> None:
        """Take count and sums from the `.idx`.

        With `keep`, only so many entries are known to be synced: what is behind them is a torn
        tail and left out. A crash inside a rewrite leaves an `.idx` that reaches past its `.data`:
        it is built again.
        """
        self._is_proven = True
        size = self.disk.size(self.data_path) if self.tier == "hot" else None
        if size is not None and not self.disk.exists(self.idx_path):
            self._rebuild_idx()
        idx: Buffer = self._pair.idx()
        summary = _summarize(idx, keep)
        if size is not None and summary.data_end > size:
            idx = self._rebuild_idx(entries=len(idx) // IDX_ENTRY_BYTES)
            summary = _summarize(idx, keep)
        self._has_tail = summary.data_end != size or summary.entries * IDX_ENTRY_BYTES != len(idx)
        torn_tail = keep is not None
        if (
            summary.bad_index >= 0
            or (keep is not None and summary.entries < keep)
            or (size is not None and not torn_tail and summary.data_end != size)
        ):
            raise CorruptData(
                f"{self.idx_path} does not fit its records: run topics repair",
                segment=self.idx_path,
            )
        self.count = summary.entries
        self.data_bytes = summary.data_end
        self.live_records = summary.live_records
        self.live_bytes = summary.live_bytes
        self.tagged_records = summary.tagged_records
        self.first_ts, self.last_ts = summary.first_ts, summary.last_ts

    def restore(self, sums: SegmentSums) -> bool:
        """Take count and sums as a stop has saved them; False where the files have other sizes.

        Nobody has opened the directory since. The index is compared with them when it is first
        read: a start with very many segments opens none of them.
        """
        try:
            sizes = self.disk.size(self.data_path), self.disk.size(self.idx_path)
        except FileMissing:
            return False
        if sizes != (sums.data_bytes, sums.count * IDX_ENTRY_BYTES):
            return False
        self.count, self.data_bytes = sums.count, sums.data_bytes
        self.live_records, self.live_bytes = sums.live_records, sums.live_bytes
        self.tagged_records = sums.tagged_records
        self.first_ts, self.last_ts = sums.first_ts, sums.last_ts
        self._is_proven = False
        return True

    def prove(self, idx: Buffer) -> None:
        """Compare the index with the sums that a stop has saved, once."""
        if not self._is_proven:
            with _PROVING:
                self._prove(idx)

    def _prove(self, idx: Buffer) -> None:
        if not self._is_proven:
            found = summarize_idx(idx)
            live = (found.live_records, found.live_bytes, found.first_ts, found.last_ts)
            if (
                found.bad_index >= 0
                or (found.entries, found.data_end) != (self.count, self.data_bytes)
                or live != (self.live_records, self.live_bytes, self.first_ts, self.last_ts)
            ):
                raise CorruptData(
                    f"{self.idx_path} is not what the last stop has left: run topics repair",
                    segment=self.idx_path,
                )
            self._is_proven = True

    def reopen_active(self) -> None:
        """Go on appending after `load` or `restore`, with everything behind it cut off."""
        active = _ActiveFiles(self, None)
        if self._has_tail:
            active.data_file.truncate(self.data_bytes)
            active.idx_file.truncate(self.count * IDX_ENTRY_BYTES)
        self._active = active

    def _rebuild_idx(self, *, entries: int | None = None) -> Buffer:
        """Write the `.idx` anew from the frames of `.data`.

        A rewrite keeps the last frame: if there are fewer entries than before, the file was cut.
        """
        data = self.store.open_data(self.topic_id, self.first_seq).read(
            0, self.disk.size(self.data_path)
        )
        idx, end, whole = index_segment(data, self.first_seq)
        if not whole:
            raise CorruptData(
                f"{self.data_path} is damaged at offset {end}: run topics repair",
                segment=self.data_path,
            )
        if entries is not None and len(idx) != entries * IDX_ENTRY_BYTES:
            raise CorruptData(
                f"{self.data_path} ends before its last records: run topics repair",
                segment=self.data_path,
            )
        write_file(self.disk, self.idx_path, idx)
        self._pair = SealedPair(self)
        return idx


class _ActiveFiles(_Files):
    """The files of an active segment, open while they are used, and its index in memory.

    Thousands of topics may have an active segment each: like maps, their files are closed in turn.
    """

    __slots__ = ("_data", "_entries", "_idx_file")

    def __init__(self, segment: Segment, entries: bytearray | None) -> None:
        super().__init__(segment)
        self._entries = entries
        """The index; read when somebody asks for it if it is not given."""
        self._data: DiskFile | None = None
        self._idx_file: DiskFile | None = None

    def keep(self, data: DiskFile, idx: DiskFile) -> None:
        """Use files that are open already."""
        self._data, self._idx_file = data, idx
        for _ in (data, idx):
            self._segment.maps.opened(self)

    @property
    def was_read(self) -> bool:
        return self._entries is not None

    @property
    def idx(self) -> bytearray:
        entries = self._entries
        return self._read_idx() if entries is None else entries

    @idx.setter
    def idx(self, entries: bytearray) -> None:
        self._entries = entries

    def _read_idx(self) -> bytearray:
        with _READING:
            if self._entries is None:  # nobody changes anything before he has it
                segment = self._segment
                size = segment.count * IDX_ENTRY_BYTES
                entries = bytearray(self.idx_file.read_at(0, size))
                if len(entries) != size:
                    raise CorruptData(
                        f"{segment.idx_path} is cut short: run topics repair",
                        segment=segment.idx_path,
                    )
                segment.prove(entries)
                self._entries = entries
            return self._entries

    @property
    def data_file(self) -> DiskFile:
        file = self._data
        if file is None:
            segment = self._segment
            file = self._data = segment.open_file(segment.data_path, owner=self)
        return file

    @property
    def idx_file(self) -> DiskFile:
        file = self._idx_file
        if file is None:
            segment = self._segment
            file = self._idx_file = segment.open_file(segment.idx_path, owner=self)
        return file

    def release(self) -> None:
        """Let go of the files; whoever still uses one keeps it open until then."""
        self._data = self._idx_file = None


def fitting_stop(idx: Buffer, start: int, stop: int, end_offset: int) -> int:
    """Return the last stop whose frames end at or before `end_offset`, at least start + 1."""
    low, high, middle = start + 1, stop, stop  # most often all of it fits
    while low < high:
        offset, size = _OFFSET_LEN.unpack_from(idx, (middle - 1) * IDX_ENTRY_BYTES)
        if offset + size <= end_offset:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def _summarize(idx: Buffer, keep: int | None) -> IdxSummary:
    view = memoryview(idx)
    return summarize_idx(view if keep is None else view[: keep * IDX_ENTRY_BYTES])
