"""Frames of one topic, on their way to become frames of another."""

from topics.errors import CorruptData
from topics.kernel.layout import (
    FLAG_DELETED,
    FRAME_APPEND,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    IDX_FLAGS,
    SIZE_BYTES,
    U32_MAX,
    U64,
    U64_MAX,
    WAL_HEADER,
    Buffer,
    Match,
)
from topics.kernel.pure.frame import open_view
from topics.kernel.pure.project import Source, check_match, frame_at, tag_matches

_FIELDS_BYTES = WAL_HEADER.size - SIZE_BYTES - 2
"""From topic to lengths: the same in both layouts."""


def copy_frames(
    buffer: Buffer,
    idx: Buffer,
    *,
    base: int,
    layout: int,
    first_seq: int,
    match: Match | None,
    verify: bool,
) -> tuple[bytearray, bytearray]:
    """Copy the live entries that match as WAL frames with their idx, offsets from 0.

    A copy has the payload of its source. It still has its topic, seq, time and checksum, which
    `stamp_batch` changes, and none of the flags that belong to its place.
    """
    source = Source(open_view(buffer), base, layout, verify)
    entries = open_view(idx)
    count = len(entries) // IDX_ENTRY_BYTES
    check_match(match)
    live = [
        (seq, offset, size, ts)
        for seq, (offset, size, ts, flags) in enumerate(
            IDX_ENTRY.iter_unpack(entries[: count * IDX_ENTRY_BYTES]), first_seq
        )
        if not flags & FLAG_DELETED
    ]
    if sum(size for _, _, size, _ in live) > min(len(source.view), U32_MAX):
        raise CorruptData(f"the entries from record {first_seq} on say more than their bytes hold")
    frames, made = bytearray(), bytearray()
    for seq, offset, size, ts in live:
        frame = frame_at(source, offset, size, seq & U64_MAX)
        if match is not None and not tag_matches(source.view, frame, match):
            continue
        flags = frame.flags & IDX_FLAGS
        made += IDX_ENTRY.pack(len(frames), size, ts, flags)
        frames += source.view[frame.start : frame.start + SIZE_BYTES]
        frames += bytes((FRAME_APPEND, flags))
        frames += source.view[frame.node_at - _FIELDS_BYTES : frame.checksum_at + U64.size]
    return frames, made
