"""Tags: looked up in frames, gathered into sorted runs, merged, and found again."""

from array import array
from collections.abc import Iterator
from heapq import merge
from itertools import groupby

from topics.errors import CorruptData
from topics.kernel.layout import (
    FLAG_DELETED,
    FLAG_TAG,
    FRAME_APPEND,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    MATCH_EQ,
    SEGMENT_LAYOUT,
    TAG_RUN_ENTRY,
    TAG_RUN_ENTRY_BYTES,
    TAG_RUN_HEADER,
    TAG_RUN_HEADER_BYTES,
    TAG_RUN_MAGIC,
    U32_MAX,
    U64_MAX,
    Buffer,
    Match,
)
from topics.kernel.pure.frame import Frame, check_range, open_view, read_frame, xxh3_64
from topics.kernel.pure.project import check_match, tag_matches

_BAD_RUN = "the tag run is damaged: remove it and it is built again"


def match_tags(
    buffer: Buffer, idx: Buffer, *, base: int, layout: int, start: int, stop: int, match: Match
) -> list[int]:
    """Find the live entries in [start, stop) whose tag matches."""
    view = open_view(buffer)
    check_match(match)
    tagged = _tagged_frames(view, idx, base=base, layout=layout, start=start, stop=stop)
    return [i for i, frame in tagged if tag_matches(view, frame, match)]


def _tagged_frames(
    view: memoryview, idx: Buffer, *, base: int, layout: int, start: int, stop: int
) -> Iterator[tuple[int, Frame]]:
    entries = open_view(idx)
    check_range(start, stop, len(entries) // IDX_ENTRY_BYTES)
    for i in range(start, stop):
        offset, size, _, flags = IDX_ENTRY.unpack_from(entries, i * IDX_ENTRY_BYTES)
        if flags & FLAG_DELETED or not flags & FLAG_TAG:
            continue
        frame = read_frame(view, offset - base, len(view), layout=layout)
        if frame is None or frame.size != size or frame.type != FRAME_APPEND:
            raise CorruptData(f"entry {i} is not at byte {offset}, where its index says it is")
        if frame.flags & FLAG_TAG:
            yield i, frame


def build_tag_run(data: Buffer, idx: Buffer, first_seq: int) -> bytes:
    """Gather the live tagged records of a segment, sorted by (tag, seq); empty if none."""
    view = open_view(data)
    count = len(open_view(idx)) // IDX_ENTRY_BYTES
    tagged = _tagged_frames(view, idx, base=0, layout=SEGMENT_LAYOUT, start=0, stop=count)
    pairs = [
        (bytes(view[frame.tag_at : frame.data_at]), (first_seq + i) & U64_MAX)
        for i, frame in tagged
    ]
    return _encode_run(iter(sorted(pairs)))


def merge_tag_runs(runs: list[Buffer]) -> bytes:
    """One run with the pairs of all of them, each once."""
    return _encode_run(merge(*map(_iter_run, runs)))


def _encode_run(pairs: Iterator[tuple[bytes, int]]) -> bytes:
    """Write sorted pairs as a run; pairs that come twice are kept once."""
    entries, heap = bytearray(), bytearray()
    for tag, same_tag in groupby(pairs, key=lambda pair: pair[0]):
        for (_, seq), _ in groupby(same_tag):
            entries += TAG_RUN_ENTRY.pack(seq, len(heap), len(tag))
        heap += tag
        if len(heap) > U32_MAX:
            raise ValueError("the tags of one run are longer than 4 GiB")
    if not entries:
        return b""
    count = len(entries) // TAG_RUN_ENTRY_BYTES
    body = bytes(entries + heap)
    header = TAG_RUN_HEADER.pack(TAG_RUN_MAGIC, count, len(heap), 0, xxh3_64(body))
    return header + body


def _read_header(view: memoryview) -> tuple[int, int, int] | None:
    """`(count, heap_len, checksum)` of a run whose size fits its header."""
    if len(view) < TAG_RUN_HEADER_BYTES:
        return None
    magic, count, heap_len, zero, checksum = TAG_RUN_HEADER.unpack_from(view, 0)
    size = TAG_RUN_HEADER_BYTES + count * TAG_RUN_ENTRY_BYTES + heap_len
    if magic != TAG_RUN_MAGIC or zero or size != len(view):
        return None
    return count, heap_len, checksum


class _TagRun:
    """A run whose header holds; its entries are checked as they are read. Empty bytes: no pairs."""

    def __init__(self, run: Buffer) -> None:
        self.view = open_view(run)
        header = _read_header(self.view) if self.view else (0, 0, 0)
        if header is None:
            raise CorruptData(_BAD_RUN)
        self.count = header[0]
        self._heap_at = TAG_RUN_HEADER_BYTES + self.count * TAG_RUN_ENTRY_BYTES

    def pair(self, i: int) -> tuple[bytes, int]:
        at = TAG_RUN_HEADER_BYTES + i * TAG_RUN_ENTRY_BYTES
        seq, tag_offset, tag_len = TAG_RUN_ENTRY.unpack_from(self.view, at)
        tag_at = self._heap_at + tag_offset
        if tag_at + tag_len > len(self.view):
            raise CorruptData(_BAD_RUN)
        return bytes(self.view[tag_at : tag_at + tag_len]), seq


def _iter_run(run: Buffer) -> Iterator[tuple[bytes, int]]:
    tags = _TagRun(run)
    before = (b"", 0)
    for i in range(tags.count):
        pair = tags.pair(i)
        if pair < before:
            raise CorruptData(_BAD_RUN)
        yield pair
        before = pair


def lookup_tag_run(run: Buffer, match: Match) -> "array[int]":
    """Ascending seqs (u64) whose tag matches, found by binary search."""
    check_match(match)
    tags = _TagRun(run)
    operator, needle = match
    low, high = 0, tags.count
    while low < high:
        middle = (low + high) // 2
        if tags.pair(middle)[0] < needle:
            low = middle + 1
        else:
            high = middle
    seqs: list[int] = []
    for i in range(low, tags.count):
        tag, seq = tags.pair(i)
        if not (tag == needle if operator == MATCH_EQ else tag.startswith(needle)):
            break
        seqs.append(seq)
    return array("Q", sorted(seqs))


def check_tag_run(run: Buffer) -> bool:
    """Tell whether header, size and checksum hold."""
    view = open_view(run)
    header = _read_header(view)
    return header is not None and xxh3_64(view[TAG_RUN_HEADER_BYTES:]) == header[2]
