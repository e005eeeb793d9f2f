"""Properties of `project_records`: what a reader sees of frames, and of frames gone bad."""

import json
from typing import Any

from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    binary,
    booleans,
    data,
    fixed_dictionaries,
    integers,
    just,
    lists,
    none,
    sampled_from,
    tuples,
)
from tests.property.kernel.frames import Chunk, Record, chunks, edits, few_names, harm
from tests.property.kernel.twins import agreed, is_refused

from topics.errors import CorruptData
from topics.kernel import MATCH_EQ, MATCH_PREFIX, SEGMENT_LAYOUT, WAL_LAYOUT, Projection

layouts = sampled_from([WAL_LAYOUT, SEGMENT_LAYOUT])
matches = none() | tuples(sampled_from([MATCH_EQ, MATCH_PREFIX]), few_names)
choices = fixed_dictionaries(
    {
        "limit": integers(0, 15) | just(1000),
        "budget": integers(-1, 400) | just(1 << 20),
        "skip_nodes": lists(few_names, max_size=2).map(tuple)
        | just((*(b"%d" % i for i in range(12)), b"a")),
        "match": matches,
        "include_meta": booleans(),
        "include_tags": booleans(),
        "include_data": booleans(),
        "verify": booleans(),
    }
)
EVERYTHING = {
    "limit": 1000, "budget": 1 << 20, "skip_nodes": (), "match": None, "include_meta": True,
    "include_tags": True, "include_data": True, "verify": True,
}  # fmt: skip


def model_record(chunk: Chunk, i: int, shown: dict[str, Any]) -> bytes:
    record = chunk.records[i]
    parts = [b'"$seq":%d' % (chunk.first_seq + i), b'"$ts":%d' % chunk.timestamps[i]]
    if record.node is not None:
        parts.append(b'"$node":' + json.dumps(record.node.decode(), ensure_ascii=False).encode())
    if record.tag is not None and shown["include_tags"]:
        parts.append(b'"$tag":' + json.dumps(record.tag.decode(), ensure_ascii=False).encode())
    if record.meta is not None and shown["include_meta"]:
        parts.append(b'"meta":' + record.meta)
    if shown["include_data"]:
        parts.append(b'"data":' + record.data)
    return b"{" + b",".join(parts) + b"}"


def is_wanted(record: Record, shown: dict[str, Any]) -> bool:
    if record.deleted or (record.node is not None and record.node in shown["skip_nodes"]):
        return False
    if shown["match"] is None:
        return True
    operator, needle = shown["match"]
    if record.tag is None:
        return False
    return record.tag == needle if operator == MATCH_EQ else record.tag.startswith(needle)


def model(chunk: Chunk, start: int, stop: int, shown: dict[str, Any]) -> Projection:
    out: list[bytes] = []
    i = start
    while i < stop and len(out) < shown["limit"]:
        if is_wanted(chunk.records[i], shown):
            grown = [*out, model_record(chunk, i, shown)]
            if out and len(b",".join(grown)) > shown["budget"]:
                break
            out = grown
        i += 1
    return Projection(b",".join(out), len(out), i)


@given(layout=layouts, shown=choices, shift=integers(-50, 50), choose=data())
def test_a_page_shows_what_was_written_and_asked_for(
    layout: int, shown: dict[str, Any], shift: int, choose: DataObject
) -> None:
    chunk = choose.draw(chunks(layout=layout))
    start = choose.draw(integers(0, len(chunk.records)))
    stop = choose.draw(integers(start, len(chunk.records)))
    first = int.from_bytes(chunk.idx[start * 20 : start * 20 + 4], "little") if chunk.idx else 0
    # The buffer may begin before the idx counts from, or be a window that begins behind it.
    base = min(shift, first)
    buffer = chunk.frames[base:] if base >= 0 else bytes(-base) + chunk.frames
    page = agreed(
        "project_records", buffer, chunk.idx, base=base, layout=layout,
        first_seq=chunk.first_seq, start=start, stop=stop, **shown,
    )  # fmt: skip
    assert page == model(chunk, start, stop, shown)
    assert len(json.loads(b"[" + page.json + b"]")) == page.count


@given(layout=layouts, choose=data())
def test_no_altered_record_is_ever_shown_when_verified(layout: int, choose: DataObject) -> None:
    chunk = choose.draw(chunks(layout=layout))
    if not chunk.frames:
        return
    bit = choose.draw(integers(0, len(chunk.frames) * 8 - 1))
    frames = bytearray(chunk.frames)
    frames[bit // 8] ^= 1 << (bit % 8)
    call = {"base": 0, "layout": layout, "first_seq": chunk.first_seq, "start": 0}
    call["stop"] = len(chunk.records)
    page = agreed("project_records", bytes(frames), chunk.idx, **call, **EVERYTHING)
    if is_refused(page):
        assert page[0] is CorruptData
    else:  # the bit was in a deleted record, or in a delete byte, which the idx overrules
        assert page == agreed("project_records", chunk.frames, chunk.idx, **call, **EVERYTHING)


@given(
    layout=layouts,
    shown=choices,
    changes=edits,
    idx_changes=edits,
    base=integers(-20, 20) | integers(-(2**63), 2**63 - 1),
    choose=data(),
)
def test_hostile_frames_and_idx_are_shown_or_refused_alike(
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
        agreed("project_records", buffer, entries, base=offset, stop=stop, **call)


@given(buffer=binary(max_size=150), idx=binary(max_size=80), layout=layouts, shown=choices)
def test_random_bytes_are_projected_alike(
    buffer: bytes, idx: bytes, layout: int, shown: dict[str, Any]
) -> None:
    stop = len(idx) // 20
    call = {"base": 0, "layout": layout, "first_seq": 2**64 - 1, "start": 0, "stop": stop}
    agreed("project_records", buffer, idx, **call, **shown)
    assert is_refused(agreed("project_records", buffer, idx, **{**call, "stop": stop + 1}, **shown))
