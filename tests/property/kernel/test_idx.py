"""Properties of the idx helpers, against the plainest way to say the same; and over garbage."""

from array import array

from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    binary,
    booleans,
    builds,
    data,
    integers,
    lists,
    sampled_from,
    sets,
)
from tests.property.kernel.frames import U64, Chunk, chunks, edits, harm, idx_entry
from tests.property.kernel.twins import TWINS, agreed, is_refused, outcome

u32 = integers(0, 2**32 - 1)
sizes = u32 | integers(0, 100)
flags = integers(0, 255) | sampled_from([0, 8])
entries = builds(idx_entry, u32, sizes, U64 | integers(0, 9), flags)
indexes = lists(entries, max_size=30).map(b"".join)


def parse_entry(idx: bytes, i: int) -> tuple[int, int, int, int]:
    entry = idx[i * 20 : i * 20 + 20]
    offset, size, ts = (int.from_bytes(entry[a:b], "little") for a, b in [(0, 4), (4, 8), (8, 16)])
    return offset, size, ts, entry[16]


@given(idx=indexes, rest=binary(max_size=19), choose=data())
def test_counting_and_evicting_follow_the_live_entries(
    idx: bytes, rest: bytes, choose: DataObject
) -> None:
    count = len(idx) // 20
    idx += rest
    start = choose.draw(integers(0, count))
    stop = choose.draw(integers(start, count))
    live = [(i, parse_entry(idx, i)[1] - 46) for i in range(start, stop)
            if not parse_entry(idx, i)[3] & 8]  # fmt: skip
    assert agreed("count_live", idx, start, stop) == (len(live), sum(size for _, size in live))
    assert agreed("first_live", idx, start, stop) == (live[0][0] if live else stop)
    need_records = choose.draw(integers(-1, 8))
    need_bytes = choose.draw(integers(-1, 200) | integers(0, 2**34))
    index, records, size_sum = start, 0, 0
    for i, size in live:
        if records >= need_records and size_sum >= need_bytes:
            break
        index, records, size_sum = i + 1, records + 1, size_sum + size
    expected = (index, records, size_sum)
    assert agreed("evict_prefix", idx, start, stop, need_records, need_bytes) == expected
    for name in ("count_live", "first_live"):
        assert is_refused(agreed(name, idx, start, count + 1))
        assert is_refused(agreed(name, idx, stop + 1, stop))


@given(times=lists(integers(0, 50)).map(sorted), wanted=integers(-3, 53), choose=data())
def test_the_first_entry_at_a_time_is_found(
    times: list[int], wanted: int, choose: DataObject
) -> None:
    idx = b"".join(idx_entry(0, 46, ts, 0) for ts in times)
    start = choose.draw(integers(0, len(times)))
    stop = choose.draw(integers(start, len(times)))
    expected = next((i for i in range(start, stop) if times[i] >= wanted), stop)
    assert agreed("bisect_ts", idx, start, stop, wanted) == expected


