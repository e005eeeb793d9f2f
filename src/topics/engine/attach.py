"""Judge segments that others have built: only what the engine could have written is let in.

    hash of each file → every frame and its entry → topic id, text and JSON of each record

Keeps: what passes is dense from seq 1 on, in order of time, without deleted records, and each of
its records could have been appended. Reads only; `Uploads` moves files.
Reference: docs/reference/uploads.md.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec import Raw

from topics.errors import FileMissing, RecordTooLarge, RequestError
from topics.kernel import IdxSummary, index_segment, summarize_idx, xxh3_64
from topics.kernel.layout import (
    FLAG_DURABLE,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    IDX_ENTRY,
    SEGMENT_HEADER,
    U32,
)
from topics.limits import Limits
from topics.model.uploads import BuiltSegment
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk

_KNOWN_FLAGS = FLAG_TAG | FLAG_NODE | FLAG_META | FLAG_DURABLE
_CHECK_JSON = msgspec.json.Decoder(Raw).decode
_CHECK_META = msgspec.json.Decoder(dict[str, Raw]).decode


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
    _check_records(data, idx, name=name, topic_id=topic_id, limits=limits)
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


def _check_records(
    data: memoryview, idx: memoryview, *, name: str, topic_id: int, limits: Limits
) -> None:
    for i, (offset, size, _, _) in enumerate(IDX_ENTRY.iter_unpack(idx)):
        _, flags, found_id, _, _, node_len, tag_len, _ = SEGMENT_HEADER.unpack_from(data, offset)
        if found_id != topic_id or flags & ~_KNOWN_FLAGS:
            raise RequestError(f"record {i} of {name} is of topic {found_id}, flags {flags}")
        node_at = offset + SEGMENT_HEADER.size
        tag_at, data_at = node_at + node_len, node_at + node_len + tag_len
        payload = bytes(data[data_at : offset + size - 9])
        try:
            node, tag = data[node_at:tag_at], data[tag_at:data_at]
            _check_text(node, has=flags & FLAG_NODE, max_bytes=limits.max_node_bytes)
            _check_text(tag, has=flags & FLAG_TAG, max_bytes=limits.max_tag_bytes)
            _check_payload(payload, flags, limits)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise RequestError(f"record {i} of {name} cannot be read: {error}") from None


def _check_text(text: memoryview, *, has: int, max_bytes: int) -> None:
    if (len(text) and not has) or len(text) > max_bytes:
        raise ValueError("its node or tag is over the limit, or has no flag")
    str(text, "utf-8")


def _check_payload(payload: bytes, flags: int, limits: Limits) -> None:
    if len(payload) > limits.max_record_bytes + U32.size:
        raise RecordTooLarge(f"a record may have {limits.max_record_bytes} bytes")
    meta = b""
    if flags & FLAG_META:
        (data_len,) = U32.unpack(payload[: U32.size])
        payload, meta = payload[U32.size :][:data_len], payload[U32.size + data_len :]
        if len(meta) > limits.max_meta_bytes:
            raise ValueError("its meta is over the limit")
        _CHECK_META(meta)
    str(payload + meta, "utf-8")
    _CHECK_JSON(payload)
