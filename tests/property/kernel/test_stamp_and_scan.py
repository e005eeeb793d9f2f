"""Properties of frames on their way into the WAL and back: stamp, scan, find, index."""

import struct
from typing import NamedTuple

from hypothesis import assume, given
from hypothesis.strategies import (
    DataObject,
    DrawFn,
    binary,
    booleans,
    composite,
    data,
    integers,
    lists,
    sampled_from,
)
from tests.property.kernel.bodies import WIDE_LIMITS, Body, bodies
from tests.property.kernel.frames import (
    FLAG_OPEN,
    U64,
    Chunk,
    Record,
    chunks,
    edits,
    harm,
    idx_entry,
    records_strategy,
    wal_frame,
)
from tests.property.kernel.twins import TWINS, agreed, is_refused, outcome

from topics.errors import CorruptData
from topics.kernel import Batch, Run, Scan


class Placed(NamedTuple):
    """A frame as it stands in a log."""

    kind: int
    topic_id: int
    seq: int
    is_open: bool
    raw: bytes


@composite
def logs(draw: DrawFn) -> list[Placed]:
    """Mix Appends of two topics and control frames, in batches left open and whole ones."""
    placed = []
    seqs = {0: 1, 7: draw(integers(1, 2**64 - 40))}
    for _ in range(draw(integers(0, 14))):
        kind = draw(sampled_from([1, 1, 1, 1, 2, 12, 16]))
        topic_id = draw(sampled_from([0, 7]))
        seqs[topic_id] += draw(sampled_from([1, 1, 1, 2, 0]))
        seq = seqs[topic_id] if kind == 1 else 0
        is_open = draw(booleans())
        flags = FLAG_OPEN if is_open else 0
        record = draw(records_strategy())
        raw = wal_frame(record, kind=kind, topic_id=topic_id, seq=seq, ts=5, flags=flags)
        placed.append(Placed(kind, topic_id, seq, is_open, raw))
    return placed


def model_runs(log: list[Placed], start: int) -> tuple[list[Run], int]:
    """Cut the open tail off, then join neighbours: the plain meaning of a scan."""
    whole = len(log)
    while whole and log[whole - 1].is_open:
        whole -= 1
    runs: list[Run] = []
    at = start
    for frame in log[:whole]:
        end = at + len(frame.raw)
        if runs and frame.kind == 1:
            kind, topic_id, first_seq, count, run_start, _ = runs[-1]
            if (kind, topic_id, first_seq + count) == (1, frame.topic_id, frame.seq):
                runs[-1] = (1, topic_id, first_seq, count + 1, run_start, end)
                at = end
                continue
        runs.append((frame.kind, frame.topic_id, frame.seq, 1, at, end))
        at = end
    return runs, at


def join(log: list[Placed]) -> bytes:
    return b"".join(frame.raw for frame in log)


@given(
    body=bodies(),
    topic_id=U64,
    first_seq=integers(0, 2**64 - 5),
    ts=U64,
    flags=sampled_from([0, 4]),
)
def test_a_stamped_batch_is_what_the_format_page_says(
    body: Body, topic_id: int, first_seq: int, ts: int, flags: int
) -> None:
    for twin in TWINS:
        batch = twin.parse_batch(body.raw, **WIDE_LIMITS)
        twin.stamp_batch(batch, topic_id=1, first_seq=2, ts=3, flags=0)  # a second stamp must win
        twin.stamp_batch(batch, topic_id=topic_id, first_seq=first_seq, ts=ts, flags=flags)
        frames, idx = bytearray(), bytearray()
        for i, record in enumerate(body.records):
            is_open = FLAG_OPEN if i < len(body.records) - 1 else 0
            frame = wal_frame(
                record, topic_id=topic_id, seq=first_seq + i, ts=ts, flags=flags | is_open
            )
            idx += idx_entry(len(frames), len(frame), ts, record.flags)
            frames += frame
        assert (batch.frames, batch.idx) == (frames, idx)
        scan = twin.scan_frames(batch.frames, 0, len(frames))
        assert scan.runs == [(1, topic_id, first_seq, batch.count, 0, len(frames))]


@given(frames=binary(max_size=200), idx=binary(max_size=60), count=integers(-1, 4), seq=U64)
def test_a_batch_that_lies_about_its_frames_is_refused_and_stays_in_bounds(
    frames: bytes, idx: bytes, count: int, seq: int
) -> None:
    stamps = {"topic_id": 1, "first_seq": seq, "ts": 3, "flags": 4}
    outcomes = []
    for twin in TWINS:
        batch = Batch(bytearray(frames), bytearray(idx), count, 0, {})
        outcomes.append((outcome(twin, "stamp_batch", batch, **stamps), batch))
    assert all(each == outcomes[0] for each in outcomes)


