"""One frame at one place, in WAL or segment layout: whether it is whole, and intact."""

from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from topics.errors import CorruptData
from topics.kernel.layout import (
    FRAME_APPEND,
    FRAME_OVERHEAD_BYTES,
    SEGMENT_HEADER,
    SIZE_BYTES,
    U64,
    WAL_HEADER,
    WAL_LAYOUT,
    Buffer,
)


class Frame(NamedTuple):
    """The header of a frame whose lengths add up, and where its parts begin."""

    type: int
    flags: int
    topic_id: int
    seq: int
    ts: int
    start: int
    node_at: int
    tag_at: int
    data_at: int
    checksum_at: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def read_frame(view: memoryview, at: int, stop: int, *, layout: int) -> Frame | None:
    """Read the frame at `at` if it lies whole before `stop`; its checksum is not looked at."""
    if at < 0 or stop - at < FRAME_OVERHEAD_BYTES:
        return None
    frame_type = FRAME_APPEND
    if layout == WAL_LAYOUT:
        header = WAL_HEADER
        size, frame_type, *rest = header.unpack_from(view, at)
    else:
        header = SEGMENT_HEADER
        size, *rest = header.unpack_from(view, at)
    flags, topic_id, seq, ts, node_len, tag_len, data_len = rest
    body_len = node_len + tag_len + data_len
    end = at + SIZE_BYTES + size
    if end > stop or size + SIZE_BYTES != body_len + FRAME_OVERHEAD_BYTES:
        return None
    node_at = at + header.size
    tag_at = node_at + node_len
    data_at = tag_at + tag_len
    checksum_at = data_at + data_len
    return Frame(
        frame_type, flags, topic_id, seq, ts, at, node_at, tag_at, data_at, checksum_at, end
    )


def is_intact(view: memoryview, frame: Frame) -> bool:
    checksum: int = U64.unpack_from(view, frame.checksum_at)[0]
    return xxh3_64(view[frame.start + SIZE_BYTES : frame.checksum_at]) == checksum


def open_view(buffer: Buffer) -> memoryview:
    """See any contiguous buffer as unsigned bytes, without a copy."""
    return memoryview(buffer).cast("B")


def check_range(start: int, stop: int, size: int) -> None:
    """Refuse a range that no caller of ours can mean."""
    if not 0 <= start <= stop <= size:
        raise ValueError(f"the range {start}..{stop} is not inside 0..{size}")


def xxh3_64(buffer: Buffer) -> int:
    """XXH3, 64 bits, seed 0."""
    return xxh3_64_intdigest(buffer)


def damaged(what: str, at: int) -> CorruptData:
    return CorruptData(f"{what} at byte {at} is damaged: restore the file from a copy")
