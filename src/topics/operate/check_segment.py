"""One segment against itself: frames against their checksums, entries against their frames.

The usual case is one bulk pass: the kernel builds the index again from the frames and it is the
very index on disk. Only where it is not, entries are compared one by one to say what is wrong.
"""

from typing import NamedTuple

from msgspec import Struct

from topics.kernel import FLAG_DELETED, IDX_ENTRY_BYTES, index_segment, summarize_idx
from topics.operate.frames import ENTRY, Stretch, odd_frames, topic_id_at, walk_segment
from topics.operate.report import Finding
from topics.operate.source import Source
from topics.storage.disk.disk import Buffer


class Expected(Struct, frozen=True, kw_only=True):
    """What is known of a segment without looking into it."""

    topic_id: int
    first_seq: int
    keep: int | None
    """Entries that a checkpoint has finished; what is behind them may be torn. None: all."""
    flags_may_lag: bool
    """Delete flags may differ: a delete waits on the log, or the data is a cold copy."""


class SegmentCheck(NamedTuple):
    """What was found."""

    records: int
    data: list[Finding]
    idx: list[Finding]
    torn: bool
    """Something unfinished is left over, or the next start builds the index again."""


def check_segment(data: Source | None, idx: Source | None, expected: Expected) -> SegmentCheck:
    """Check both files of a segment; None is a file that is not there."""
    data_findings = _unreadable(data)
    idx_findings = _unreadable(idx)
    if data is None:
        structure = _check_structure(idx.data, expected) if idx else []
        records = _count(idx.data) if idx else 0
        return SegmentCheck(records, data_findings, [*idx_findings, *structure], torn=False)
    rebuilt, _, whole = index_segment(data.data, expected.first_seq)
    wanted = rebuilt if expected.keep is None else rebuilt[: expected.keep * IDX_ENTRY_BYTES]
    finished = whole or (expected.keep is not None and _count(wanted) == expected.keep)
    if finished and idx is not None and not _is_odd(data.data, wanted, expected):
        same = _is_same(idx.data, wanted, expected)
        if same or _is_cut_rewrite(
            idx.data, wanted, len(data.data), flags_may_lag=expected.flags_may_lag
        ):
            torn = not same or not whole or max(len(rebuilt), len(idx.data)) > len(wanted)
            return SegmentCheck(_count(wanted), data_findings, idx_findings, torn)
    return _check_slowly(data.data, idx, expected, (data_findings, idx_findings))


def _count(idx: Buffer) -> int:
    return len(idx) // IDX_ENTRY_BYTES


def _is_odd(data: Buffer, idx: Buffer, expected: Expected) -> bool:
    return bool(odd_frames(data, idx, topic_id=expected.topic_id))


def _unreadable(source: Source | None) -> list[Finding]:
    if source is None:
        return [Finding(message="the file is missing")]
    return [
        Finding(message=f"the device cannot read bytes {start} to {end}", offset=start)
        for start, end in source.unreadable
    ]


def _is_same(idx: Buffer, wanted: bytearray, expected: Expected) -> bool:
    found = idx if expected.keep is None else memoryview(idx)[: expected.keep * IDX_ENTRY_BYTES]
    if found == wanted:
        return True
    if len(found) != len(wanted) or summarize_idx(found).bad_index >= 0:
        return False
    return not _differences(found, wanted, expected, at_index=0)


def _is_cut_rewrite(
    idx: Buffer, wanted: bytearray, data_bytes: int, *, flags_may_lag: bool
) -> bool:
    """Tell whether a rewrite has swapped the data, but not yet the index.

    Flags that were not synced when the power went are missing in the index: the log has the delete.
    """
    summary = summarize_idx(idx)
    if summary.bad_index >= 0 or len(idx) != len(wanted) or summary.data_end <= data_bytes:
        return False
    pairs = zip(ENTRY.iter_unpack(idx), ENTRY.iter_unpack(wanted), strict=True)
    return all(
        entry[1:] == frame[1:] if frame[1] else flags_may_lag or entry[3] & FLAG_DELETED
        for entry, frame in pairs
    )


def _check_structure(idx: Buffer, expected: Expected) -> list[Finding]:
    summary = summarize_idx(idx)
    if summary.bad_index < 0 or (expected.keep is not None and summary.bad_index >= expected.keep):
        return []
    seq = expected.first_seq + summary.bad_index
    offset = summary.bad_index * IDX_ENTRY_BYTES
    message = "an entry that does not follow the one before it"
    return [Finding(message=message, offset=offset, first_seq=seq)]


