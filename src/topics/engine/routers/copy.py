"""From the frames of a source to the frames of its copies: pure, over bytes.

Keeps: a copy has the payload of its source, byte for byte; nothing is copied from a frame that does
not match its checksum, because the copy gets a checksum of its own.
"""

import struct
from collections import Counter
from collections.abc import Sequence

import msgspec

from topics.engine.routers.link import Router
from topics.errors import CorruptData
from topics.kernel import (
    FLAG_BATCH_OPEN,
    FLAG_DELETED,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    FRAME_OVERHEAD_BYTES,
    IDX_ENTRY_BYTES,
    WAL_LAYOUT,
    Batch,
    bisect_ts,
    copy_frames,
    count_live,
    match_tags,
    shift_idx,
    stamp_batch,
    xxh3_64,
)
from topics.model.json_text import decode_object, encode_object
from topics.model.routers import ROUTER_META_KEY
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import View

FRAME_APPEND = 1
_ENTRY = struct.Struct("<IIQB3x")
_WAL_HEADER = struct.Struct("<IBBQQQHHI")
_SEGMENT_HEADER = struct.Struct("<IBQQQHHI")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_FLAGS_OFFSET = 16
_LEN_BYTES = 4
_FRAME_FLAGS_OFFSET = 5
_SEQ_OFFSET = 14
_OWN_FLAGS = FLAG_NODE | FLAG_TAG | FLAG_META


class Copies:
    """Copies that are not stamped yet: each still has the seq and the `$ts` of its source."""

    def __init__(
        self,
        frames: bytearray | None = None,
        idx: bytearray | None = None,
        makers: list[Router] | None = None,
    ) -> None:
        self.frames = bytearray() if frames is None else frames
        self.idx = bytearray() if idx is None else idx
        self.makers: list[Router] = [] if makers is None else makers
        """The router of each copy."""

    @property
    def count(self) -> int:
        return len(self.makers)

    @property
    def payload_bytes(self) -> int:
        return len(self.frames) - FRAME_OVERHEAD_BYTES * self.count

    @property
    def last_source(self) -> int:
        """The source seq of the last copy."""
        offset = _ENTRY.unpack_from(self.idx, len(self.idx) - IDX_ENTRY_BYTES)[0]
        seq: int = _U64.unpack_from(self.frames, offset + _SEQ_OFFSET)[0]
        return seq

    def add(self, frame: Buffer, *, ts: int, flags: int, maker: Router) -> None:
        self.idx += _ENTRY.pack(len(self.frames), len(frame), ts, flags)
        self.frames += frame
        self.makers.append(maker)

    def extend(self, others: "Copies") -> None:
        """Take in the copies of what follows in the source; they are used up."""
        if not self.count:
            self.frames, self.idx, self.makers = others.frames, others.idx, others.makers
            return
        shift_idx(others.idx, len(self.frames))
        self.idx += others.idx
        self.frames += others.frames
        self.makers += others.makers

    def cut(self, count: int) -> None:
        """Keep only the first copies."""
        if count < self.count:
            del self.frames[_ENTRY.unpack_from(self.idx, count * IDX_ENTRY_BYTES)[0] :]
            del self.idx[count * IDX_ENTRY_BYTES :]
            del self.makers[count:]

    def credit(self) -> None:
        """Count them for their routers."""
        makers = self.makers
        if makers and makers.count(makers[0]) == len(makers):  # much faster than to count each
            makers[0].forwarded_total += len(makers)
            return
        for router, count in Counter(makers).items():
            router.forwarded_total += count

    def open_batch(self) -> None:
        """Have the log take all of them or none."""
        for offset, *_ in list(_ENTRY.iter_unpack(self.idx))[:-1]:
            self.frames[offset + _FRAME_FLAGS_OFFSET] |= FLAG_BATCH_OPEN

    def stamp(
        self, *, topic_id: int, first_seq: int, last_ts: int, flags: int
    ) -> tuple[Batch, int]:
        """Make them a batch; return it and the `$ts` of its last record.

        The `$ts` of a copy is its source's, or the one before it where that is later: a restart
        finds the same.
        """
        done = bytearray()
        start = 0
        while start < self.count:
            ts = max(last_ts, _ENTRY.unpack_from(self.idx, start * IDX_ENTRY_BYTES)[2])
            stop = bisect_ts(self.idx, start, self.count, ts + 1)
            entries = self.idx[start * IDX_ENTRY_BYTES : stop * IDX_ENTRY_BYTES]
            part = Batch(self.frames, entries, stop - start, 0, {})
            stamp_batch(part, topic_id=topic_id, first_seq=first_seq + start, ts=ts, flags=flags)
            done += part.idx
            start, last_ts = stop, ts
        return Batch(self.frames, done, self.count, self.payload_bytes, {}), last_ts


def copy_records(
    view: View,
    routers: Sequence[Router],
    *,
    layout: int,
    first_seq: int,
    source_id: int,
    verify: bool,
    skip_deleted: bool,
) -> Copies:
    """Copy all records of a view that pass; a deleted one too while its bytes are still there."""
    idx = view.idx if skip_deleted else _undeleted(view.idx)
    view = View(idx, view.buffer, view.base)
    if len(routers) == 1 and routers[0].copies_whole:
        return _copy_whole(view, routers[0], layout=layout, first_seq=first_seq, verify=verify)
    wanted = [_wanted(view, router, layout) for router in routers]
    copies = Copies()
    for i, (offset, size, ts, flags) in enumerate(_ENTRY.iter_unpack(idx)):
        if flags & FLAG_DELETED:
            continue
        takers = [r for r, seqs in zip(routers, wanted, strict=True) if seqs is None or i in seqs]
        if not takers:
            continue
        source = first_seq + i
        frame = _read(view, offset, size, seq=source, layout=layout, verify=verify)
        for router in takers:
            made, made_flags = _copy(frame, router, seq=source, source_id=source_id)
            copies.add(made, ts=ts, flags=made_flags, maker=router)
    return copies


