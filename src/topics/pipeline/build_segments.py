"""Rows to sealed segments, on an executor: the kernel makes frames of whole batches.

Keeps: no Python object is made for a record. A segment appears under its name whole: an attempt
writes under a name of its own, so that two attempts of one task never share a file.
Reference: docs/reference/uploads.md.
"""

import socket
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from msgspec import Struct
from xxhash import xxh3_64

from topics.errors import BadRow, OptionError, RequestError
from topics.kernel import Column, Columns, encode_columns
from topics.limits import Limits
from topics.model.uploads import BuiltSegment
from topics.pipeline.local_files import file_exists, parse_file_uri
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer, DiskFile
from topics.storage.disk.local_disk import LocalDisk

SEGMENT_BYTES: Final = 64 << 20
_LIMITS: Final = Limits()
_FRAME_BYTES: Final = 64
"""What a frame and its entry take beside their texts."""


class Target(Struct, frozen=True, kw_only=True):
    """Where the segments of one task go, and what their frames say."""

    directory: str
    """The `file:` URI that the server gave."""
    topic_id: int
    first_seq: int
    ts: int
    """The time of all rows, where they have none of their own."""
    attempt: str
    segment_bytes: int = SEGMENT_BYTES


def build_segments(found: Iterable[Columns], target: Target) -> Iterator[BuiltSegment]:
    """Build the segments of one task, in the order of its rows."""
    builder = _Builder(target)
    for columns in found:
        yield from builder.add(columns)
    yield from builder.finish()


class _Builder:
    """The segment that is being built."""

    def __init__(self, target: Target) -> None:
        path = parse_file_uri(target.directory)
        if not file_exists(path):
            raise OptionError(
                f"{path} is not there on {socket.gethostname()}: segments are built in the data "
                "directory of the server; run executors there, or share the directory with them"
            )
        # From the root: a directory that the server removes meanwhile must not come back.
        self._disk = LocalDisk("/", name="/")
        self._directory = path.strip("/")
        self._target = target
        self._next_seq = target.first_seq
        self._begin()

    def _begin(self) -> None:
        self._first_seq = self._next_seq
        self._bytes = 0
        self._data = self._open(paths.segment_data_name(self._first_seq))
        self._idx = self._open(paths.segment_idx_name(self._first_seq))

    def _open(self, name: str) -> "_Growing":
        return _Growing(self._disk, f"{self._directory}/{name}", self._target.attempt)

    def add(self, columns: Columns) -> Iterator[BuiltSegment]:
        """Take rows in; yields the segment before them when it is full."""
        expected = _expected(columns)
        room = self._target.segment_bytes
        if self._bytes and self._bytes + expected > room:
            yield from self.finish()
        step = max(1, columns.count * room // max(expected, 1))
        for start in range(0, columns.count, step):
            if start:
                yield from self.finish()
            self._add(columns, start, min(start + step, columns.count))

    def _add(self, columns: Columns, start: int, stop: int) -> None:
        try:
            data, idx = encode_columns(
                columns,
                start=start,
                stop=stop,
                topic_id=self._target.topic_id,
                first_seq=self._next_seq,
                base=self._bytes,
                max_record_bytes=_LIMITS.max_record_bytes,
                max_meta_bytes=_LIMITS.max_meta_bytes,
                max_tag_bytes=_LIMITS.max_tag_bytes,
                max_node_bytes=_LIMITS.max_node_bytes,
            )
        except RequestError as error:
            before = self._next_seq - self._target.first_seq - start
            raise BadRow(f"behind row {before} of task {self._target.attempt}: {error}") from None
        self._data.write(data)
        self._idx.write(idx)
        self._bytes += len(data)
        self._next_seq += stop - start

    def finish(self) -> Iterator[BuiltSegment]:
        """Give what there is its name."""
        if not self._bytes:
            return
        yield BuiltSegment(
            first_seq=self._first_seq,
            last_seq=self._next_seq - 1,
            bytes=self._bytes,
            xxh3_data=self._data.finish(),
            xxh3_idx=self._idx.finish(),
        )
        self._begin()


class _Growing:
    """A file written piece by piece under a name of its own, opened at its first byte."""

    def __init__(self, disk: LocalDisk, name: str, attempt: str) -> None:
        self._disk = disk
        self._name = name
        self._own_name = f"{name}.{attempt}{paths.TEMPORARY_SUFFIX}"
        self._file: DiskFile | None = None
        self._bytes = 0
        self._hash = xxh3_64()

    def write(self, content: Buffer) -> None:
        if self._file is None:
            self._file = self._disk.create(self._own_name)
        self._file.write_at(self._bytes, [content])
        self._hash.update(content)
        self._bytes += len(content)

    def finish(self) -> str:
        """Give the file its name; return its XXH3.

        The server syncs it too, for nothing is built on a builder's word; here many do at a time.
        """
        assert self._file is not None
        self._file.sync_data()
        self._file.close()
        self._disk.rename(self._own_name, self._name)
        return self._hash.hexdigest()


def _expected(columns: Columns) -> int:
    """Say about how many bytes the frames will take."""
    parts = (columns.data, columns.meta, columns.tag, columns.node)
    return columns.count * _FRAME_BYTES + sum(len(part.heap) for part in parts if part is not None)


def to_columns(batch: pa.RecordBatch, *, ts: int) -> Columns:
    """See a batch as the kernel does; without a column of times all rows have `ts`."""
    names = batch.schema.names
    return Columns(
        batch.num_rows,
        b"",
        _times(batch.column("ts")) if "ts" in names else ts.to_bytes(8, "little") * len(batch),
        *(
            _texts(batch.column(name)) if name in names else None
            for name in ("data", "meta", "tag", "node")
        ),
    )


def _times(column: pa.Array) -> bytes:
    if column.null_count:
        raise BadRow("a row has no time, or one that cannot be read: load without times")
    millis = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    return _content(_aligned(millis).buffers()[1], len(millis) * 8)


def _texts(column: pa.Array) -> Column:
    texts = _aligned(column.cast(pa.string()))
    validity, offsets, heap = texts.buffers()
    return Column(
        _content(offsets, (len(texts) + 1) * 4),
        b"" if heap is None else heap.to_pybytes(),
        b"" if validity is None or not texts.null_count else validity.to_pybytes(),
        texts.null_count,
    )


def _content(buffer: pa.Buffer, size: int) -> bytes:
    content: bytes = buffer.slice(0, size).to_pybytes()
    return content


def _aligned(column: pa.Array) -> pa.Array:
    """Begin at the first byte of its buffers: a slice does not."""
    return column if column.offset == 0 else pa.concat_arrays([column])
