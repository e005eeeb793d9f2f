"""Properties of `encode_columns` and `check_records`: bulk-built is what is read back."""

import json
import struct
from array import array
from typing import Any

from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    SearchStrategy,
    binary,
    booleans,
    data,
    dictionaries,
    integers,
    lists,
    none,
    sampled_from,
    text,
    tuples,
)
from tests.property.kernel.frames import edits, harm
from tests.property.kernel.test_columns import rows
from tests.property.kernel.twins import agreed, is_refused

from topics.errors import RequestError
from topics.kernel import SEGMENT_LAYOUT
from topics.kernel.batch import Column, Columns

LIMITS = {
    "max_record_bytes": 400,
    "max_meta_bytes": 100,
    "max_tag_bytes": 12,
    "max_node_bytes": 12,
}
spaces = sampled_from(["", " ", "\n\t ", "\r"])
payloads = sampled_from(['{"a": [1, 2.5e3, "é"]}', "null", '"\\ud83d\\ude00"', "-0", "[[]]", "{}"])
metas = (
    dictionaries(text(max_size=4), integers(0, 9), max_size=3)
    .map(json.dumps)
    .filter(lambda meta: len(meta) <= 90)  # an escape may have twelve bytes
)
names = text(max_size=3)
Row = tuple[str | None, str | None, str | None, str | None]


def padded(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    return tuples(spaces, inner, spaces).map("".join)


good_rows = tuples(padded(payloads), none() | padded(metas), none() | names, none() | names)
any_text = none() | text(max_size=14) | sampled_from(["{", "[1,]", "01", '{"a":1}x', '"\x00"'])
any_rows = tuples(any_text, any_text, any_text, any_text)


def column(cells: list[bytes | None], *, mask: bool) -> Column:
    offsets = array("i", [0])
    for cell in cells:
        offsets.append(offsets[-1] + len(cell or b""))
    validity = bytearray((len(cells) + 7) // 8)
    for i, cell in enumerate(cells):
        validity[i >> 3] |= (cell is not None) << (i & 7)
    nulls = sum(cell is None for cell in cells)
    heap = b"".join(cell or b"" for cell in cells)
    return Column(offsets.tobytes(), heap, bytes(validity) if nulls or mask else b"", nulls)


def columns(found: list[Row], times: list[int], *, mask: bool = False) -> Columns:
    made = [
        column([None if row[i] is None else row[i].encode() for row in found], mask=mask)  # type: ignore[union-attr] # asked one word before
        for i in range(4)
    ]
    return Columns(len(found), b"", array("q", times).tobytes(), *made)


def times_of(choose: DataObject, count: int) -> list[int]:
    steps = choose.draw(lists(integers(0, 5), min_size=count, max_size=count))
    return [1_700_000_000_000 + sum(steps[: i + 1]) for i in range(count)]


def shown(row: Row, seq: int, ts: int) -> dict[str, Any]:
    record: dict[str, Any] = {"$seq": seq, "$ts": ts}
    for name, cell in zip(("data", "meta", "$tag", "$node"), row, strict=True):
        if cell is not None:
            record[name] = json.loads(cell) if name in ("data", "meta") else cell
    return record


@given(found=lists(good_rows, max_size=12), mask=booleans(), choose=data())
def test_rows_are_read_back_as_they_were_given(
    found: list[Row],
    mask: bool,  # noqa: FBT001 - drawn
    choose: DataObject,
) -> None:
    times = times_of(choose, len(found))
    start = choose.draw(integers(0, len(found)))
    stop = choose.draw(integers(start, len(found)))
    first_seq = choose.draw(integers(1, 2**62))
    built = agreed(
        "encode_columns", columns(found, times, mask=mask), start=start, stop=stop, topic_id=7,
        first_seq=first_seq, base=0, **LIMITS,
    )  # fmt: skip
    frames, idx = built
    assert agreed("index_segment", frames, first_seq) == (idx, len(frames), 1)
    assert agreed("check_records", frames, idx, topic_id=7, **LIMITS) is None
    decoded = agreed(
        "decode_columns", frames, idx, base=0, layout=SEGMENT_LAYOUT, first_seq=first_seq,
        start=0, stop=stop - start, columns=15, match=None, verify=True,
    )  # fmt: skip
    wanted = [shown(found[i], first_seq + i - start, times[i]) for i in range(start, stop)]
    assert rows(decoded) == wanted


@given(found=lists(good_rows, min_size=1, max_size=6), choose=data())
def test_parts_of_a_segment_are_the_segment(found: list[Row], choose: DataObject) -> None:
    given_columns = columns(found, times_of(choose, len(found)))
    cut = choose.draw(integers(0, len(found)))
    call: dict[str, Any] = {"topic_id": 3, **LIMITS}
    whole = agreed(
        "encode_columns", given_columns, start=0, stop=len(found), first_seq=5, base=0, **call
    )
    head = agreed("encode_columns", given_columns, start=0, stop=cut, first_seq=5, base=0, **call)
    tail = agreed(
        "encode_columns", given_columns, start=cut, stop=len(found), first_seq=5 + cut,
        base=len(head[0]), **call,
    )  # fmt: skip
    assert (head[0] + tail[0], head[1] + tail[1]) == whole


@given(found=lists(good_rows | any_rows, max_size=6), times=lists(integers(-1, 3), max_size=6))
def test_rows_that_no_append_takes_are_refused_alike(found: list[Row], times: list[int]) -> None:
    times = (times + [9] * len(found))[: len(found)]
    built = agreed(
        "encode_columns", columns(found, times), start=0, stop=len(found), topic_id=7, first_seq=1,
        base=0, **LIMITS,
    )  # fmt: skip
    if not is_refused(built):
        assert agreed("check_records", *built, topic_id=7, **LIMITS) is None
        for row in found:
            json.loads(row[0] or "")


@given(found=lists(good_rows, min_size=1, max_size=4), changes=edits, idx_changes=edits)
def test_hostile_frames_are_judged_alike(
    found: list[Row],
    changes: list[tuple[int, int, bytes]],
    idx_changes: list[tuple[int, int, bytes]],
) -> None:
    frames, idx = agreed(
        "encode_columns", columns(found, [1] * len(found)), start=0, stop=len(found), topic_id=7,
        first_seq=1, base=0, **LIMITS,
    )  # fmt: skip
    for buffer, entries in [
        (harm(bytes(frames), changes), bytes(idx)),
        (bytes(frames), harm(bytes(idx), idx_changes)),
    ]:
        verdict = agreed("check_records", buffer, entries, topic_id=7, **LIMITS)
        assert verdict is None or is_refused(verdict)
    assert agreed("check_records", frames, idx, topic_id=8, **LIMITS)[0] is RequestError


@given(
    offsets=lists(integers(-3, 9), min_size=3, max_size=3),
    heap=binary(max_size=6),
    validity=binary(max_size=2),
)
def test_hostile_columns_are_refused_alike(
    offsets: list[int], heap: bytes, validity: bytes
) -> None:
    hostile = Column(struct.pack("<3i", *offsets), heap, validity, 0)
    good = columns([("1", None, None, None)] * 2, [1, 1])
    for name in ("data", "meta", "tag", "node"):
        parts = {p: getattr(good, p) for p in ("data", "meta", "tag", "node")} | {name: hostile}
        agreed(
            "encode_columns", Columns(2, b"", good.ts, **parts), start=0, stop=2, topic_id=1,
            first_seq=1, base=0, **LIMITS,
        )  # fmt: skip
