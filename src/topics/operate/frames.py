"""The frames of a segment's `.data`, in dense stretches, also behind damage.

A bulk pass by the kernel as long as frames follow each other; where they do not, the topic id that
every header repeats is searched for, and the checksum decides. A payload cannot imitate a header:
headers hold zero bytes, JSON does not.
"""

import re
import struct
from itertools import compress, repeat
from operator import add
from typing import Final, NamedTuple

from topics.kernel import IDX_ENTRY_BYTES, SEGMENT_LAYOUT, index_segment
from topics.kernel.layout import DELETED_BYTE, U32_MAX
from topics.kernel.pure.frame import Frame, is_intact, read_frame
from topics.storage.disk.disk import Buffer

ENTRY: Final = struct.Struct("<IIQB3x")
TOPIC_ID_AT: Final = 5
TOPIC_ID_BYTES: Final = 8
COPIED_BYTES_MAX: Final = 256 << 20
SOUND_FLAGS: Final = frozenset({0, DELETED_BYTE})
U32_BYTES: Final = 4
WORDS_PER_ENTRY: Final = IDX_ENTRY_BYTES // U32_BYTES


class Stretch(NamedTuple):
    """Intact frames of one topic, seqs rising; `idx` has offsets from `start`."""

    topic_id: int
    first_seq: int
    start: int
    end: int
    idx: bytearray

    @property
    def entries(self) -> int:
        """Return how many seqs it spans; one without a frame has an entry of length 0."""
        return len(self.idx) // IDX_ENTRY_BYTES

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.entries - 1


class Walk(NamedTuple):
    """All that a `.data` holds: stretches in file order, and the bytes between them."""

    stretches: list[Stretch]
    gaps: list[tuple[int, int]]


def walk_segment(data: Buffer, *, topic_id: int) -> Walk:
    """Find every readable frame, whatever the name of the file says."""
    view = memoryview(data)
    stretches: list[Stretch] = []
    gaps: list[tuple[int, int]] = []
    at = 0
    while at < len(view):
        frame = _intact_frame(view, at)
        if frame is None:
            known = {topic_id, *(stretch.topic_id for stretch in stretches)}
            following = _find_frame(view, at + 1, known)
            gaps.append((at, following))
            at = following
            continue
        stretch = _read_stretch(view, frame)
        stretches.append(stretch)
        at = stretch.end
    return Walk(stretches, gaps)


def odd_frames(data: Buffer, idx: Buffer, *, topic_id: int) -> list[int]:
    """Return the entries whose frame names another topic or has no sound delete flag."""
    wanted = topic_id.to_bytes(TOPIC_ID_BYTES, "little")
    if len(data) <= COPIED_BYTES_MAX and _all_sound(bytes(data), idx, wanted):
        return []
    return [
        i
        for i, (offset, size, _, _) in enumerate(ENTRY.iter_unpack(idx))
        if size
        and (
            data[offset + TOPIC_ID_AT : offset + TOPIC_ID_AT + TOPIC_ID_BYTES] != wanted
            or data[offset + size - 1] not in SOUND_FLAGS
        )
    ]


def _all_sound(data: bytes, idx: Buffer, wanted: bytes) -> bool:
    """Tell in one go that there is nothing odd: 0.2 µs a frame, one by one it is 2 µs."""
    if not idx:
        return True
    words = struct.unpack(f"<{len(idx) // U32_BYTES}I", idx)
    offsets, sizes = words[::WORDS_PER_ENTRY], words[1::WORDS_PER_ENTRY]
    ends = list(compress(map(add, offsets, sizes), sizes))
    flags = set(map(data.__getitem__, map(add, ends, repeat(-1))))
    ids_at = map(add, compress(offsets, sizes), repeat(TOPIC_ID_AT))
    return flags <= SOUND_FLAGS and all(map(data.startswith, repeat(wanted), ids_at))


def matching_flags(idx: Buffer, stretch: Stretch, *, first_seq: int) -> list[tuple[int, int]]:
    """Return (seq, flags) of the entries of an `.idx` that speak of these very frames.

    Nothing where most do not: then it is the index of other records.
    """
    skip = max(0, stretch.first_seq - first_seq)
    lead = max(0, first_seq - stretch.first_seq)
    known = memoryview(idx)[skip * IDX_ENTRY_BYTES : len(idx) // IDX_ENTRY_BYTES * IDX_ENTRY_BYTES]
    frames = memoryview(stretch.idx)[lead * IDX_ENTRY_BYTES :]
    stop = min(len(known), len(frames))
    pairs = zip(ENTRY.iter_unpack(known[:stop]), ENTRY.iter_unpack(frames[:stop]), strict=True)
    seq = stretch.first_seq + lead
    matching = [
        (seq + i, entry[3])
        for i, (entry, frame) in enumerate(pairs)
        if (entry[0], entry[1]) == (frame[0] + stretch.start, frame[1])
        and (not frame[1] or entry[2] == frame[2])
    ]
    return matching if 2 * len(matching) * IDX_ENTRY_BYTES >= stop else []


def topic_id_at(data: Buffer, offset: int) -> int:
    start = offset + TOPIC_ID_AT
    return int.from_bytes(data[start : start + TOPIC_ID_BYTES], "little")


def _intact_frame(view: memoryview, at: int) -> Frame | None:
    frame = read_frame(view, at, min(len(view), U32_MAX), layout=SEGMENT_LAYOUT)
    return frame if frame is not None and is_intact(view, frame) else None


def _read_stretch(view: memoryview, frame: Frame) -> Stretch:
    part = view[frame.start :]
    idx, end, _ = index_segment(part, frame.seq)
    part = part[:end]
    for i in odd_frames(part, idx, topic_id=frame.topic_id):
        offset = ENTRY.unpack_from(idx, i * IDX_ENTRY_BYTES)[0]
        if topic_id_at(part, offset) != frame.topic_id:
            idx, end = _cut(idx, i), offset
            break
    return Stretch(frame.topic_id, frame.seq, frame.start, frame.start + end, idx)


def _cut(idx: bytearray, stop: int) -> bytearray:
    """Drop entries from `stop` on, and those before it that have no frame."""
    while ENTRY.unpack_from(idx, (stop - 1) * IDX_ENTRY_BYTES)[1] == 0:
        stop -= 1
    return idx[: stop * IDX_ENTRY_BYTES]


def _find_frame(view: memoryview, start: int, topic_ids: set[int]) -> int:
    """Return where the next intact frame of one of these topics begins, or the end."""
    patterns = (re.escape(i.to_bytes(TOPIC_ID_BYTES, "little")) for i in sorted(topic_ids))
    search = re.compile(b"|".join(patterns)).search
    at = start + TOPIC_ID_AT
    while (found := search(view, at)) is not None:
        begin = found.start() - TOPIC_ID_AT
        if _intact_frame(view, begin) is not None:
            return begin
        at = found.start() + 1
    return len(view)
