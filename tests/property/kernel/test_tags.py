"""Properties of tag look-ups and tag runs, against sorted lists of pairs."""

import struct

from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    binary,
    data,
    integers,
    lists,
    permutations,
    sampled_from,
    tuples,
)
from tests.property.kernel.frames import (
    FLAG_TAG,
    U64,
    Chunk,
    Record,
    build_chunk,
    chunks,
    edits,
    few_names,
    harm,
    idx_entry,
    names,
    segment_frame,
)
from tests.property.kernel.twins import agreed, is_refused
from xxhash import xxh3_64_intdigest

from topics.errors import CorruptData
from topics.kernel import MATCH_EQ, MATCH_PREFIX, SEGMENT_LAYOUT, WAL_LAYOUT

Pair = tuple[bytes, int]
tags = few_names | names | sampled_from([b"12345678", b"123456789", b"12345678\0", b"1234567\0"])
pairs = lists(tuples(tags, U64), max_size=20).map(set).map(sorted)
matches = tuples(sampled_from([MATCH_EQ, MATCH_PREFIX]), tags)


def encode_run(entries: list[Pair]) -> bytes:
    """Write the run of the format page: sorted pairs, then every tag once."""
    if not entries:
        return b""
    heap, places = b"", {}
    for tag, _ in entries:
        if tag not in places:
            places[tag] = len(heap)
            heap += tag
    body = b"".join(struct.pack("<QII", seq, places[tag], len(tag)) for tag, seq in entries) + heap
    head = b"TTR1" + struct.pack("<III", len(entries), len(heap), 0)
    return head + struct.pack("<Q", xxh3_64_intdigest(body)) + body


def does_match(tag: bytes, match: tuple[int, bytes]) -> bool:
    return tag == match[1] if match[0] == MATCH_EQ else tag.startswith(match[1])


@given(layout=sampled_from([WAL_LAYOUT, SEGMENT_LAYOUT]), match=matches, choose=data())
def test_matching_entries_are_the_live_ones_with_that_tag(
    layout: int, match: tuple[int, bytes], choose: DataObject
) -> None:
    chunk = choose.draw(chunks(layout=layout))
    start = choose.draw(integers(0, len(chunk.records)))
    stop = choose.draw(integers(start, len(chunk.records)))
    expected = [
        i
        for i, record in enumerate(chunk.records)
        if start <= i < stop and not record.deleted and record.tag is not None
        and does_match(record.tag, match)
    ]  # fmt: skip
    call = {"base": -3, "layout": layout, "start": start, "stop": stop, "match": match}
    assert agreed("match_tags", b"xyz" + chunk.frames, chunk.idx, **call) == expected


@given(chunk=chunks(layout=1, max_size=30))
def test_a_run_holds_the_live_tagged_records_in_order(chunk: Chunk) -> None:
    entries = sorted(
        (record.tag, chunk.first_seq + i)
        for i, record in enumerate(chunk.records)
        if record.tag is not None and not record.deleted
    )
    run = agreed("build_tag_run", chunk.frames, chunk.idx, chunk.first_seq)
    assert run == encode_run(entries)
    assert agreed("check_tag_run", run) is bool(entries)


@given(tag=lists(tags, max_size=40))
def test_any_tags_sort_as_bytes(tag: list[bytes]) -> None:
    records = [Record(tag=t) for t in tag]
    chunk = build_chunk(records, [0] * len(tag), first_seq=5, topic_id=1, layout=1)
    entries = sorted((t, 5 + i) for i, t in enumerate(tag))
    assert agreed("build_tag_run", chunk.frames, chunk.idx, 5) == encode_run(entries)


@given(inputs=lists(pairs, max_size=5))
def test_a_merge_is_the_run_of_all_pairs(inputs: list[list[Pair]]) -> None:
    together = sorted({pair for entries in inputs for pair in entries})
    runs = [encode_run(entries) for entries in inputs]
    assert agreed("merge_tag_runs", runs) == encode_run(together)


@given(entries=pairs, match=matches)
def test_a_look_up_finds_every_seq_of_the_tag_and_no_other(
    entries: list[Pair], match: tuple[int, bytes]
) -> None:
    expected = sorted(seq for tag, seq in entries if does_match(tag, match))
    assert agreed("lookup_tag_run", encode_run(entries), match).tolist() == expected


@given(entries=pairs, bit=integers(0, 2**20))
def test_a_flipped_bit_fails_the_check(entries: list[Pair], bit: int) -> None:
    run = bytearray(encode_run(entries))
    if not run:
        return
    assert agreed("check_tag_run", bytes(run)) is True
    run[bit // 8 % len(run)] ^= 1 << (bit % 8)
    assert agreed("check_tag_run", bytes(run)) is False


@given(inputs=lists(pairs, max_size=3), changes=edits, match=matches)
def test_harmed_runs_are_read_or_refused_alike(
    inputs: list[list[Pair]], changes: list[tuple[int, int, bytes]], match: tuple[int, bytes]
) -> None:
    runs = [harm(encode_run(entries), changes) for entries in inputs]
    for run in runs:
        agreed("check_tag_run", run)
        found = agreed("lookup_tag_run", run, match)
        assert not is_refused(found) or found[0] is CorruptData
    merged = agreed("merge_tag_runs", runs)
    assert not is_refused(merged) or merged[0] is CorruptData


@given(
    entries=lists(tuples(U64, integers(0, 40), integers(0, 40)), max_size=8),
    heap=binary(max_size=30),
    match=matches,
)
def test_runs_that_lie_about_their_heap_never_leave_it(
    entries: list[tuple[int, int, int]], heap: bytes, match: tuple[int, bytes]
) -> None:
    body = b"".join(struct.pack("<QII", *entry) for entry in entries) + heap
    head = b"TTR1" + struct.pack("<IIIQ", len(entries), len(heap), 0, xxh3_64_intdigest(body))
    assert agreed("check_tag_run", head + body) is True
    agreed("lookup_tag_run", head + body, match)
    agreed("merge_tag_runs", [head + body, head + body])


@given(chunk=chunks(layout=1), changes=edits, idx_changes=edits, match=matches)
def test_hostile_segments_are_searched_or_refused_alike(
    chunk: Chunk,
    changes: list[tuple[int, int, bytes]],
    idx_changes: list[tuple[int, int, bytes]],
    match: tuple[int, bytes],
) -> None:
    frames, idx = harm(chunk.frames, changes), harm(chunk.idx, idx_changes)
    for buffer, entries in [(frames, chunk.idx), (chunk.frames, idx), (frames, idx)]:
        call = {"base": 0, "layout": 1, "start": 0, "stop": len(entries) // 20, "match": match}
        agreed("match_tags", buffer, entries, **call)
        run = agreed("build_tag_run", buffer, entries, chunk.first_seq)
        assert isinstance(run, bytes) or run[0] is CorruptData


@given(entries=pairs, choose=data())
def test_a_run_out_of_order_is_not_merged(entries: list[Pair], choose: DataObject) -> None:
    shuffled = choose.draw(permutations(entries))
    result = agreed("merge_tag_runs", [encode_run(shuffled), b""])
    if shuffled == entries:
        assert result == encode_run(entries)
    else:
        assert result[0] is CorruptData


def test_an_entry_that_claims_a_tag_its_frame_lacks_has_none() -> None:
    frame = segment_frame(Record(), topic_id=1, seq=1, ts=1)
    idx = idx_entry(0, len(frame), 1, FLAG_TAG)
    assert agreed("build_tag_run", frame, idx, 1) == b""
