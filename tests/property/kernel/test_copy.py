"""Properties of copies: frames of either layout in, WAL frames of the same payloads out."""

from hypothesis import given
from hypothesis.strategies import DataObject, booleans, data, integers, none, sampled_from, tuples
from tests.property.kernel.frames import (
    Chunk,
    Record,
    build_chunk,
    chunks,
    edits,
    few_names,
    harm,
    idx_entry,
    wal_frame,
)
from tests.property.kernel.twins import agreed, is_refused

from topics.errors import CorruptData
from topics.kernel import MATCH_EQ, MATCH_PREFIX, Batch, pure

layouts = sampled_from([0, 1])
matches = none() | tuples(sampled_from([MATCH_EQ, MATCH_PREFIX]), few_names)


def matching(tag: bytes | None, match: tuple[int, bytes] | None) -> bool:
    if match is None:
        return True
    kind, needle = match
    return tag is not None and (tag == needle if kind == MATCH_EQ else tag.startswith(needle))


@given(choose=data(), layout=layouts, base=integers(0, 50), verify=booleans(), match=matches)
def test_copies_are_stamped_to_the_frames_of_the_format_page(
    choose: DataObject,
    layout: int,
    base: int,
    verify: bool,  # noqa: FBT001 - drawn
    match: tuple[int, bytes] | None,
) -> None:
    chunk = choose.draw(chunks(layout=layout))
    kept = [i for i, r in enumerate(chunk.records) if not r.deleted and matching(r.tag, match)]
    frames, idx = agreed(
        "copy_frames", chunk.frames, moved(chunk.idx, base), base=base, layout=layout,
        first_seq=chunk.first_seq, match=match, verify=verify,
    )  # fmt: skip
    times = [int.from_bytes(idx[at + 8 : at + 16], "little") for at in range(0, len(idx), 20)]
    assert times == [chunk.timestamps[i] for i in kept]
    seqs = [
        int.from_bytes(frames[at + 14 : at + 22], "little")
        for at in (int.from_bytes(idx[i : i + 4], "little") for i in range(0, len(idx), 20))
    ]
    assert seqs == [chunk.first_seq + i for i in kept]
    batch = Batch(frames, idx, len(kept), 0, {})
    pure.stamp_batch(batch, topic_id=7, first_seq=3, ts=5, flags=0)
    records = [chunk.records[i] for i in kept]
    wanted = [wal_frame(r, topic_id=7, seq=3 + i, ts=5) for i, r in enumerate(records)]
    assert frames == b"".join(wanted)
    expected = build_chunk(records, [5] * len(kept), first_seq=3, topic_id=7, layout=0)
    assert idx == expected.idx


def moved(idx: bytes, base: int) -> bytes:
    """Return the entries as they are in a buffer that begins at `base`."""
    entries = [idx[at : at + 20] for at in range(0, len(idx), 20)]
    return b"".join(
        (int.from_bytes(entry[:4], "little") + base).to_bytes(4, "little") + entry[4:]
        for entry in entries
    )


@given(choose=data(), layout=layouts, verify=booleans(), match=matches, changes=none() | edits)
def test_long_chunks_are_copied_or_refused_alike(
    choose: DataObject,
    layout: int,
    verify: bool,  # noqa: FBT001 - drawn
    match: tuple[int, bytes] | None,
    changes: list[tuple[int, int, bytes]] | None,
) -> None:
    """Those that the native twin copies without the interpreter."""
    chunk = choose.draw(chunks(layout=layout, max_size=4))
    long = Record(data=b'"%b"' % (b"x" * 66_000), tag=b"a")
    both = [*chunk.records, long]
    made = build_chunk(both, [*chunk.timestamps, 2**63], first_seq=5, topic_id=1, layout=layout)
    frames = made.frames if changes is None else harm(made.frames, changes)
    result = agreed(
        "copy_frames", frames, made.idx, base=0, layout=layout, first_seq=5, match=match,
        verify=verify,
    )  # fmt: skip
    if changes is None:
        kept = [r for r in both if not r.deleted and matching(r.tag, match)]
        assert len(result[1]) == 20 * len(kept)


@given(choose=data(), layout=layouts)
def test_a_damaged_frame_is_never_copied(choose: DataObject, layout: int) -> None:
    chunk = choose.draw(chunks(layout=layout))
    live = [i for i, record in enumerate(chunk.records) if not record.deleted]
    if not live:
        return
    at = choose.draw(sampled_from(live)) * 20
    offset, size = (int.from_bytes(chunk.idx[at + i : at + i + 4], "little") for i in (0, 4))
    # The last byte of a segment frame is its delete byte, which no checksum covers.
    bit = choose.draw(integers(offset * 8, (offset + size - layout) * 8 - 1))
    frames = bytearray(chunk.frames)
    frames[bit // 8] ^= 1 << (bit % 8)
    result = agreed(
        "copy_frames", bytes(frames), chunk.idx, base=0, layout=layout,
        first_seq=chunk.first_seq, match=None, verify=True,
    )  # fmt: skip
    assert result[0] is CorruptData


@given(
    choose=data(), layout=layouts, base=integers(-5, 2**62), first_seq=integers(0, 2**64 - 1),
    verify=booleans(), match=matches, idx_changes=edits, changes=edits,
)  # fmt: skip
def test_hostile_chunks_are_copied_or_refused_alike(
    choose: DataObject,
    layout: int,
    base: int,
    first_seq: int,
    verify: bool,  # noqa: FBT001 - drawn
    match: tuple[int, bytes] | None,
    idx_changes: list[tuple[int, int, bytes]],
    changes: list[tuple[int, int, bytes]],
) -> None:
    chunk: Chunk = choose.draw(chunks(layout=layout))
    idx, frames = harm(chunk.idx, idx_changes), harm(chunk.frames, changes)
    rest = {"layout": layout, "match": match, "verify": verify}
    agreed("copy_frames", chunk.frames, idx, base=0, first_seq=chunk.first_seq, **rest)
    agreed("copy_frames", frames, chunk.idx, base=0, first_seq=chunk.first_seq, **rest)
    agreed("copy_frames", chunk.frames, chunk.idx, base=base, first_seq=first_seq, **rest)


@given(size=integers(0, 2**32 - 1), count=integers(1, 5))
def test_entries_that_say_more_than_there_is_take_no_memory(size: int, count: int) -> None:
    frames = bytes(60)
    result = agreed(
        "copy_frames", frames, idx_entry(0, size, 1, 0) * count, base=0, layout=0, first_seq=1,
        match=None, verify=True,
    )  # fmt: skip
    assert is_refused(result)
    assert ("say more" in result[1]) == (size * count > len(frames))
