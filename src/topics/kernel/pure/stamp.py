"""The last step of a write: who, which seq, when, and the checksum over it all."""

from topics.kernel.batch import Batch
from topics.kernel.layout import (
    FRAME_OVERHEAD_BYTES,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    SIZE_BYTES,
    U64,
    U64_MAX,
)
from topics.kernel.pure.frame import xxh3_64

_CHECKSUM_BYTES = 8


def stamp_batch(batch: Batch, *, topic_id: int, first_seq: int, ts: int, flags: int) -> None:
    """Fill in the zero fields of every frame, OR `flags` in, and seal it. May be done again."""
    frames, idx = batch.frames, batch.idx
    _check_stamp(batch, topic_id, first_seq, ts, flags)
    with memoryview(frames) as view:
        for i in range(batch.count):
            offset, size, _, idx_flags = IDX_ENTRY.unpack_from(idx, i * IDX_ENTRY_BYTES)
            if size < FRAME_OVERHEAD_BYTES or offset + size > len(frames):
                raise ValueError(f"entry {i} of the batch points outside its frames")
            frames[offset + 5] |= flags
            U64.pack_into(frames, offset + 6, topic_id)
            U64.pack_into(frames, offset + 14, first_seq + i)
            U64.pack_into(frames, offset + 22, ts)
            checksum_at = offset + size - _CHECKSUM_BYTES
            checksum = xxh3_64(view[offset + SIZE_BYTES : checksum_at])
            U64.pack_into(frames, checksum_at, checksum)
            IDX_ENTRY.pack_into(idx, i * IDX_ENTRY_BYTES, offset, size, ts, idx_flags)


def _check_stamp(batch: Batch, topic_id: int, first_seq: int, ts: int, flags: int) -> None:
    if batch.count < 0 or len(batch.idx) != batch.count * IDX_ENTRY_BYTES:
        raise ValueError("the batch does not have one idx entry a frame")
    if not 0 <= flags <= 0xFF:
        raise OverflowError("flags are one byte")
    for number in (topic_id, ts, first_seq, first_seq + max(batch.count, 1) - 1):
        if not 0 <= number <= U64_MAX:
            raise OverflowError("topic_id, seq and ts are u64")
