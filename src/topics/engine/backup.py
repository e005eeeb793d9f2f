"""Copy a directory that is open: segments first, then the log from where the copy began.

    snapshot, hold the log → segments, twice, while writes go on → what grew meanwhile (checkpoints
    wait) → one moment of all shards → the log up to it → snapshot → FORMAT

Keeps: what the copy holds is what a crash at that one moment would have left, with every byte
there; a copy that was not finished cannot be opened. Whatever was deleted or dropped while
segments were copied is on the copied log, and a start applies it again.
"""

from typing import Final

from msgspec.structs import replace

from topics.engine.stores import Stores
from topics.engine.topics.topic import Topic
from topics.errors import BackupExists
from topics.kernel.layout import FLAG_DELETED, IDX_ENTRY, IDX_ENTRY_BYTES
from topics.storage.disk import paths
from topics.storage.disk.data_dir import FORMAT_TEXT, remove_tree, write_file
from topics.storage.disk.disk import Disk, DiskFile
from topics.storage.segments.segment import Segment
from topics.storage.segments.store import COPY_BYTES, DELETED_FLAG, DataReader, RangedData
from topics.storage.snapshots.snapshot import ANY_SEQ, Snapshot, encode_snapshot
from topics.storage.wal.log import Position, list_wal_files, write_current

UNFINISHED: Final = b"topics backup, unfinished\n"
FIRST_SNAPSHOT: Final = 1


class BackupCopy:
    """One backup on its way. Its caller holds what must stand still."""

    def __init__(self, stores: Stores, target: Disk) -> None:
        self._stores = stores
        self._source = stores.hot_disk
        self._target = target
        self._copied: dict[tuple[int, int], int] = {}
        """Per topic and first seq how many records of a segment are there."""
        self.bytes_written = 0
        if any(target.list(directory) for directory in ("", paths.META_DIR)):
            raise BackupExists("there is something in this place already: name a new one")
        for directory in (paths.META_DIR, paths.WAL_DIR, paths.TOPICS_DIR):
            target.make_dir(directory)
        write_file(target, paths.FORMAT, UNFINISHED)

    @property
    def segments(self) -> int:
        return len(self._copied)

    def copy_topic(self, topic: Topic) -> None:
        """Copy what the copy does not have yet of a topic's segments."""
        for segment in topic.segments():
            if self._stores.is_durable(segment):
                self._copy_segment(segment)

    def copy_tag_runs(self, topic: Topic) -> None:
        directory = paths.topic_dir(topic.id)
        for name in self._source.list(directory):
            if paths.parse_tag_run_name(name) is not None:
                self._target.make_dir(directory)
                content = self._source.read(f"{directory}/{name}")
                write_file(self._target, f"{directory}/{name}", content)
                self.bytes_written += len(content)

    def copy_log(self, directory: str, start: Position, end: Position) -> None:
        """Copy the files of one shard, the last one up to `end`."""
        self._target.make_dir(directory)
        for number in list_wal_files(self._source, directory):
            if not start.file <= number <= end.file:
                continue
            path = f"{directory}/{paths.wal_file_name(number)}"
            stop = end.offset if number == end.file else self._source.size(path)
            file = self._target.create(path)
            self._copy_range(RangedData(self._source, path), file, 0, stop)
            file.sync_data()
            file.close()
        write_current(self._target, directory, end.file)

    def finish(self, snapshot: Snapshot) -> None:
        """Make the copy one that can be opened."""
        for topic_id in sorted({topic_id for topic_id, _ in self._copied}):
            self._target.sync_dir(paths.topic_dir(topic_id))
        # Readers of what is copied go on, and may be ahead of a log that is restored from here.
        content = encode_snapshot(replace(snapshot, former_rest=ANY_SEQ, former={}))
        write_file(self._target, paths.snapshot_path(FIRST_SNAPSHOT), content)
        self.bytes_written += len(content)
        write_file(self._target, paths.FORMAT, FORMAT_TEXT)

    def remove(self) -> None:
        """Remove what takes room of an unfinished copy; what is left says that it is none."""
        for directory in (paths.TOPICS_DIR, paths.WAL_DIR):
            remove_tree(self._target, directory)

    def _copy_segment(self, segment: Segment) -> None:
        key = (segment.topic_id, segment.first_seq)
        done, count = self._copied.get(key, 0), segment.count
        if done == count:
            return
        idx = bytes(memoryview(segment.idx())[: count * IDX_ENTRY_BYTES])
        start = _data_end(idx, done)
        new = idx[done * IDX_ENTRY_BYTES :]
        data_file, idx_file = self._open_pair(segment, is_new=not done)
        data = (
            RangedData(self._source, segment.data_path)
            if segment.tier == "hot"
            else segment.store.open_data(*key)
        )
        self._copy_range(data, data_file, start, _data_end(idx, count))
        if segment.tier == "cold":
            # The copy is a hot segment, and the newest deletes of a cold one are in its index only.
            _show_deletes(data_file, new)
        idx_file.write_at(done * IDX_ENTRY_BYTES, [new])
        self.bytes_written += len(new)
        for file in (data_file, idx_file):
            file.sync_data()
            file.close()
        self._copied[key] = count

    def _open_pair(self, segment: Segment, *, is_new: bool) -> tuple[DiskFile, DiskFile]:
        self._target.make_dir(paths.topic_dir(segment.topic_id))
        opener = self._target.create if is_new else self._target.open
        return opener(segment.data_path), opener(segment.idx_path)

    def _copy_range(self, source: DataReader, target: DiskFile, start: int, stop: int) -> None:
        for offset in range(start, stop, COPY_BYTES):
            piece = source.read(offset, min(COPY_BYTES, stop - offset))
            target.write_at(offset, [piece])
            self.bytes_written += len(piece)


def _data_end(idx: bytes, count: int) -> int:
    """Return where the frames of the first `count` entries end; the last one always has a frame."""
    if not count:
        return 0
    offset, size, _, _ = IDX_ENTRY.unpack_from(idx, (count - 1) * IDX_ENTRY_BYTES)
    return int(offset + size)


def _show_deletes(data_file: DiskFile, entries: bytes) -> None:
    for offset, size, _, flags in IDX_ENTRY.iter_unpack(entries):
        if flags & FLAG_DELETED and size:
            data_file.write_at(offset + size - 1, [DELETED_FLAG])
