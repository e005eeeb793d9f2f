"""Segments as a bulk loader builds them: pairs of files that `attach` takes.

Meant for tests of whatever loads in bulk; records are given as a write's are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from topics.config import ServerConfig
from topics.engine.request import build_write
from topics.kernel import frames_to_segment, stamp_batch, xxh3_64
from topics.model.uploads import BuiltSegment
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer, Disk


class Built(NamedTuple):
    """One segment: what is said of it, and its two files."""

    segment: BuiltSegment
    data: Buffer
    idx: Buffer

    def files(self) -> Iterator[tuple[str, Buffer]]:
        yield paths.segment_data_name(self.segment.first_seq), self.data
        yield paths.segment_idx_name(self.segment.first_seq), self.idx


def build_segment(
    records: Sequence[Mapping[str, Any]],
    *,
    topic_id: int,
    first_seq: int,
    ts: int,
    dead_letters: bool = False,
) -> Built:
    """Make one segment of records that all have one time."""
    batch = build_write(records, ServerConfig(), dead_letters=dead_letters).batch
    stamp_batch(batch, topic_id=topic_id, first_seq=first_seq, ts=ts, flags=0)
    data, idx = frames_to_segment([(batch.frames, batch.idx, 0, batch.count)], base=0)
    return describe(data, idx, first_seq=first_seq, last_seq=first_seq + batch.count - 1)


def describe(data: Buffer, idx: Buffer, *, first_seq: int, last_seq: int) -> Built:
    """Say of two files what their builder has to say."""
    segment = BuiltSegment(
        first_seq=first_seq,
        last_seq=last_seq,
        bytes=len(data),
        xxh3_data=f"{xxh3_64(data):016x}",
        xxh3_idx=f"{xxh3_64(idx):016x}",
    )
    return Built(segment, data, idx)


def stage(disk: Disk, upload: str, built: Sequence[Built]) -> list[BuiltSegment]:
    """Put files where an upload gathers them; nothing is synced, as with any other process."""
    for one in built:
        for name, content in one.files():
            file = disk.create(f"{paths.upload_dir(upload)}/{name}")
            file.write_at(0, [content])
            file.close()
    return [one.segment for one in built]