def _copy_whole(view: View, router: Router, *, layout: int, first_seq: int, verify: bool) -> Copies:
    """Copy frames as they are, in one piece: the usual case, and fifty times as fast."""
    frames, idx = copy_frames(
        view.buffer,
        view.idx,
        base=view.base,
        layout=layout,
        first_seq=first_seq,
        match=router.match,
        verify=verify,
    )
    return Copies(frames, idx, [router] * (len(idx) // IDX_ENTRY_BYTES))


def _undeleted(idx: Buffer) -> bytes:
    """Return the entries without their delete flags, where the bytes of the record are left."""
    idx = bytes(idx)  # a delete may come meanwhile, and a restart would copy what it has met
    count = len(idx) // IDX_ENTRY_BYTES
    if count_live(idx, 0, count)[0] == count:
        return idx
    entries = bytearray(idx)
    for at in range(0, len(entries), IDX_ENTRY_BYTES):
        if entries[at + _FLAGS_OFFSET] & FLAG_DELETED and any(entries[at + 4 : at + 8]):
            entries[at + _FLAGS_OFFSET] &= ~FLAG_DELETED
    return bytes(entries)


def _wanted(view: View, router: Router, layout: int) -> set[int] | None:
    """Return the entries that pass the filter, None for all."""
    if router.match is None:
        return None
    found = match_tags(
        view.buffer,
        view.idx,
        base=view.base,
        layout=layout,
        start=0,
        stop=len(view.idx) // IDX_ENTRY_BYTES,
        match=router.match,
    )
    return set(found)


class _Frame:
    """The parts of one source frame."""

    __slots__ = ("data", "flags", "node", "tag")

    def __init__(self, flags: int, node: bytes, tag: bytes, data: bytes) -> None:
        self.flags = flags
        self.node = node
        self.tag = tag
        self.data = data


def _read(view: View, offset: int, size: int, *, seq: int, layout: int, verify: bool) -> _Frame:
    at = offset - view.base
    frame = bytes(memoryview(view.buffer)[at : at + size])
    header = _WAL_HEADER if layout == WAL_LAYOUT else _SEGMENT_HEADER
    if at < 0 or len(frame) != size or size < FRAME_OVERHEAD_BYTES:
        raise CorruptData(f"record {seq} is not at byte {offset}, where its index says it is")
    frame_len, *_, flags, _, found_seq, _, node_len, tag_len, data_len = header.unpack_from(frame)
    body_len = node_len + tag_len + data_len
    if found_seq != seq or not size == frame_len + _LEN_BYTES == body_len + FRAME_OVERHEAD_BYTES:
        raise CorruptData(f"record {seq} is not at byte {offset}, where its index says it is")
    tag_at = header.size + node_len
    data_at = tag_at + tag_len
    end = data_at + data_len
    if verify and xxh3_64(frame[_LEN_BYTES:end]) != _U64.unpack_from(frame, end)[0]:
        raise CorruptData(f"record {seq} at byte {offset} does not match its checksum")
    node, tag, data = frame[header.size : tag_at], frame[tag_at:data_at], frame[data_at:end]
    return _Frame(flags & _OWN_FLAGS, node, tag, data)


def _copy(frame: _Frame, router: Router, *, seq: int, source_id: int) -> tuple[bytes, int]:
    """Build the WAL frame of a copy, not yet stamped; return it with its idx flags."""
    flags, node, tag, data = frame.flags, frame.node, frame.tag, frame.data
    if not router.copies_whole:
        definition = router.definition
        if not definition.preserve_node:
            flags, node = flags & ~FLAG_NODE, b""
        if not definition.preserve_tag:
            flags, tag = flags & ~FLAG_TAG, b""
        if definition.guarantee == "exactly_once":
            mark = f"{router.name}:{source_id}:{seq}"
            flags, data = flags | FLAG_META, _with_mark(frame, mark)
    size = FRAME_OVERHEAD_BYTES + len(node) + len(tag) + len(data)
    head = _WAL_HEADER.pack(
        size - _LEN_BYTES, FRAME_APPEND, flags, 0, seq, 0, len(node), len(tag), len(data)
    )
    return b"".join((head, node, tag, data, bytes(_U64.size))), flags


def _with_mark(frame: _Frame, mark: str) -> bytes:
    """Return the payload with the mark in its meta, the first key of it."""
    data, rest = frame.data, b"}"
    if frame.flags & FLAG_META:
        (data_len,) = _U32.unpack_from(data)
        meta = data[_U32.size + data_len :]
        data = data[_U32.size : _U32.size + data_len]
        fields = decode_object(meta)
        if fields.pop(ROUTER_META_KEY, None) is not None:  # of a router before this one in a chain
            meta = encode_object(fields)
        if fields:
            rest = b"," + meta.strip()[1:]
    head = msgspec.json.encode({ROUTER_META_KEY: mark})[:-1]
    return _U32.pack(len(data)) + data + head + rest
