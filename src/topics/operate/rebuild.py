"""Write what was salvaged of a topic as fresh segments, seqs kept.

    piece → frames in segment layout + index → deletes applied → live frames → segments

Deleted records are left out for good: a fresh segment looks like one that was just rewritten. A
segment ends where seqs are lost. Keeps: one segment in memory at a time; without a disk everything
is done but the writing.
"""

from typing import Final

from topics.engine.diff import kernel_match
from topics.kernel import (
    FLAG_DELETED,
    IDX_ENTRY_BYTES,
    SEGMENT_LAYOUT,
    count_live,
    first_live,
    frames_to_segment,
    index_frames,
    index_segment,
    match_tags,
)
from topics.kernel.layout import SEGMENT_HEADER, WAL_HEADER
from topics.operate.frames import ENTRY, Stretch, matching_flags, odd_frames
from topics.operate.ranges import Range
from topics.operate.salvage import HOT, WAL, Piece
from topics.operate.source import Source, read_source
from topics.operate.state import TopicFacts
from topics.storage.disk import paths
from topics.storage.disk.data_dir import write_file
from topics.storage.disk.disk import Buffer, Disk
from topics.storage.segments.segment import fitting_stop
from topics.storage.segments.store import IDX_FLAGS_OFFSET
from topics.storage.wal.frame import Delete

SEGMENT_RECORDS: Final = 10_000
SEGMENT_BYTES: Final = 64 << 20


class SegmentWriter:
    """Turns live frames of one topic, in seq order, into segments."""

    def __init__(self, disk: Disk | None, topic_id: int) -> None:
        self._disk = disk
        self._topic_id = topic_id
        self._first_seq = 0
        self._last_seq = 0
        self._parts: list[bytes] = []
        self._size = 0
        self.spans: list[Range] = []
        self.records = 0
        self.last_ts = 0
        if disk is not None:
            disk.make_dir(paths.topic_dir(topic_id))

    def add(self, data: Buffer, idx: Buffer, *, base_seq: int, start: int, stop: int) -> None:
        """Take the live ones of entries [start, stop); entry i is seq `base_seq + i`."""
        while (start := first_live(idx, start, stop)) < stop:
            offset, _, ts, _ = ENTRY.unpack_from(idx, start * IDX_ENTRY_BYTES)
            if not self._takes(base_seq + start, ts):
                self.flush()
                self._first_seq = base_seq + start
            end = min(stop, self._first_seq + SEGMENT_RECORDS - base_seq)
            end = fitting_stop(idx, start, end, offset + SEGMENT_BYTES - self._size)
            self._take(data, idx, start, end)
            last = end - 1
            while ENTRY.unpack_from(idx, last * IDX_ENTRY_BYTES)[3] & FLAG_DELETED:
                last -= 1
            self._last_seq = base_seq + last
            self.last_ts = max(self.last_ts, ENTRY.unpack_from(idx, last * IDX_ENTRY_BYTES)[2])
            start = end

    def flush(self) -> None:
        """Finish the segment: what comes next does not follow it."""
        if not self._parts:
            return
        data = b"".join(self._parts)
        idx, _, whole = index_segment(data, self._first_seq)
        assert whole, "only intact frames are copied"
        if self._disk is not None:
            write_file(self._disk, paths.segment_data_path(self._topic_id, self._first_seq), data)
            write_file(self._disk, paths.segment_idx_path(self._topic_id, self._first_seq), idx)
        self.spans.append((self._first_seq, self._last_seq))
        self._parts, self._size = [], 0

    def _takes(self, seq: int, ts: int) -> bool:
        return (
            bool(self._parts)
            and self._last_seq < seq < self._first_seq + SEGMENT_RECORDS
            and self._size < SEGMENT_BYTES
            and ts >= self.last_ts
        )

    def _take(self, data: Buffer, idx: Buffer, start: int, stop: int) -> None:
        live, _ = count_live(idx, start, stop)
        self.records += live
        entries = memoryview(idx)[start * IDX_ENTRY_BYTES : stop * IDX_ENTRY_BYTES]
        if live == stop - start:
            offset = ENTRY.unpack_from(entries, 0)[0]
            last, size, _, _ = ENTRY.unpack_from(entries, len(entries) - IDX_ENTRY_BYTES)
            parts = [bytes(data[offset : last + size])]
        else:
            parts = [
                bytes(data[offset : offset + size])
                for offset, size, _, flags in ENTRY.iter_unpack(entries)
                if not flags & FLAG_DELETED
            ]
        self._parts += parts
        self._size += sum(map(len, parts))


