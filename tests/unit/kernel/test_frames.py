"""Scans, segments and pages: the cases with a name."""

import ctypes
import struct
import tracemalloc
from types import ModuleType
from typing import Any

import pytest

from topics.errors import CorruptData
from topics.kernel import FLAG_META, MATCH_EQ, MATCH_PREFIX, SEGMENT_LAYOUT, WAL_LAYOUT, Batch, pure
from topics.kernel.layout import IDX_ENTRY

LIMITS = {
    "max_records": 20_000,
    "max_record_bytes": 1 << 20,
    "max_meta_bytes": 100,
    "max_tag_bytes": 100,
    "max_node_bytes": 100,
}
PAGE: dict[str, Any] = {
    "base": 0, "layout": WAL_LAYOUT, "first_seq": 1, "start": 0, "limit": 10_000,
    "budget": 1 << 30, "skip_nodes": (), "match": None, "include_meta": True,
    "include_tags": False, "include_data": True, "verify": True,
}  # fmt: skip


def stamped(twin: ModuleType, *records: str, first_seq: int = 1, topic_id: int = 1) -> Batch:
    batch = twin.parse_batch(f'{{"records":[{",".join(records)}]}}'.encode(), **LIMITS)
    assert isinstance(batch, Batch)
    twin.stamp_batch(batch, topic_id=topic_id, first_seq=first_seq, ts=1000, flags=0)
    return batch


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 60])
def test_zeros_behind_the_last_frame_are_a_clean_end_however_few(
    twin: ModuleType, left: int
) -> None:
    frames = bytes(stamped(twin, '{"data":1}').frames)
    scan = twin.scan_frames(frames + bytes(left), 0, len(frames) + left)
    assert (scan.end, scan.stopped, scan.clean) == (len(frames), len(frames), True)


@pytest.mark.parametrize("left", [b"\1", b"\0\1", b"\1\0\0\0", b"\0\0\0\1"])
def test_anything_else_behind_the_last_frame_is_no_clean_end(twin: ModuleType, left: bytes) -> None:
    frames = bytes(stamped(twin, '{"data":1}').frames)
    scan = twin.scan_frames(frames + left, 0, len(frames) + len(left))
    assert (scan.stopped, scan.clean) == (len(frames), False)