@given(idx=indexes, wanted=U64)
def test_times_in_disorder_are_searched_alike(idx: bytes, wanted: int) -> None:
    agreed("bisect_ts", idx, 0, len(idx) // 20, wanted)


@given(chunk=chunks(layout=1, max_size=20))
def test_a_sound_idx_is_summed_up(chunk: Chunk) -> None:
    summary = agreed("summarize_idx", chunk.idx)
    live = [record for record in chunk.records if not record.deleted]
    assert summary.bad_index == -1
    assert summary.entries == len(chunk.records)
    assert summary.live_records == len(live)
    assert summary.live_bytes == sum(
        len(r.node or b"") + len(r.tag or b"") + len(r.payload) for r in live
    )
    assert summary.tagged_records == sum(r.tag is not None for r in live)
    assert summary.data_end == len(chunk.frames)
    times = chunk.timestamps or [0]
    assert (summary.first_ts, summary.last_ts) == (times[0], times[-1])


@given(chunk=chunks(layout=1), changes=edits, dropped=booleans())
def test_the_first_entry_that_breaks_the_row_is_named(
    chunk: Chunk,
    changes: list[tuple[int, int, bytes]],
    dropped: bool,  # noqa: FBT001
) -> None:
    idx = harm(chunk.idx, changes)
    if dropped:
        idx = idx[20:]
    summary = agreed("summarize_idx", idx)
    end, before, bad = 0, 0, -1
    for i in range(len(idx) // 20):
        offset, size, ts, flags = parse_entry(idx, i)
        sound = size >= 46 or (size == 0 and flags & 8)
        if offset != end or ts < before or not sound or any(idx[i * 20 + 17 : i * 20 + 20]):
            bad = i
            break
        end, before = offset + size, ts
    if bad == -1 and len(idx) % 20:
        bad = len(idx) // 20
    assert summary.bad_index == bad


@given(idx=binary(max_size=100))
def test_random_bytes_are_summed_up_alike(idx: bytes) -> None:
    agreed("summarize_idx", idx)


@given(idx=indexes, rest=binary(max_size=19), delta=integers(-(2**33), 2**33))
def test_shifting_moves_every_offset_or_none(idx: bytes, rest: bytes, delta: int) -> None:
    count = len(idx) // 20
    moved = [parse_entry(idx, i)[0] + delta for i in range(count)]
    fits = all(0 <= offset < 2**32 for offset in moved)
    for twin in TWINS:
        shifted = bytearray(idx + rest)
        assert (outcome(twin, "shift_idx", shifted, delta) is None) == fits
        expected = b"".join(
            offset.to_bytes(4, "little") + idx[i * 20 + 4 : i * 20 + 20]
            for i, offset in enumerate(moved)
        ) if fits else idx  # fmt: skip
        assert shifted == expected + rest


@given(idx=indexes, first_seq=integers(1, 2**64 - 40), choose=data())
def test_deleting_entries_flags_the_live_ones_and_tells_which(
    idx: bytes, first_seq: int, choose: DataObject
) -> None:
    count = len(idx) // 20
    places = sorted(choose.draw(sets(integers(0, max(count - 1, 0))))) if count else []
    live = [i for i in places if not parse_entry(idx, i)[3] & 8]
    seqs = array("Q", [first_seq + i for i in places])
    expected = bytearray(idx)
    for i in places:
        expected[i * 20 + 16] |= 8
    for twin in TWINS:
        changed = bytearray(idx)
        dead, size = twin.delete_entries(changed, seqs, first_seq)
        assert dead == array("Q", [first_seq + i for i in live])
        assert size == sum(parse_entry(idx, i)[1] - 46 for i in live)
        assert changed == expected
        changed.append(0)  # nobody holds on to it
    for strange in (first_seq - 1, first_seq + count):
        assert is_refused(
            agreed("delete_entries", bytearray(idx), array("Q", [strange]), first_seq)
        )


@given(chunk=chunks(layout=1, max_size=20), choose=data())
def test_flagging_frames_sets_their_last_byte_and_no_other(
    chunk: Chunk, choose: DataObject
) -> None:
    count = len(chunk.records)
    places = sorted(choose.draw(sets(integers(0, count - 1)))) if count else []
    seqs = array("Q", [chunk.first_seq + i for i in places])
    base = parse_entry(chunk.idx, places[0])[0] if places else 0
    expected = bytearray(chunk.frames)
    for i in places:
        expected[sum(parse_entry(chunk.idx, i)[:2]) - 1] = 0xD5
    for twin in TWINS:
        frames = bytearray(chunk.frames)[base:]
        twin.flag_frames(frames, chunk.idx, seqs, chunk.first_seq, base=base)
        assert frames == expected[base:]
    if places:
        call = (bytearray(chunk.frames), chunk.idx, seqs, chunk.first_seq)
        assert is_refused(agreed("flag_frames", *call, base=len(chunk.frames)))


@given(idx=indexes, size=integers(0, 200), base=integers(0, 2**33), choose=data())
def test_hostile_entries_flag_frames_alike_or_are_refused(
    idx: bytes, size: int, base: int, choose: DataObject
) -> None:
    places = choose.draw(lists(integers(0, 40), max_size=8))
    agreed("flag_frames", bytearray(size), idx, array("Q", places), 0, base=base)
