"""Where sealed segments live: one protocol for a folder today and an object store later.

A store knows segments by (topic id, first seq). It never decides anything about records.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from topics.errors import DiskFailed, DiskFull
from topics.kernel.layout import DELETED_BYTE
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer, Disk

DELETED_FLAG = bytes((DELETED_BYTE,))
IDX_FLAGS_OFFSET = 16
COPY_BYTES = 8 << 20


class DataReader(Protocol):
    """The `.data` of one segment, by range."""

    def read(self, offset: int, size: int) -> Buffer: ...


class SegmentStore(Protocol):
    """A place for sealed segments."""

    def put(self, topic_id: int, first_seq: int, *, data: Buffer, idx: Buffer) -> None:
        """Store both files under their names, whole and durable, or raise and store neither."""

    def open_data(self, topic_id: int, first_seq: int) -> DataReader: ...

    def location(self, topic_id: int, first_seq: int) -> str | None:
        """Return the URI of a segment's `.data`, None where no other process can read it."""

    def read_idx(self, topic_id: int, first_seq: int) -> bytes: ...

    def has(self, topic_id: int, first_seq: int) -> bool:
        """Tell whether both files are there."""

    def mark_deleted(
        self,
        topic_id: int,
        first_seq: int,
        *,
        data_offsets: Sequence[int],
        idx_flags: Sequence[tuple[int, int]],
    ) -> None:
        """Set delete flags: bytes of `.data` by offset, and (offset, flags) of `.idx`.

        Durable on return.
        """

    def remove(self, topic_id: int, first_seq: int) -> None:
        """Remove both files, durably; fine where there are none."""

    def list(self, topic_id: int) -> list[int]:
        """Return the first seqs of the segments there, ascending."""

    def remove_topic(self, topic_id: int) -> None:
        """Remove all files of a topic."""


class MappedData:
    """Reads from a memory map: for local disks."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def read(self, offset: int, size: int) -> Buffer:
        return self._view[offset : offset + size]


class RangedData:
    """Reads by `pread`, which lets other threads run: for slow disks."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._file = disk.open(path)

    def read(self, offset: int, size: int) -> Buffer:
        return self._file.read_at(offset, size)


class FolderStore:
    """Segments as files of a disk."""

    def __init__(self, disk: Disk, *, mapped: bool) -> None:
        self._disk = disk
        self._mapped = mapped

    def put(self, topic_id: int, first_seq: int, *, data: Buffer, idx: Buffer) -> None:
        self._disk.make_dir(paths.topic_dir(topic_id))
        targets = (
            (paths.segment_data_path(topic_id, first_seq), data),
            (paths.segment_idx_path(topic_id, first_seq), idx),
        )
        try:
            for path, content in targets:
                self._write_whole(path + paths.TEMPORARY_SUFFIX, content)
        except DiskFull:
            for path, _ in targets:
                with suppress(DiskFailed):
                    self._disk.unlink(path + paths.TEMPORARY_SUFFIX)
            raise
        for path, _ in targets:
            self._disk.rename(path + paths.TEMPORARY_SUFFIX, path)
        self._disk.sync_dir(paths.topic_dir(topic_id))

    def open_data(self, topic_id: int, first_seq: int) -> DataReader:
        path = paths.segment_data_path(topic_id, first_seq)
        return MappedData(self._disk.map(path)) if self._mapped else RangedData(self._disk, path)

    def location(self, topic_id: int, first_seq: int) -> str | None:
        return self._disk.location(paths.segment_data_path(topic_id, first_seq))

    def read_idx(self, topic_id: int, first_seq: int) -> bytes:
        return self._disk.read(paths.segment_idx_path(topic_id, first_seq))

    def has(self, topic_id: int, first_seq: int) -> bool:
        return self._disk.exists(
            paths.segment_data_path(topic_id, first_seq)
        ) and self._disk.exists(paths.segment_idx_path(topic_id, first_seq))

    def mark_deleted(
        self,
        topic_id: int,
        first_seq: int,
        *,
        data_offsets: Sequence[int],
        idx_flags: Sequence[tuple[int, int]],
    ) -> None:
        data = self._disk.open(paths.segment_data_path(topic_id, first_seq))
        for offset in data_offsets:
            data.write_at(offset, [DELETED_FLAG])
        data.sync_data()
        data.close()
        idx = self._disk.open(paths.segment_idx_path(topic_id, first_seq))
        for offset, flags in idx_flags:
            idx.write_at(offset, [bytes((flags,))])
        idx.sync_data()
        idx.close()

    def remove(self, topic_id: int, first_seq: int) -> None:
        pair = (
            paths.segment_data_path(topic_id, first_seq),
            paths.segment_idx_path(topic_id, first_seq),
        )
        there = [path for path in pair if self._disk.exists(path)]
        for path in there:
            self._disk.unlink(path)
        if there:
            self._disk.sync_dir(paths.topic_dir(topic_id))

    def list(self, topic_id: int) -> list[int]:
        parsed = map(paths.parse_segment_name, self._disk.list(paths.topic_dir(topic_id)))
        return sorted(found[0] for found in parsed if found is not None and found[1] == "data")

    def remove_topic(self, topic_id: int) -> None:
        directory = paths.topic_dir(topic_id)
        for name in self._disk.list(directory):
            self._disk.unlink(f"{directory}/{name}")
        self._disk.remove_dir(directory)

    def _write_whole(self, path: str, content: Buffer) -> None:
        file = self._disk.create(path)
        view = memoryview(content)
        for offset in range(0, len(view), COPY_BYTES):
            file.write_at(offset, [view[offset : offset + COPY_BYTES]])
        file.sync_data()
        file.close()
