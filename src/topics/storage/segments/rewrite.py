"""Give the space of deleted records back: the same segment without their frames.

Keeps: every seq keeps its entry, every live frame its bytes. The new `.data` is durable under its
name before the new `.idx` is renamed, so a crash leaves either pair or an `.idx` that is built
again (see `Segment.load`). A cold segment comes back to the hot tier by it, under the same rules: a
start takes the hot `.data` where there is one, whatever the log says of the cold tier.
"""

from topics.errors import DiskFailed, TooManyFiles
from topics.kernel import index_segment
from topics.kernel.layout import FLAG_DELETED, IDX_ENTRY, IDX_ENTRY_BYTES
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import Segment
from topics.storage.segments.store import DELETED_FLAG, IDX_FLAGS_OFFSET, SegmentStore


def plan_live_frames(idx: Buffer) -> list[tuple[int, int]]:
    """Return the byte ranges of `.data` to keep, neighbours joined.

    The last record always stays.
    """
    kept: list[tuple[int, int]] = []
    last = len(idx) // IDX_ENTRY_BYTES - 1
    for i, (offset, size, _, flags) in enumerate(IDX_ENTRY.iter_unpack(idx)):
        if size == 0 or (flags & FLAG_DELETED and i != last):
            continue
        if kept and kept[-1][1] == offset:
            kept[-1] = (kept[-1][0], offset + size)
        else:
            kept.append((offset, offset + size))
    return kept


class Rewrite:
    """One rewrite: `prepare` and `settle` work without the lock, `finish` swaps with it."""

    def __init__(self, segment: Segment, *, home: SegmentStore | None = None) -> None:
        """Take a sealed segment; a cold one comes back to `home`, the hot store."""
        assert segment.sealed
        assert segment.tier == "hot" or home is not None
        self._segment = segment
        self._home = home
        self._idx = bytearray()

    def prepare(self) -> None:
        """Write the new pair beside the old one."""
        segment = self._segment
        segment.marked_since = set()
        view = segment.view(0, segment.count)
        idx = bytes(view.idx)
        buffer = memoryview(view.buffer)
        data = b"".join(buffer[a - view.base : b - view.base] for a, b in plan_live_frames(idx))
        if idx[IDX_FLAGS_OFFSET - IDX_ENTRY_BYTES] & FLAG_DELETED:
            data = data[:-1] + DELETED_FLAG  # a cold copy may not show it yet; the entries count
        self._idx, _, whole = index_segment(data, segment.first_seq)
        assert whole, "a rewrite reads only what a checkpoint has synced"
        _keep_times(self._idx, idx)
        self._write(segment.data_path, data)
        self._write(segment.idx_path, self._idx)

    def finish(self) -> None:
        """Carry over what was deleted meanwhile and put the new pair in place.

        `TooManyFiles` says that no name was changed.
        """
        segment = self._segment
        self.carry_over(self.take_marked())
        segment.pin()
        segment.marked_since = None
        try:
            self._swap()
        except TooManyFiles as error:
            raise DiskFailed(str(error)) from error

    def _swap(self) -> None:
        segment, disk = self._segment, self._segment.disk
        disk.rename(segment.data_path + paths.TEMPORARY_SUFFIX, segment.data_path)
        disk.sync_dir(paths.topic_dir(segment.topic_id))
        disk.rename(segment.idx_path + paths.TEMPORARY_SUFFIX, segment.idx_path)
        if self._home is not None:
            segment.move_to_hot(self._home)
        segment.reload()

    def settle(self) -> None:
        """Make the new names durable; no lock is needed: until then a start builds the index."""
        try:
            self._segment.disk.sync_dir(paths.topic_dir(self._segment.topic_id))
        except TooManyFiles as error:
            raise DiskFailed(str(error)) from error

    def abandon(self) -> None:
        """Leave the segment as it is."""
        segment, disk = self._segment, self._segment.disk
        segment.marked_since = None
        for path in (segment.data_path, segment.idx_path):
            if disk.exists(path + paths.TEMPORARY_SUFFIX):
                disk.unlink(path + paths.TEMPORARY_SUFFIX)

    def take_marked(self) -> list[int]:
        """Return what was deleted since the last time, or since `prepare`; the lock is held."""
        segment = self._segment
        marked, segment.marked_since = segment.marked_since or set(), set()
        return sorted(marked)

    def carry_over(self, indexes: list[int]) -> None:
        """Delete in the new files, synced, what was deleted in the old ones."""
        if not indexes:
            return
        disk = self._segment.disk
        data = disk.open(self._segment.data_path + paths.TEMPORARY_SUFFIX)
        idx = disk.open(self._segment.idx_path + paths.TEMPORARY_SUFFIX)
        for i in indexes:
            offset, size, ts, flags = IDX_ENTRY.unpack_from(self._idx, i * IDX_ENTRY_BYTES)
            entry = IDX_ENTRY.pack(offset, size, ts, flags | FLAG_DELETED)
            idx.write_at(i * IDX_ENTRY_BYTES, [entry])
            if size:
                # Else its frame was dropped: `prepare` had already seen the delete.
                data.write_at(offset + size - 1, [DELETED_FLAG])
        data.sync_data()
        idx.sync_data()

    def _write(self, path: str, content: Buffer) -> None:
        file = self._segment.disk.create(path + paths.TEMPORARY_SUFFIX)
        file.write_at(0, [content])
        file.sync_data()
        file.close()


def _keep_times(new: bytearray, old: bytes) -> None:
    """Give dropped records their own times back, which their frames no longer tell."""
    for i in range(len(new) // IDX_ENTRY_BYTES):
        at = i * IDX_ENTRY_BYTES + 8
        new[at : at + 8] = old[at : at + 8]
