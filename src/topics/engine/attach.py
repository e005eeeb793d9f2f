"""Judge segments that others have built: only what the engine could have written is let in.

    hash of each file → every frame and its entry → topic id, text and JSON of each record

Keeps: what passes is dense from seq 1 on, in order of time, without deleted records, and each of
its records could have been appended. Reads only, in the kernel; `Uploads` moves files.
Reference: docs/reference/uploads.md.
"""

from collections.abc import Sequence
from itertools import pairwise

from topics.errors import FileMissing, RequestError
from topics.kernel import IdxSummary, check_records, index_segment, summarize_idx, xxh3_64
from topics.limits import Limits
from topics.model.uploads import BuiltSegment
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk


def check_order(segments: Sequence[BuiltSegment]) -> None:
    """Refuse ranges that leave a seq out or name one twice."""
    seq = 1
    for segment in segments:
        if segment.first_seq != seq or segment.last_seq < seq:
            raise RequestError(
                f"segments must follow each other from seq 1 on: expected one that begins at {seq}"
            )
        seq = segment.last_seq + 1


def check_segment(
    disk: Disk, directory: str, segment: BuiltSegment, *, topic_id: int, limits: Limits
) -> IdxSummary:
    """Read a pair of files as if every byte of them could be wrong."""
    name = paths.segment_data_name(segment.first_seq)
    data = _read(disk, f"{directory}/{name}", segment.xxh3_data)
    idx = _read(disk, f"{directory}/{paths.segment_idx_name(segment.first_seq)}", segment.xxh3_idx)
    if len(data) != segment.bytes:
        raise RequestError(f"{name} has {len(data)} bytes, not {segment.bytes}")
    found, end, whole = index_segment(data, segment.first_seq)
    if not whole:
        raise RequestError(f"{name} has no whole frame of the next seq at byte {end}")
    if found != idx:
        raise RequestError(f"the .idx of {name} is not that of its frames")
    summary = summarize_idx(idx)
    count = segment.last_seq - segment.first_seq + 1
    if summary.bad_index >= 0 or summary.entries != count or summary.live_records != count:
        raise RequestError(f"{name} does not hold {count} live records in the order of their times")
    try:
        check_records(
            data,
            idx,
            topic_id=topic_id,
            max_record_bytes=limits.max_record_bytes,
            max_meta_bytes=limits.max_meta_bytes,
            max_tag_bytes=limits.max_tag_bytes,
            max_node_bytes=limits.max_node_bytes,
        )
    except RequestError as error:
        raise RequestError(f"{name}: {error}") from None
    return summary


def check_times(summaries: Sequence[IdxSummary]) -> None:
    """Refuse a time that steps back from one segment to the next."""
    for before, after in pairwise(summaries):
        if after.first_ts < before.last_ts:
            raise RequestError(f"time steps back from {before.last_ts} to {after.first_ts}")


def _read(disk: Disk, path: str, digest: str) -> memoryview:
    try:
        content = disk.map(path)
    except FileMissing:
        raise RequestError(f"{path} is not there") from None
    if f"{xxh3_64(content):016x}" != digest:
        raise RequestError(f"{path} is not the file that was announced: its XXH3 differs")
    return content