def _check_slowly(
    data: Buffer, idx: Source | None, expected: Expected, found: tuple[list[Finding], list[Finding]]
) -> SegmentCheck:
    data_findings, idx_findings = list(found[0]), list(found[1])
    walk = walk_segment(data, topic_id=expected.topic_id)
    entries = _count(idx.data) if idx else 0
    end_seq = expected.first_seq + (entries if expected.keep is None else expected.keep)
    data_findings += _check_gaps(walk.gaps, walk.stretches, expected, end_seq)
    records = 0
    before: Stretch | None = None
    for stretch in walk.stretches:
        if expected.keep is not None and stretch.first_seq >= end_seq:
            break
        records += stretch.entries
        data_findings += _check_place(stretch, before, expected, idx)
        data_findings += _check_frames(data, stretch, expected)
        if idx is not None and stretch.topic_id == expected.topic_id:
            idx_findings += _check_entries(idx.data, stretch, expected)
        before = stretch
    if idx is not None:
        idx_findings += _check_structure(idx.data, expected)
        idx_findings += _check_length(idx.data, data, walk.stretches, expected)
        if not data_findings:
            stop_seq = min(end_seq, expected.first_seq + entries)
            data_findings += _check_cut_off(walk.stretches, stop_seq, len(data))
    return SegmentCheck(max(records, entries), data_findings, idx_findings, torn=False)


def _check_gaps(
    gaps: list[tuple[int, int]], stretches: list[Stretch], expected: Expected, end_seq: int
) -> list[Finding]:
    findings = []
    for start, end in gaps:
        before = max((s.last_seq for s in stretches if s.end <= start), default=None)
        behind = next((s.first_seq for s in stretches if s.start >= end), None)
        first_seq = expected.first_seq if before is None else before + 1
        if expected.keep is not None and first_seq >= end_seq:
            continue  # behind what a checkpoint has finished
        last_seq = (end_seq if behind is None else behind) - 1
        findings.append(
            Finding(
                message=f"{end - start} bytes that are no frame, or fail their checksum",
                offset=start,
                first_seq=first_seq,
                last_seq=last_seq if last_seq >= first_seq else None,
            )
        )
    return findings


def _check_place(
    stretch: Stretch, before: Stretch | None, expected: Expected, idx: Source | None
) -> list[Finding]:
    """Check that frames are in the file that is named for them, in order."""
    message = ""
    if stretch.topic_id != expected.topic_id:
        message = f"frames of topic {stretch.topic_id} in a file of topic {expected.topic_id}"
    elif stretch.first_seq < expected.first_seq:
        message = f"frames of older seqs in a file that starts at seq {expected.first_seq}"
    elif before is not None and stretch.first_seq <= before.last_seq:
        message = "seqs that do not rise"
    elif before is None and stretch.start == 0 and stretch.first_seq > expected.first_seq:
        lead = stretch.first_seq - expected.first_seq
        if idx is None or not _all_dropped(idx.data, lead):
            message = f"frames of later seqs in a file that starts at seq {expected.first_seq}"
    if not message:
        return []
    return [
        Finding(
            message=message,
            offset=stretch.start,
            first_seq=stretch.first_seq,
            last_seq=stretch.last_seq,
        )
    ]


def _all_dropped(idx: Buffer, entries: int) -> bool:
    part = memoryview(idx)[: entries * IDX_ENTRY_BYTES]
    if len(part) < entries * IDX_ENTRY_BYTES:
        return False
    return all(size == 0 and flags & FLAG_DELETED for _, size, _, flags in ENTRY.iter_unpack(part))


def _check_frames(data: Buffer, stretch: Stretch, expected: Expected) -> list[Finding]:
    findings = []
    part = memoryview(data)[stretch.start : stretch.end]
    for i in odd_frames(part, stretch.idx, topic_id=stretch.topic_id):
        offset, size, _, _ = ENTRY.unpack_from(stretch.idx, i * IDX_ENTRY_BYTES)
        seq = stretch.first_seq + i
        if expected.keep is not None and seq >= expected.first_seq + expected.keep:
            break
        assert topic_id_at(part, offset) == stretch.topic_id
        flag = part[offset + size - 1]
        message = f"the delete flag is 0x{flag:02x}, which reads as live"
        at = stretch.start + offset + size - 1
        findings.append(Finding(message=message, offset=at, first_seq=seq))
    return findings


