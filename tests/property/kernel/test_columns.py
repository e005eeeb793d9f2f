"""Properties of `decode_columns`: Arrow's buffers hold what the engine's reader shows."""

import json
import struct
from typing import Any

from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    binary,
    booleans,
    data,
    fixed_dictionaries,
    integers,
    none,
    sampled_from,
    tuples,
)
from tests.property.kernel.frames import Chunk, chunks, edits, few_names, harm
from tests.property.kernel.twins import agreed, is_refused

from topics.errors import CorruptData
from topics.kernel import MATCH_EQ, MATCH_PREFIX, SEGMENT_LAYOUT, WAL_LAYOUT
from topics.kernel.batch import Column, Columns

layouts = sampled_from([WAL_LAYOUT, SEGMENT_LAYOUT])
choices = fixed_dictionaries(
    {
        "columns": integers(0, 15),
        "match": none() | tuples(sampled_from([MATCH_EQ, MATCH_PREFIX]), few_names),
        "verify": booleans(),
    }
)
ALL: dict[str, Any] = {"columns": 15, "match": None, "verify": True}
SHOWN_AS = {"data": "data", "meta": "meta", "tag": "$tag", "node": "$node"}
SMALL = 2**63 - 1


def texts(column: Column, count: int) -> list[str | None]:
    offsets = struct.unpack(f"<{count + 1}i", column.offsets)
    assert offsets[0] == 0
    assert offsets[-1] == len(column.heap)
    found: list[str | None] = []
    for i in range(count):
        there = not column.validity or column.validity[i >> 3] >> (i & 7) & 1
        text = column.heap[offsets[i] : offsets[i + 1]].decode()
        assert there or text == ""
        found.append(text if there else None)
    assert found.count(None) == column.nulls
    return found


def rows(found: Columns) -> list[dict[str, Any]]:
    """Turn columns back into records, so that two ways of reading can be compared."""
    seqs = struct.unpack(f"<{found.count}q", found.seq)
    times = struct.unpack(f"<{found.count}q", found.ts)
    records: list[dict[str, Any]] = [
        {"$seq": seq, "$ts": ts} for seq, ts in zip(seqs, times, strict=True)
    ]
    for name, shown in SHOWN_AS.items():
        column = getattr(found, name)
        if column is None:
            continue
        for record, text in zip(records, texts(column, found.count), strict=True):
            if text is not None:
                record[shown] = json.loads(text) if shown in ("data", "meta") else text
    return records


def projected(chunk: Chunk, layout: int, match: tuple[int, bytes] | None) -> list[dict[str, Any]]:
    page = agreed(
        "project_records", chunk.frames, chunk.idx, base=0, layout=layout,
        first_seq=chunk.first_seq, start=0, stop=len(chunk.records), limit=1000, budget=1 << 30,
        skip_nodes=(), match=match, include_meta=True, include_tags=True, include_data=True,
        verify=True,
    )  # fmt: skip
    records: list[dict[str, Any]] = json.loads(b"[" + page.json + b"]")
    return records


def fits(chunk: Chunk) -> bool:
    """Arrow has no unsigned time: what does not fit 63 bits is refused."""
    last = chunk.first_seq + len(chunk.records) - 1
    return last <= SMALL and all(ts <= SMALL for ts in chunk.timestamps)


@given(layout=layouts, shown=choices, choose=data())
def test_columns_hold_what_the_reader_of_the_engine_shows(
    layout: int, shown: dict[str, Any], choose: DataObject
) -> None:
    chunk = choose.draw(chunks(layout=layout))
    found = agreed(
        "decode_columns", chunk.frames, chunk.idx, base=0, layout=layout,
        first_seq=chunk.first_seq, start=0, stop=len(chunk.records), **shown,
    )  # fmt: skip
    if not fits(chunk):
        return
    wanted = {"$seq", "$ts"} | {
        shown_as
        for bit, shown_as in enumerate(["data", "meta", "$tag", "$node"])
        if shown["columns"] >> bit & 1
    }
    expected = [
        {name: value for name, value in record.items() if name in wanted}
        for record in projected(chunk, layout, shown["match"])
    ]
    assert rows(found) == expected


