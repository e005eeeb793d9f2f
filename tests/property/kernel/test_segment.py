"""Properties of segments: WAL frames in, segment frames out, and the idx built again."""

from itertools import pairwise

from hypothesis import given
from hypothesis.strategies import DataObject, binary, data, integers, sampled_from, sets
from tests.property.kernel.frames import (
    FLAG_DELETED,
    Chunk,
    Record,
    build_chunk,
    chunks,
    edits,
    harm,
    idx_entry,
    segment_frame,
)
from tests.property.kernel.twins import agreed, is_refused

from topics.errors import CorruptData


@given(chunk=chunks(layout=0), base=integers(0, 2**31), choose=data())
def test_wal_frames_become_the_segment_frames_of_the_format_page(
    chunk: Chunk, base: int, choose: DataObject
) -> None:
    start = choose.draw(integers(0, len(chunk.records)))
    stop = choose.draw(integers(start, len(chunk.records)))
    segment = build_chunk(
        chunk.records[start:stop],
        chunk.timestamps[start:stop],
        first_seq=chunk.first_seq + start,
        topic_id=chunk.topic_id,
        layout=1,
    )
    result = agreed("frames_to_segment", [(chunk.frames, chunk.idx, start, stop)], base=base)
    assert result[0] == segment.frames
    moved = agreed("frames_to_segment", [(chunk.frames, chunk.idx, start, stop)], base=0)
    assert moved == (segment.frames, segment.idx)
    assert [entry[4:] for entry in split(result[1])] == [entry[4:] for entry in split(segment.idx)]
    for entry, entry_at_base in zip(split(segment.idx), split(result[1]), strict=True):
        assert int.from_bytes(entry_at_base[:4], "little") == base + int.from_bytes(
            entry[:4], "little"
        )


def split(idx: bytes) -> list[bytes]:
    return [bytes(idx[i : i + 20]) for i in range(0, len(idx), 20)]


@given(chunk=chunks(layout=0), choose=data())
def test_a_deleted_entry_without_a_frame_stays_one(chunk: Chunk, choose: DataObject) -> None:
    at = choose.draw(integers(0, len(chunk.records)))
    end = len(chunk.frames) if at == len(chunk.records) else int.from_bytes(
        chunk.idx[at * 20 : at * 20 + 4], "little"
    )  # fmt: skip
    idx = chunk.idx[: at * 20] + idx_entry(7, 0, 3, FLAG_DELETED) + chunk.idx[at * 20 :]
    data_, new_idx = agreed(
        "frames_to_segment", [(chunk.frames, idx, 0, len(chunk.records) + 1)], base=0
    )
    assert split(new_idx)[at] == idx_entry(end, 0, 3, FLAG_DELETED)
    assert len(data_) == len(chunk.frames)


