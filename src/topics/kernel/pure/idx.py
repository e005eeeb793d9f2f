"""Questions that the 20-byte entries answer without looking at a frame."""

from array import array
from collections.abc import Iterator
from struct import Struct

from topics.kernel.batch import IdxSummary
from topics.kernel.layout import (
    DELETED_BYTE,
    FLAG_DELETED,
    FLAG_TAG,
    FRAME_OVERHEAD_BYTES,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    Buffer,
)
from topics.kernel.pure.frame import check_range, open_view

_ENTRY_WITH_PADDING = Struct("<IIQB3s")
_OFFSET = Struct("<I")
_FLAGS_OFFSET = 16
_U32_MAX = 2**32 - 1


def _open_entries(idx: Buffer, start: int, stop: int) -> memoryview:
    view = open_view(idx)
    check_range(start, stop, len(view) // IDX_ENTRY_BYTES)
    return view[start * IDX_ENTRY_BYTES : stop * IDX_ENTRY_BYTES]


def _live_sizes(idx: Buffer, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """`(index, len - 46)` of each entry that is not deleted."""
    entries = IDX_ENTRY.iter_unpack(_open_entries(idx, start, stop))
    for i, (_, size, _, flags) in enumerate(entries, start):
        if not flags & FLAG_DELETED:
            yield i, size - FRAME_OVERHEAD_BYTES


def count_live(idx: Buffer, start: int, stop: int) -> tuple[int, int]:
    """Add up what is not deleted: `(records, bytes)`."""
    sizes = [size for _, size in _live_sizes(idx, start, stop)]
    return len(sizes), sum(sizes)


def shift_idx(idx: bytearray, delta: int) -> None:
    """Add `delta` to the offset of every entry, or to none where one would not fit."""
    places = range(0, len(idx) - len(idx) % IDX_ENTRY_BYTES, IDX_ENTRY_BYTES)
    offsets = [_OFFSET.unpack_from(idx, at)[0] + delta for at in places]
    if not all(0 <= offset <= _U32_MAX for offset in offsets):
        raise OverflowError("an offset is an unsigned 32-bit number")
    for at, offset in zip(places, offsets, strict=True):
        _OFFSET.pack_into(idx, at, offset)


def first_live(idx: Buffer, start: int, stop: int) -> int:
    """Find the first entry that is not deleted, `stop` if none."""
    return next((i for i, _ in _live_sizes(idx, start, stop)), stop)


def evict_prefix(
    idx: Buffer, start: int, stop: int, need_records: int, need_bytes: int
) -> tuple[int, int, int]:
    """How far to drop from `start` to lose this much: `(index, records, bytes)`."""
    index, records, size_sum = start, 0, 0
    for i, size in _live_sizes(idx, start, stop):
        if records >= need_records and size_sum >= need_bytes:
            break
        index, records, size_sum = i + 1, records + 1, size_sum + size
    return index, records, size_sum


def bisect_ts(idx: Buffer, start: int, stop: int, ts: int) -> int:
    """Find the first entry at or after `ts`, deleted or not; `stop` if none."""
    entries = _open_entries(idx, start, stop)
    low, high = 0, stop - start
    while low < high:
        middle = (low + high) // 2
        if IDX_ENTRY.unpack_from(entries, middle * IDX_ENTRY_BYTES)[2] < ts:
            low = middle + 1
        else:
            high = middle
    return start + low


def delete_entries(idx: bytearray, seqs: "array[int]", first_seq: int) -> "tuple[array[int], int]":
    """Set the delete flag of entries by seq; return which of them were live, and their bytes.

    `seqs` are u64; entry 0 is that of `first_seq`.
    """
    dead, size_sum = array("Q"), 0
    for seq, at in _places(idx, seqs, first_seq):
        _, size, _, flags = IDX_ENTRY.unpack_from(idx, at)
        if not flags & FLAG_DELETED:
            idx[at + _FLAGS_OFFSET] = flags | FLAG_DELETED
            dead.append(seq)
            size_sum += size - FRAME_OVERHEAD_BYTES
    return dead, size_sum


def flag_frames(
    data: bytearray, idx: Buffer, seqs: "array[int]", first_seq: int, *, base: int
) -> None:
    """Set the delete byte that ends the frames of entries, by seq; one without a frame has none.

    `data` begins at byte `base` of what the entries point into.
    """
    for seq, at in _places(idx, seqs, first_seq):
        offset, size, _, _ = IDX_ENTRY.unpack_from(idx, at)
        if not size:
            continue
        place = offset + size - 1 - base
        if not 0 <= place < len(data):
            raise ValueError(f"the frame of seq {seq} is not in these bytes")
        data[place] = DELETED_BYTE


def _places(idx: Buffer, seqs: "array[int]", first_seq: int) -> Iterator[tuple[int, int]]:
    """`(seq, where its entry is)` of each."""
    count = len(open_view(idx)) // IDX_ENTRY_BYTES
    for seq in seqs:
        if not 0 <= seq - first_seq < count:
            raise ValueError(f"seq {seq} is none of {count} from {first_seq} on")
        yield seq, (seq - first_seq) * IDX_ENTRY_BYTES


def summarize_idx(idx: Buffer) -> IdxSummary:
    """Check every entry against the one before it, and add up those before the first bad one."""
    view = open_view(idx)
    entries, rest = divmod(len(view), IDX_ENTRY_BYTES)
    live_records = live_bytes = tagged_records = first_ts = last_ts = data_end = 0
    bad_index = entries if rest else -1
    whole = view[: entries * IDX_ENTRY_BYTES]
    for i, (offset, size, ts, flags, pad) in enumerate(_ENTRY_WITH_PADDING.iter_unpack(whole)):
        deleted = flags & FLAG_DELETED
        size_holds = size >= FRAME_OVERHEAD_BYTES or (deleted and not size)
        if offset != data_end or not size_holds or ts < last_ts or any(pad):
            bad_index = i
            break
        first_ts = ts if i == 0 else first_ts
        last_ts = ts
        data_end += size
        if not deleted:
            live_records += 1
            live_bytes += size - FRAME_OVERHEAD_BYTES
            tagged_records += flags & FLAG_TAG
    return IdxSummary(
        entries, live_records, live_bytes, tagged_records, first_ts, last_ts, data_end, bad_index
    )