def _check_entries(idx: Buffer, stretch: Stretch, expected: Expected) -> list[Finding]:
    """Compare the entries of a stretch with those on disk."""
    at_index = stretch.first_seq - expected.first_seq
    if at_index < 0:
        return []
    wanted = _shifted(stretch)
    if expected.keep is not None:
        wanted = wanted[: max(0, expected.keep - at_index) * IDX_ENTRY_BYTES]
    found = memoryview(idx)[at_index * IDX_ENTRY_BYTES : at_index * IDX_ENTRY_BYTES + len(wanted)]
    found = found[: len(found) // IDX_ENTRY_BYTES * IDX_ENTRY_BYTES]
    return _differences(found, wanted[: len(found)], expected, at_index=at_index)


def _shifted(stretch: Stretch) -> bytearray:
    """Return the entries of a stretch with offsets from the start of the file."""
    if stretch.start == 0:
        return stretch.idx
    shifted = bytearray()
    for offset, size, ts, flags in ENTRY.iter_unpack(stretch.idx):
        shifted += ENTRY.pack(offset + stretch.start, size, ts, flags)
    return shifted


def _differences(
    found: Buffer, wanted: Buffer, expected: Expected, *, at_index: int
) -> list[Finding]:
    findings = []
    pairs = zip(ENTRY.iter_unpack(found), ENTRY.iter_unpack(wanted), strict=True)
    for i, (entry, frame) in enumerate(pairs, at_index):
        message = _difference(entry, frame, expected)
        if message:
            seq, offset = expected.first_seq + i, i * IDX_ENTRY_BYTES
            findings.append(Finding(message=message, offset=offset, first_seq=seq))
    return findings


Entry = tuple[int, int, int, int]


def _difference(entry: Entry, frame: Entry, expected: Expected) -> str:
    """Say what is wrong with an entry; padding is for `summarize_idx` to name."""
    offset, size, ts, flags = entry
    differs = flags ^ frame[3]
    message = ""
    if frame[1] == 0:  # a rewrite dropped it: its time is known to the index alone
        if (offset, size, flags) != (frame[0], 0, frame[3]):
            message = "the entry names a frame, but a rewrite has dropped it"
    elif (offset, size) != frame[:2]:
        message = f"the entry says {size} bytes at {offset}, the frame is {frame[1]} at {frame[0]}"
    elif ts != frame[2]:
        message = f"the entry says time {ts}, the frame {frame[2]}"
    elif differs & ~FLAG_DELETED:
        message = f"the entry has flags 0x{flags:02x}, the frame 0x{frame[3]:02x}"
    elif differs and not expected.flags_may_lag:
        deleted = "deleted" if flags & FLAG_DELETED else "live"
        message = f"the entry says {deleted}, the frame says otherwise"
    return message


def _check_length(
    idx: Buffer, data: Buffer, stretches: list[Stretch], expected: Expected
) -> list[Finding]:
    """Check that the index speaks for as many records as there are."""
    if len(idx) % IDX_ENTRY_BYTES:
        return [Finding(message="the last entry is cut short", offset=len(idx))]
    mine = [s for s in stretches if s.topic_id == expected.topic_id]
    if not mine or mine[-1].end != len(data):
        return []
    entries, wanted = len(idx) // IDX_ENTRY_BYTES, mine[-1].last_seq - expected.first_seq + 1
    if expected.keep is not None:
        entries, wanted = min(entries, expected.keep), min(wanted, expected.keep)
    if entries >= wanted or wanted <= 0:
        return []
    return [
        Finding(
            message=f"{entries} entries for {wanted} records",
            offset=len(idx),
            first_seq=expected.first_seq + entries,
            last_seq=expected.first_seq + wanted - 1,
        )
    ]


def _check_cut_off(stretches: list[Stretch], end_seq: int, size: int) -> list[Finding]:
    last_seq = stretches[-1].last_seq if stretches else 0
    if last_seq + 1 >= end_seq:
        return []
    message = "the file ends before the records that its index names"
    first_seq = max(last_seq + 1, 1)
    return [Finding(message=message, offset=size, first_seq=first_seq, last_seq=end_seq - 1)]
