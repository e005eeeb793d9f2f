"""A body of frames decodes to what was encoded; what is cut or changed in length is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import CorruptData
from topics.model.diff import Tombstone
from topics.model.frames import (
    IDX_ENTRY,
    MAGIC,
    PartHead,
    RangeHead,
    RangePage,
    RangePart,
    decode_range,
    encode_range,
)

SEQS = st.integers(0, 2**63 - 1)
SIZES = st.lists(st.integers(0, 80), min_size=1, max_size=5)


@st.composite
def parts(draw: st.DrawFn) -> RangePart:
    base = draw(st.integers(0, 2**31))
    idx, at = b"", base
    for size in draw(SIZES):
        idx += IDX_ENTRY.pack(at, size, draw(SEQS), draw(st.integers(0, 31)))
        at += size
    data = draw(st.binary(min_size=at - base, max_size=at - base))
    head = PartHead(
        layout=draw(st.sampled_from(["wal", "segment"])),
        first_seq=draw(SEQS),
        count=len(idx) // IDX_ENTRY.size,
        base=base,
        idx_bytes=len(idx),
        data_bytes=len(data),
    )
    return RangePart(head, idx, data)


TOMBSTONES = st.builds(
    Tombstone,
    gap_from=SEQS,
    gap_to=SEQS,
    reason=st.sampled_from(["cap", "ttl", "crash"]),
    missed_estimate=SEQS,
    earliest_seq=SEQS,
    head_seq=SEQS,
)


@st.composite
def pages(draw: st.DrawFn) -> RangePage:
    found = tuple(draw(st.lists(parts(), max_size=3)))
    head = RangeHead(
        topic=draw(st.text(max_size=10)),
        epoch=draw(SEQS),
        next_from_seq=draw(SEQS),
        head_seq=draw(SEQS),
        earliest_seq=draw(SEQS),
        tombstone=draw(st.none() | TOMBSTONES),
        parts=[part.head for part in found],
    )
    return RangePage(head, found)


@given(page=pages())
def test_a_page_decodes_to_what_was_encoded(page: RangePage) -> None:
    assert decode_range(b"".join(encode_range(page))) == page


@given(page=pages(), data=st.data())
def test_a_page_that_is_cut_or_too_long_is_refused(page: RangePage, data: st.DataObject) -> None:
    body = b"".join(encode_range(page))
    cut = data.draw(st.integers(0, len(body) - 1))
    for wrong in (body[:cut], body + b"x"):
        with pytest.raises(CorruptData):
            decode_range(wrong)


@given(body=st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused_as_damage(body: bytes) -> None:
    for hostile in (body, MAGIC + body, MAGIC + len(body).to_bytes(4, "little") + body):
        with pytest.raises(CorruptData):
            decode_range(hostile)


@given(page=pages(), data=st.data())
def test_a_changed_byte_never_ends_in_another_error(page: RangePage, data: st.DataObject) -> None:
    body = bytearray(b"".join(encode_range(page)))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        decode_range(body)
    except CorruptData:
        return