@given(chunk=chunks(layout=0), choose=data())
def test_a_damaged_wal_frame_is_never_copied_into_a_segment(
    chunk: Chunk, choose: DataObject
) -> None:
    if not chunk.frames:
        return
    bit = choose.draw(integers(0, len(chunk.frames) * 8 - 1))
    frames = bytearray(chunk.frames)
    frames[bit // 8] ^= 1 << (bit % 8)
    result = agreed(
        "frames_to_segment", [(bytes(frames), chunk.idx, 0, len(chunk.records))], base=0
    )
    assert result[0] is CorruptData


@given(first=chunks(layout=0), second=chunks(layout=0), base=integers(0, 2**31), choose=data())
def test_many_stretches_are_converted_as_if_one_behind_the_other(
    first: Chunk, second: Chunk, base: int, choose: DataObject
) -> None:
    stretches, data_, idx = [], b"", b""
    for chunk in (first, second):
        cuts = sorted(choose.draw(sets(integers(0, len(chunk.records)), max_size=3)))
        for start, stop in pairwise([0, *cuts, len(chunk.records)]):
            stretch = chunk.frames, chunk.idx, start, stop
            more = agreed("frames_to_segment", [stretch], base=base + len(data_))
            stretches.append(stretch)
            data_, idx = data_ + more[0], idx + more[1]
    assert agreed("frames_to_segment", stretches, base=base) == (data_, idx)


@given(chunk=chunks(layout=0), changes=edits, stop=integers(-1, 9), last=sampled_from([0, 1]))
def test_one_bad_stretch_refuses_all(
    chunk: Chunk, changes: list[tuple[int, int, bytes]], stop: int, last: int
) -> None:
    good = chunk.frames, chunk.idx, 0, len(chunk.records)
    bad = harm(chunk.frames, changes), chunk.idx, 0, stop
    alone = agreed("frames_to_segment", [bad], base=0)
    both = agreed("frames_to_segment", [good, bad] if last else [bad, good], base=0)
    assert is_refused(both) == is_refused(alone)


@given(frames=chunks(layout=0), idx_changes=edits, changes=edits, base=integers(0, 2**32 + 5))
def test_hostile_chunks_are_converted_or_refused_alike(
    frames: Chunk,
    idx_changes: list[tuple[int, int, bytes]],
    changes: list[tuple[int, int, bytes]],
    base: int,
) -> None:
    idx = harm(frames.idx, idx_changes)
    agreed("frames_to_segment", [(frames.frames, idx, 0, len(idx) // 20)], base=base)
    harmed = harm(frames.frames, changes)
    agreed("frames_to_segment", [(harmed, frames.idx, 0, len(frames.records))], base=base)


@given(chunk=chunks(layout=1), gaps=sets(integers(0, 11)), lead=integers(0, 3))
def test_an_idx_is_rebuilt_and_missing_seqs_are_deleted_records(
    chunk: Chunk, gaps: set[int], lead: int
) -> None:
    kept = [i for i in range(len(chunk.records)) if i not in gaps]
    frames, idx = bytearray(), bytearray()
    seq, ts = chunk.first_seq - lead, None
    if seq < 0:
        return
    first_seq = seq
    for i in kept:
        record, at = chunk.records[i], len(frames)
        frame = segment_frame(record, topic_id=1, seq=chunk.first_seq + i, ts=chunk.timestamps[i])
        frames += frame
        hole_ts = chunk.timestamps[i] if ts is None else ts
        idx += idx_entry(at, 0, hole_ts, FLAG_DELETED) * (chunk.first_seq + i - seq)
        flags = record.flags | (FLAG_DELETED if record.deleted else 0)
        idx += idx_entry(at, len(frame), chunk.timestamps[i], flags)
        seq, ts = chunk.first_seq + i + 1, chunk.timestamps[i]
    assert agreed("index_segment", bytes(frames), first_seq) == (idx, len(frames), 1)


@given(chunk=chunks(layout=1), changes=edits)
def test_a_harmed_segment_is_indexed_up_to_its_first_bad_frame(
    chunk: Chunk, changes: list[tuple[int, int, bytes]]
) -> None:
    harmed = harm(chunk.frames, changes)
    idx, end, whole = agreed("index_segment", harmed, chunk.first_seq)
    assert whole == (end == len(harmed))
    same = next(
        (i for i, (a, b) in enumerate(zip(harmed, chunk.frames, strict=False)) if a != b),
        min(len(harmed), len(chunk.frames)),
    )
    ends = [int.from_bytes(e[:4], "little") + int.from_bytes(e[4:8], "little")
            for e in split(chunk.idx)]  # fmt: skip
    assert end >= max((e for e in ends if e <= same), default=0)
    assert len(idx) % 20 == 0


@given(data_=binary(max_size=300), first_seq=integers(0, 2**64 - 1))
def test_random_bytes_are_indexed_alike(data_: bytes, first_seq: int) -> None:
    agreed("index_segment", data_, first_seq)


@given(jump=integers(0, 2**63))
def test_a_gap_wider_than_any_segment_is_damage_and_takes_no_memory(jump: int) -> None:
    frames = segment_frame(Record(), topic_id=1, seq=1, ts=1)
    frames += segment_frame(Record(), topic_id=1, seq=2**27 + jump, ts=1)
    _, end, whole = agreed("index_segment", frames, 1)
    assert (end, whole) == (len(frames) // 2, 0)
    assert not is_refused(agreed("index_segment", b"", jump))
