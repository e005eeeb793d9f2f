"""Records that the WAL holds and no segment does yet: the newest part of a topic, in memory."""

import struct
from array import array

from topics.kernel import IDX_ENTRY_BYTES, WAL_LAYOUT, Batch, delete_entries, shift_idx
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import View

_TS = struct.Struct("<Q")
_TS_OFFSET = 8
GROW_BYTES = 256 * 1024
GROW_BATCH_BYTES = 20 * 1024


class Chunk:
    """WAL frames of one dense range of seqs, with their index entries.

    Small writes are gathered into one chunk, so that a reader near the head touches few of them.
    """

    __slots__ = ("_idx", "changed", "count", "durable", "first_seq", "frames", "taken")
    layout = WAL_LAYOUT

    def __init__(
        self, first_seq: int, *, count: int, frames: Buffer, idx: bytearray, durable: bool
    ) -> None:
        self.first_seq = first_seq
        self.count = count
        self.frames = frames
        self._idx = idx
        self.durable = durable
        """In the WAL; else in memory only."""
        self.taken = False
        """A checkpoint has begun to copy it: it grows no more."""
        self.changed: list[array[int]] = []
        """Seqs that were deleted after a checkpoint had taken it."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    @property
    def size(self) -> int:
        return len(self.frames)

    @property
    def in_memory(self) -> bool:
        """Tell whether the frames are our own copy, and not a view of a WAL file."""
        return isinstance(self.frames, bytearray)

    @property
    def first_ts(self) -> int:
        return self._ts(0)

    @property
    def last_ts(self) -> int:
        return self._ts(self.count - 1)

    def idx(self) -> Buffer:
        return self._idx

    def view(self, start: int, stop: int, *, max_bytes: int | None = None) -> View:  # noqa: ARG002
        """Return entries [start, stop) with all bytes of the chunk: they are in memory anyway."""
        part = memoryview(self._idx)[start * IDX_ENTRY_BYTES : stop * IDX_ENTRY_BYTES]
        return View(bytes(part), self.frames, 0)

    def grow(self, batch: Batch, first_seq: int, *, durable: bool) -> bool:
        """Take a small batch in that follows; False where this cannot be."""
        frames = self.frames
        base = len(frames)
        if (
            len(batch.frames) > GROW_BATCH_BYTES
            or self.taken
            or durable != self.durable
            or first_seq != self.first_seq + self.count
            or base + len(batch.frames) > GROW_BYTES
            or not isinstance(frames, bytearray)
        ):
            return False
        try:
            frames += batch.frames
        except BufferError:  # a reader looks at the bytes right now
            return False
        shift_idx(batch.idx, base)
        try:
            self._idx += batch.idx
        except BufferError:
            self._idx = self._idx + batch.idx
        self.count += batch.count
        return True

    def mark_deleted(self, seqs: "array[int]") -> tuple[int, int]:
        """Set delete flags; return how many records and bytes were live before."""
        dead, size = delete_entries(self._idx, seqs, self.first_seq)
        if self.taken and dead:
            self.changed.append(dead)
        return len(dead), size

    def _ts(self, index: int) -> int:
        ts: int = _TS.unpack_from(self._idx, index * IDX_ENTRY_BYTES + _TS_OFFSET)[0]
        return ts