@given(log=logs(), zeros=integers(0, 60), before=binary(max_size=5))
def test_a_scan_finds_every_whole_batch_as_runs(
    log: list[Placed], zeros: int, before: bytes
) -> None:
    buffer = before + join(log) + bytes(zeros)
    scan = agreed("scan_frames", buffer, len(before), len(buffer))
    runs, end = model_runs(log, len(before))
    assert scan.runs == runs
    assert (scan.end, scan.stopped) == (end, len(before) + len(join(log)))
    assert scan.clean


@given(log=logs(), choose=data())
def test_a_scan_stops_before_a_frame_that_was_cut_or_altered(
    log: list[Placed], choose: DataObject
) -> None:
    assume(log)
    bad = choose.draw(integers(0, len(log) - 1), label="bad frame")
    raw = bytearray(log[bad].raw)
    if choose.draw(booleans(), label="cut"):
        kept = choose.draw(integers(1, len(raw) - 1), label="bytes kept")
        buffer = join(log[:bad]) + bytes(raw[:kept])
    else:
        bit = choose.draw(integers(0, len(raw) * 8 - 1), label="bit")
        raw[bit // 8] ^= 1 << (bit % 8)
        buffer = join(log[:bad]) + bytes(raw) + join(log[bad + 1 :])
    scan = agreed("scan_frames", buffer, 0, len(buffer))
    runs, end = model_runs(log[:bad], 0)
    assert (scan.runs, scan.end, scan.stopped) == (runs, end, len(join(log[:bad])))
    assert scan.clean is not any(buffer[scan.stopped : scan.stopped + 4])


@given(log=logs(), changes=edits, start=integers(0, 3))
def test_hostile_logs_are_scanned_and_searched_alike(
    log: list[Placed], changes: list[tuple[int, int, bytes]], start: int
) -> None:
    buffer = harm(join(log), changes)
    start = min(start, len(buffer))
    scan = agreed("scan_frames", buffer, start, len(buffer))
    assert isinstance(scan, Scan)
    assert start <= scan.end <= scan.stopped <= len(buffer)
    assert is_refused(agreed("scan_frames", buffer, start, len(buffer) + 1))
    found = agreed("find_frame", buffer, start, len(buffer))
    first = next((at for at in range(start, len(buffer)) if whole_frame_at(buffer, at)), -1)
    assert found == first


def whole_frame_at(buffer: bytes, at: int) -> bool:
    scan: Scan = agreed("scan_frames", buffer, at, len(buffer))
    return scan.stopped > at


@given(
    zeros=integers(0, 300), junk=lists(sampled_from([0, 0, 0, 1, 5, 42, 255]), max_size=90),
    with_frame=booleans(),
)  # fmt: skip
def test_the_next_frame_is_found_behind_zeros_and_junk(
    zeros: int,
    junk: list[int],
    with_frame: bool,  # noqa: FBT001
) -> None:
    frame = wal_frame(Record(b'"here"'), seq=9) if with_frame else b""
    buffer = bytes(zeros) + bytes(junk) + frame + bytes(zeros)
    found = agreed("find_frame", buffer, 0, len(buffer))
    assert found == (zeros + len(junk) if with_frame else -1)


@given(chunk=chunks(layout=0), before=binary(max_size=9))
def test_the_idx_of_a_stretch_is_rebuilt_from_its_frames(chunk: Chunk, before: bytes) -> None:
    buffer = before + chunk.frames
    kept = b"".join(
        entry[:16] + bytes([entry[16] & ~8]) + entry[17:]
        for entry in (chunk.idx[i : i + 20] for i in range(0, len(chunk.idx), 20))
    )
    assert agreed("index_frames", buffer, len(before), len(buffer)) == kept


@given(chunk=chunks(layout=0), changes=edits)
def test_a_stretch_that_is_no_row_of_appends_is_corrupt(
    chunk: Chunk, changes: list[tuple[int, int, bytes]]
) -> None:
    harmed = harm(chunk.frames, changes)
    result = agreed("index_frames", harmed, 0, len(harmed))
    if is_refused(result):
        assert result[0] is CorruptData
    else:
        sizes = struct.iter_unpack("<IIQB3x", result)
        assert sum(size for _, size, _, _ in sizes) == len(harmed)


@given(buffer=binary(max_size=400))
def test_the_hash_is_xxh3_and_takes_any_size(buffer: bytes) -> None:
    agreed("xxh3_64", buffer)
    agreed("xxh3_64", buffer * 40)
