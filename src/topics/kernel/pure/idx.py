"""Questions that the 20-byte entries answer without looking at a frame."""

from collections.abc import Iterator
from struct import Struct

from topics.kernel.batch import IdxSummary
from topics.kernel.layout import (
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