@given(layout=layouts, choose=data())
def test_a_part_of_a_chunk_is_the_same_part_of_its_columns(layout: int, choose: DataObject) -> None:
    chunk = choose.draw(chunks(layout=layout))
    if not fits(chunk):
        return
    start = choose.draw(integers(0, len(chunk.records)))
    stop = choose.draw(integers(start, len(chunk.records)))
    call = {"base": 0, "layout": layout, "first_seq": chunk.first_seq, **ALL}
    whole = agreed(
        "decode_columns", chunk.frames, chunk.idx, start=0, stop=len(chunk.records), **call
    )
    part = agreed("decode_columns", chunk.frames, chunk.idx, start=start, stop=stop, **call)
    first, last = chunk.first_seq + start, chunk.first_seq + stop - 1
    assert rows(part) == [record for record in rows(whole) if first <= record["$seq"] <= last]


@given(layout=layouts, choose=data())
def test_seq_and_time_need_no_frames(layout: int, choose: DataObject) -> None:
    chunk = choose.draw(chunks(layout=layout))
    call = {
        "base": 0, "layout": layout, "first_seq": chunk.first_seq, "start": 0,
        "stop": len(chunk.records), "match": None,
    }  # fmt: skip
    without = agreed("decode_columns", b"", chunk.idx, columns=0, verify=False, **call)
    whole = agreed("decode_columns", chunk.frames, chunk.idx, columns=15, verify=True, **call)
    if fits(chunk):
        assert (without.seq, without.ts) == (whole.seq, whole.ts)
    else:
        assert is_refused(without) == is_refused(whole)


@given(layout=layouts, choose=data())
def test_no_altered_record_becomes_a_row_when_verified(layout: int, choose: DataObject) -> None:
    chunk = choose.draw(chunks(layout=layout))
    if not chunk.frames or not fits(chunk):
        return
    bit = choose.draw(integers(0, len(chunk.frames) * 8 - 1))
    frames = bytearray(chunk.frames)
    frames[bit // 8] ^= 1 << (bit % 8)
    call = {"base": 0, "layout": layout, "first_seq": chunk.first_seq, "start": 0}
    call["stop"] = len(chunk.records)
    found = agreed("decode_columns", bytes(frames), chunk.idx, **call, **ALL)
    if is_refused(found):
        assert found[0] is CorruptData
        assert "record " in found[1]
    else:  # the bit was in a deleted record, or in a delete byte, which the idx overrules
        assert found == agreed("decode_columns", chunk.frames, chunk.idx, **call, **ALL)


@given(
    layout=layouts,
    shown=choices,
    changes=edits,
    idx_changes=edits,
    base=integers(-20, 20) | integers(-(2**63), 2**63 - 1),
    choose=data(),
)
def test_hostile_frames_and_idx_are_decoded_or_refused_alike(
    *,
    layout: int,
    shown: dict[str, Any],
    changes: list[tuple[int, int, bytes]],
    idx_changes: list[tuple[int, int, bytes]],
    base: int,
    choose: DataObject,
) -> None:
    chunk = choose.draw(chunks(layout=layout))
    harmed, idx = harm(chunk.frames, changes), harm(chunk.idx, idx_changes)
    call = {"layout": layout, "first_seq": chunk.first_seq, "start": 0, **shown}
    for buffer, entries, offset in [
        (harmed, chunk.idx, 0), (chunk.frames, idx, 0), (harmed, idx, base),
    ]:  # fmt: skip
        stop = len(entries) // 20
        agreed("decode_columns", buffer, entries, base=offset, stop=stop, **call)


@given(buffer=binary(max_size=150), idx=binary(max_size=80), layout=layouts, shown=choices)
def test_random_bytes_are_decoded_alike(
    buffer: bytes, idx: bytes, layout: int, shown: dict[str, Any]
) -> None:
    stop = len(idx) // 20
    call = {"base": 0, "layout": layout, "first_seq": 2**64 - 1, "start": 0, **shown}
    agreed("decode_columns", buffer, idx, stop=stop, **call)
    assert is_refused(agreed("decode_columns", buffer, idx, stop=stop + 1, **call))
