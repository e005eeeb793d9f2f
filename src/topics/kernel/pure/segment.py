"""WAL frames become segment frames, and a segment's idx is built again from its frames."""

from collections.abc import Iterable

from topics.kernel.layout import (
    DELETED_BYTE,
    FLAG_BATCH_OPEN,
    FLAG_DELETED,
    FRAME_APPEND,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    IDX_FLAGS,
    SEGMENT_ENTRIES_MAX,
    SEGMENT_LAYOUT,
    SIZE_BYTES,
    U32_MAX,
    U64,
    WAL_LAYOUT,
    Buffer,
)
from topics.kernel.pure.frame import (
    Frame,
    check_range,
    damaged,
    is_intact,
    open_view,
    read_frame,
    xxh3_64,
)


def frames_to_segment(
    stretches: Iterable[tuple[Buffer, Buffer, int, int]], *, base: int
) -> tuple[bytearray, bytearray]:
    """Turn stretches of WAL into segment frames and their idx, offsets from `base`.

    A stretch is `(frames, idx, start, stop)`: its entries [start, stop).
    """
    check_range(0, base, U32_MAX)
    opened = []
    for frames, idx, start, stop in stretches:
        opened.append((open_view(frames), open_view(idx), start, stop))
        check_range(start, stop, len(idx) // IDX_ENTRY_BYTES)
    count = sum([stop - start for _, _, start, stop in opened])
    data, data_idx = bytearray(), bytearray()
    for view, entries, start, stop in opened:
        for i in range(start, stop):
            offset, size, ts, flags = IDX_ENTRY.unpack_from(entries, i * IDX_ENTRY_BYTES)
            at = base + len(data)
            if at + size > U32_MAX:
                raise ValueError(f"{count} frames from byte {base} on do not fit a segment")
            if flags & FLAG_DELETED and not size:
                data_idx += IDX_ENTRY.pack(at, 0, ts, flags & (IDX_FLAGS | FLAG_DELETED))
                continue
            frame = read_frame(view, offset, len(view), layout=WAL_LAYOUT)
            if frame is None or frame.type != FRAME_APPEND or frame.size != size:
                raise damaged("the WAL frame", offset)
            if not is_intact(view, frame):
                raise damaged("the WAL frame", offset)
            deleted = flags & FLAG_DELETED
            _append_segment_frame(data, view, frame, DELETED_BYTE if deleted else 0)
            data_idx += IDX_ENTRY.pack(at, size, frame.ts, frame.flags & IDX_FLAGS | deleted)
    return data, data_idx


def _append_segment_frame(
    data: bytearray, view: memoryview, frame: Frame, delete_byte: int
) -> None:
    start = len(data)
    data += view[frame.start : frame.start + SIZE_BYTES]
    data.append(frame.flags & ~FLAG_BATCH_OPEN)
    data += view[frame.start + SIZE_BYTES + 2 : frame.checksum_at]
    data += U64.pack(xxh3_64(memoryview(data)[start + SIZE_BYTES :]))
    data.append(delete_byte)


def index_segment(data: Buffer, first_seq: int) -> tuple[bytearray, int, int]:
    """Build the idx of a `.data` again: `(idx, end of the last good frame, 1 if that is all)`."""
    view = open_view(data)
    idx = bytearray()
    at, seq, ts = 0, first_seq, None
    while at < len(view):
        frame = read_frame(view, at, min(len(view), U32_MAX), layout=SEGMENT_LAYOUT)
        if frame is None or frame.seq < seq or not is_intact(view, frame):
            return idx, at, 0
        if frame.seq - first_seq >= SEGMENT_ENTRIES_MAX:
            return idx, at, 0
        hole_ts = frame.ts if ts is None else ts
        idx += IDX_ENTRY.pack(at, 0, hole_ts, FLAG_DELETED) * (frame.seq - seq)
        deleted = FLAG_DELETED if view[frame.end - 1] == DELETED_BYTE else 0
        idx += IDX_ENTRY.pack(at, frame.size, frame.ts, frame.flags & IDX_FLAGS | deleted)
        at, seq, ts = frame.end, frame.seq + 1, frame.ts
    return idx, at, 1