def test_batches_of_one_topic_join_to_one_run_and_an_open_one_is_left_out(
    twin: ModuleType,
) -> None:
    first = bytes(stamped(twin, '{"data":1}', '{"data":2}').frames)
    second = bytes(stamped(twin, '{"data":3}', '{"data":4}', first_seq=3).frames)
    both = first + second
    assert twin.scan_frames(both, 0, len(both)).runs == [(1, 1, 1, 4, 0, len(both))]
    cut = both[: -len(second) // 2]
    scan = twin.scan_frames(cut, 0, len(cut))
    assert scan.runs == [(1, 1, 1, 2, 0, len(first))]
    assert (scan.end, scan.stopped) == (len(first), len(cut))


def test_a_seq_that_wraps_around_does_not_continue_a_run(twin: ModuleType) -> None:
    last = bytes(stamped(twin, '{"data":1}', first_seq=2**64 - 1).frames)
    zero = bytes(stamped(twin, '{"data":1}', first_seq=0).frames)
    assert len(twin.scan_frames(last + zero, 0, len(last + zero)).runs) == 2


def test_a_frame_of_unknown_type_stops_the_scan_even_if_its_checksum_holds(
    twin: ModuleType,
) -> None:
    for kind, known in [(0, False), (1, True), (16, True), (17, False), (255, False)]:
        frame = stamped(twin, '{"data":1}').frames
        frame[4] = kind
        frame[-8:] = twin.xxh3_64(frame[4:-8]).to_bytes(8, "little")
        assert bool(twin.scan_frames(frame, 0, len(frame)).runs) is known


def test_many_runs_are_all_kept(twin: ModuleType) -> None:
    log = b"".join(
        bytes(stamped(twin, '{"data":1}', first_seq=2 * i, topic_id=i).frames) for i in range(300)
    )
    runs = twin.scan_frames(log, 0, len(log)).runs
    assert [run[1:4] for run in runs] == [(i, 2 * i, 1) for i in range(300)]


def test_a_frame_is_found_behind_a_preallocated_stretch(twin: ModuleType) -> None:
    frame = bytes(stamped(twin, '{"data":1}').frames)
    log = bytes(1 << 16) + frame
    assert twin.find_frame(log, 0, len(log)) == 1 << 16
    assert twin.find_frame(log, (1 << 16) + 1, len(log)) == -1
    assert twin.find_frame(log, 0, len(log) - 1) == -1


@pytest.mark.parametrize("frame_len", [0xFF, 0x100, 0x1_0000, 0x100_0000])
def test_a_frame_is_found_behind_zeros_whatever_bytes_of_its_length_are_zero(
    twin: ModuleType, frame_len: int
) -> None:
    data = '"' + "x" * (frame_len - 42 - 2) + '"'
    body = f'{{"records":[{{"data":{data}}}]}}'.encode()
    batch = twin.parse_batch(body, **{**LIMITS, "max_record_bytes": 1 << 25})
    twin.stamp_batch(batch, topic_id=1, first_seq=1, ts=1, flags=0)
    log = bytes(70) + batch.frames
    assert twin.find_frame(log, 0, len(log)) == 70


def test_a_page_of_thousands_is_shown_whole(twin: ModuleType) -> None:
    count = 6000
    batch = stamped(twin, *['{"data":"%s"}' % ("x" * (i % 90)) for i in range(count)])
    page = twin.project_records(batch.frames, batch.idx, stop=count, **PAGE)
    assert (page.count, page.stop) == (count, count)
    assert page.json.count(b'"$ts":1000,"data":"x') == count - count // 90 - 1


def test_a_page_grows_when_the_idx_gives_no_hint_of_its_size(twin: ModuleType) -> None:
    name = "\\u0001" * 90
    records = [f'{{"data":1,"node":"{name}"}}'] * 300
    batch = stamped(twin, *records)
    page = twin.project_records(batch.frames, batch.idx, stop=300, **PAGE)
    assert page.json.count(b"\\u0001") == 300 * 90


def test_a_budget_stops_before_the_record_that_would_pass_it_but_never_at_none(
    twin: ModuleType,
) -> None:
    batch = stamped(twin, '{"data":1}', '{"data":2}', '{"data":3}')
    one = b'{"$seq":1,"$ts":1000,"data":1}'
    for budget, count in [(0, 1), (len(one), 1), (2 * len(one), 1), (2 * len(one) + 1, 2)]:
        call = {**PAGE, "budget": budget}
        page = twin.project_records(batch.frames, batch.idx, stop=3, **call)
        assert (page.count, page.stop) == (count, count)


def test_skipped_records_count_as_looked_at(twin: ModuleType) -> None:
    batch = stamped(
        twin,
        '{"data":1,"tag":"a"}',
        '{"data":2,"node":"me"}',
        '{"data":3,"tag":"ab"}',
        '{"data":4}',
    )
    call = {**PAGE, "match": (MATCH_PREFIX, b"a")}
    page = twin.project_records(batch.frames, batch.idx, stop=4, **call)
    assert (page.count, page.stop) == (2, 4)
    call = {**PAGE, "match": (MATCH_EQ, b"a"), "limit": 1}
    page = twin.project_records(batch.frames, batch.idx, stop=4, **call)
    assert (page.count, page.stop) == (1, 1)
    call = {**PAGE, "skip_nodes": (b"other", b"me")}
    page = twin.project_records(batch.frames, batch.idx, stop=4, **call)
    assert b'"data":2' not in page.json
    assert (page.count, page.stop) == (3, 4)


def test_a_damaged_record_is_named_by_its_seq(twin: ModuleType) -> None:
    batch = stamped(twin, '{"data":1}', '{"data":2}')
    batch.frames[-9] ^= 1
    with pytest.raises(CorruptData, match="record 2 at byte 47 does not match its checksum"):
        twin.project_records(batch.frames, batch.idx, stop=2, **PAGE)
    unverified = twin.project_records(batch.frames, batch.idx, stop=2, **{**PAGE, "verify": False})
    assert unverified.count == 2
    with pytest.raises(CorruptData, match="record 8 is not at byte 0"):
        twin.project_records(batch.frames, batch.idx, stop=2, **{**PAGE, "first_seq": 8})


def test_a_deleted_record_is_skipped_without_a_look_at_its_frame(twin: ModuleType) -> None:
    batch = stamped(twin, '{"data":1}', '{"data":2}')
    batch.idx[16] |= 8
    batch.frames[:47] = bytes(47)
    page = twin.project_records(batch.frames, batch.idx, stop=2, **PAGE)
    assert (page.json, page.stop) == (b'{"$seq":2,"$ts":1000,"data":2}', 2)


def test_a_segment_says_the_same_as_its_wal_frames(twin: ModuleType) -> None:
    batch = stamped(twin, '{"data":1,"node":"n","meta":{}}', '{"data":[2],"tag":"t"}')
    data, idx = twin.frames_to_segment([(batch.frames, batch.idx, 0, 2)], base=0)
    call = {**PAGE, "include_tags": True, "stop": 2}
    wal_page = twin.project_records(batch.frames, batch.idx, **call)
    page = twin.project_records(data, idx, **{**call, "layout": SEGMENT_LAYOUT})
    assert page == wal_page
    assert twin.index_segment(data, 1) == (idx, len(data), 1)


@pytest.mark.parametrize("base", [0, 1, 4095, 4096, 123_457])
def test_a_large_part_of_a_segment_is_in_step_with_its_place_in_the_file(base: int) -> None:
    native = pytest.importorskip("topics.kernel._native", exc_type=ImportError)
    batch = stamped(native, *(f'{{"data":"{"x" * size}"}}' for size in range(1000, 1200)))
    data, idx = native.frames_to_segment([(batch.frames, batch.idx, 0, 200)], base=base)
    assert len(data) > 200_000
    assert (ctypes.addressof(ctypes.c_char.from_buffer(data)) - base) % 4096 == 0
    assert (data, idx) == pure.frames_to_segment([(batch.frames, batch.idx, 0, 200)], base=base)
    data += b"it can still grow"
    assert bytes(data[-4:]) == b"grow"


@pytest.mark.parametrize(
    ("seqs", "indexed"), [([5, 6], 2), ([5, 8], 2), ([5, 5], 1), ([6, 5], 1), ([5, 0], 1), ([4], 0)]
)
def test_seqs_in_a_segment_have_to_rise_from_the_first_on(
    twin: ModuleType, seqs: list[int], indexed: int
) -> None:
    ends, data = [0], bytearray()
    for seq in seqs:
        batch = stamped(twin, '{"data":1}', first_seq=seq)
        data += twin.frames_to_segment([(batch.frames, batch.idx, 0, 1)], base=0)[0]
        ends.append(len(data))
    idx, end, whole = twin.index_segment(data, 5)
    assert (end, whole) == (ends[indexed], int(indexed == len(seqs)))
    assert twin.count_live(idx, 0, len(idx) // 20)[0] == indexed


def test_frames_beyond_the_reach_of_a_u32_do_not_fit_a_segment(twin: ModuleType) -> None:
    batch = stamped(twin, '{"data":1}')
    twin.frames_to_segment([(batch.frames, batch.idx, 0, 1)], base=2**32 - 1 - 47)
    with pytest.raises(ValueError, match="do not fit a segment"):
        twin.frames_to_segment([(batch.frames, batch.idx, 0, 1)], base=2**32 - 47)


@pytest.mark.parametrize("data", ["1", "123", "1234", "123456"])
def test_a_payload_that_lies_about_its_meta_is_refused_even_if_its_checksum_holds(
    twin: ModuleType, data: str
) -> None:
    batch = stamped(twin, f'{{"data":{data}}}')
    batch.frames[5] |= FLAG_META
    twin.stamp_batch(batch, topic_id=1, first_seq=1, ts=1, flags=0)
    for verify in (False, True):
        with pytest.raises(CorruptData, match="record 1 at byte 0 has a payload that does not"):
            twin.project_records(batch.frames, batch.idx, stop=1, **{**PAGE, "verify": verify})


def test_a_frame_that_is_no_append_is_no_record_even_if_its_checksum_holds(
    twin: ModuleType,
) -> None:
    batch = stamped(twin, '{"data":1,"tag":"t"}')
    batch.frames[4] = 2
    twin.stamp_batch(batch, topic_id=1, first_seq=1, ts=1, flags=0)
    find = {"base": 0, "layout": WAL_LAYOUT, "start": 0, "stop": 1}
    with pytest.raises(CorruptData):
        twin.project_records(batch.frames, batch.idx, stop=1, **PAGE)
    with pytest.raises(CorruptData):
        twin.frames_to_segment([(batch.frames, batch.idx, 0, 1)], base=0)
    with pytest.raises(CorruptData):
        twin.match_tags(batch.frames, batch.idx, match=(MATCH_EQ, b"t"), **find)
    with pytest.raises(CorruptData):
        twin.index_frames(batch.frames, 0, len(batch.frames))


LYING_ENTRIES = [
    (2**32 - 10, 56),
    (2**32 - 1, 2**32 - 1),
    (0, 2**32 - 1),
    (2**32 - 47, 47),
    (1, 47),
    (0, 46),
    (0, 45),
]


@pytest.mark.parametrize(("offset", "size"), LYING_ENTRIES)
def test_an_entry_that_points_elsewhere_is_refused_even_where_its_sum_overflows(
    twin: ModuleType, offset: int, size: int
) -> None:
    batch = stamped(twin, '{"data":1}')
    idx = offset.to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(8) + b"\1\0\0\0"
    with pytest.raises(CorruptData):
        twin.project_records(batch.frames, idx, stop=1, **PAGE)
    with pytest.raises((CorruptData, ValueError)):
        twin.frames_to_segment([(batch.frames, idx, 0, 1)], base=0)
    find = {"base": 0, "layout": WAL_LAYOUT, "start": 0, "stop": 1}
    with pytest.raises(CorruptData):
        twin.match_tags(batch.frames, idx, match=(MATCH_EQ, b""), **find)
    if offset + size > len(batch.frames) or size < 46:
        lying = Batch(batch.frames, bytearray(idx), 1, 0, {})
        with pytest.raises(ValueError, match="entry 0 of the batch points outside"):
            twin.stamp_batch(lying, topic_id=1, first_seq=1, ts=1, flags=0)


def test_an_unknown_match_operator_is_refused(twin: ModuleType) -> None:
    batch = stamped(twin, '{"data":1}')
    with pytest.raises(ValueError, match="9 is no match operator"):
        twin.project_records(batch.frames, batch.idx, stop=1, **{**PAGE, "match": (9, b"")})


COLUMNS: dict[str, Any] = {
    "base": 0, "layout": WAL_LAYOUT, "first_seq": 1, "start": 0, "columns": 15, "match": None,
    "verify": True,
}  # fmt: skip


def test_a_frame_inside_of_another_is_a_row_too(twin: ModuleType) -> None:
    """Nobody writes such frames; but there is more data then than the file is long."""
    inner = bytes(stamped(twin, f'{{"data":"{"y" * 90_000}"}}', first_seq=2).frames)
    outer = stamped(twin, f'{{"data":"{"x" * len(inner)}"}}')
    at = outer.frames.index(b"x")
    outer.frames[at : at + len(inner)] = inner
    twin.stamp_batch(outer, topic_id=1, first_seq=1, ts=1000, flags=0)
    entries = bytes(outer.idx) + IDX_ENTRY.pack(at, len(inner), 1000, 0)
    found = twin.decode_columns(outer.frames, entries, stop=2, **COLUMNS)
    assert found.data.heap == b'"%b""%b"' % (inner, b"y" * 90_000)
    assert struct.unpack("<2q", found.seq) == (1, 2)


def test_sizes_that_no_file_has_are_damage_and_take_no_room(twin: ModuleType) -> None:
    frames = bytes(stamped(twin, '{"data":1}').frames) + bytes(1 << 20)
    entries = IDX_ENTRY.pack(0, 2**32 - 1, 1000, 0) * 2_000
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="record 1"):
            twin.decode_columns(frames, entries, stop=2_000, **COLUMNS)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