class Copier:
    """Copies the planned pieces of one topic; keeps the last file it has read."""

    def __init__(self, tiers: dict[int, Disk]) -> None:
        self._tiers = tiers
        self._open: tuple[int, str] = (0, "")
        self._source: Source | None = None
        self.notes: list[str] = []

    def copy(self, facts: TopicFacts, plan: list[Piece], writer: SegmentWriter) -> None:
        following = 0
        indexes = _indexes(self._tiers[HOT], facts.id)
        for piece in plan:
            if piece.first_seq != following:
                writer.flush()
            following = piece.last_seq + 1
            data, idx, base_seq = self._load(piece)
            if piece.flags_may_lag:
                stretch = Stretch(facts.id, base_seq, piece.start, piece.end, idx)
                self._apply_flags(stretch, indexes)
            start, stop = piece.first_seq - base_seq, piece.last_seq + 1 - base_seq
            for body in facts.deletes:
                _apply_delete(data, idx, body, base_seq=base_seq, start=start, stop=stop)
            for seq in range(piece.first_seq, piece.last_seq + 1) if facts.done_seqs else ():
                if seq in facts.done_seqs:
                    idx[(seq - base_seq) * IDX_ENTRY_BYTES + IDX_FLAGS_OFFSET] |= FLAG_DELETED
            writer.add(data, idx, base_seq=base_seq, start=start, stop=stop)
        writer.flush()

    def _read(self, rank: int, path: str) -> Buffer:
        if self._open != (rank, path):
            self._source = read_source(self._tiers[HOT if rank == WAL else rank], path)
            self._open = (rank, path)
        assert self._source is not None, "the original is locked: nothing in it moves"
        return self._source.data

    def _load(self, piece: Piece) -> tuple[Buffer, bytearray, int]:
        """Return frames in segment layout, their index, and the seq of the first entry."""
        view = memoryview(self._read(piece.rank, piece.path))[piece.start : piece.end]
        if piece.rank == WAL:
            base_seq: int = WAL_HEADER.unpack_from(view, 0)[4]
            entries = index_frames(view, 0, len(view))
            data, idx = frames_to_segment(
                [(view, entries, 0, len(entries) // IDX_ENTRY_BYTES)], base=0
            )
            return data, idx, base_seq
        base_seq = SEGMENT_HEADER.unpack_from(view, 0)[3]
        idx, _, _ = index_segment(view, base_seq)
        return _with_sound_flags(view, idx), idx, base_seq

    def _apply_flags(self, stretch: Stretch, indexes: list[int]) -> None:
        """Delete in a cold copy what the hot indexes of these very frames call deleted."""
        told = 0
        for first_seq in indexes:
            if first_seq > stretch.last_seq:
                break
            path = paths.segment_idx_path(stretch.topic_id, first_seq)
            entries = self._tiers[HOT].size(path) // IDX_ENTRY_BYTES
            if first_seq + entries <= stretch.first_seq:
                continue
            source = read_source(self._tiers[HOT], path)
            found = matching_flags(source.data, stretch, first_seq=first_seq) if source else []
            told += len(found)
            for seq, flags in found:
                at = (seq - stretch.first_seq) * IDX_ENTRY_BYTES + IDX_FLAGS_OFFSET
                stretch.idx[at] |= flags & FLAG_DELETED
        if told < stretch.entries:
            self.notes.append(
                f"topic {stretch.topic_id}, seqs {stretch.first_seq} to {stretch.last_seq}: the "
                "hot index of a cold segment is damaged: deletes that only it knew may be undone"
            )


def _indexes(disk: Disk, topic_id: int) -> list[int]:
    """Return the first seq of every `.idx` of a topic, in order."""
    parsed = map(paths.parse_segment_name, disk.list(paths.topic_dir(topic_id)))
    return sorted(found[0] for found in parsed if found and found[1] == "idx")


def _with_sound_flags(view: memoryview, idx: bytearray) -> Buffer:
    """Return the frames with every delete flag either live or deleted."""
    topic_id: int = SEGMENT_HEADER.unpack_from(view, 0)[2]
    odd = odd_frames(view, idx, topic_id=topic_id)
    if not odd:
        return view
    data = bytearray(view)
    for i in odd:
        offset, size, _, _ = ENTRY.unpack_from(idx, i * IDX_ENTRY_BYTES)
        data[offset + size - 1] = 0
    return data


def _apply_delete(
    data: Buffer, idx: bytearray, body: Delete, *, base_seq: int, start: int, stop: int
) -> None:
    wanted = kernel_match(body.match)
    end_seq = min(body.before_seq or body.upto_seq + 1, body.upto_seq + 1)
    stop = min(stop, end_seq - base_seq)
    if wanted is None or stop <= start:
        return
    found = match_tags(
        data, idx, base=0, layout=SEGMENT_LAYOUT, start=start, stop=stop, match=wanted
    )
    for i in found:
        idx[i * IDX_ENTRY_BYTES + IDX_FLAGS_OFFSET] |= FLAG_DELETED
