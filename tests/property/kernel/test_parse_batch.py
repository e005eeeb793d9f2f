"""Properties of `parse_batch` over every spelling of a body, and over bodies that are none."""

import json
from collections.abc import Mapping

from hypothesis import example, given
from hypothesis.strategies import (
    DataObject,
    binary,
    data,
    integers,
    lists,
    permutations,
    sampled_from,
    text,
    tuples,
)
from tests.property.kernel.bodies import (
    LIMITS,
    WIDE_LIMITS,
    Body,
    bodies,
    parse_strictly,
    quoted,
    raw_json,
)
from tests.property.kernel.frames import FLAG_OPEN, edits, harm, idx_entry, wal_frame
from tests.property.kernel.twins import agreed, is_refused

from topics.errors import RecordTooLarge, RequestError, UnknownField
from topics.kernel import Batch
from topics.kernel.refusals import BODY_FIELDS, RECORD_FIELDS

NOT_JSON = ("the body is not valid JSON", "the body is nested deeper")
TOKENS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud83d", b"\\ude00", b"null",
    b"true", b"NaN", b"-", b"0", b"01", b"1.", b".5", b"1e", b"Infinity", b"\xff", b"\xc0\x80",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\0", b"\x1f", b"\x7f", b" ", b"//",
    b'"records"', b'"data"', b'"node"', b'"meta"', b'"tag"', b"[]", b"{}", b'"x":1,', b"\xe2\x82",
    b'"create":1,',
]  # fmt: skip


def is_strict_json(body: bytes) -> bool:
    try:
        parse_strictly(body)
    except (ValueError, RecursionError):
        return False
    return True


def agree_with_the_json_module(body: bytes) -> None:
    """Refuse as not JSON exactly what the json module, held to the RFC, refuses.

    But for a field that nobody knows: what is behind it is not looked at.
    """
    result = agreed("parse_batch", body, **LIMITS)
    if is_refused(result) and result[0] is UnknownField:
        return
    refused_as_json = is_refused(result) and result[1].startswith(NOT_JSON)
    assert refused_as_json is not is_strict_json(body)
    if refused_as_json:
        assert result[0] is RequestError


@given(body=bodies())
def test_frames_hold_exactly_what_was_sent_however_it_is_spelled(body: Body) -> None:
    wide = {**LIMITS, "max_record_bytes": 1 << 20, "max_meta_bytes": 1 << 20}
    batch = agreed("parse_batch", body.raw, **wide)
    assert isinstance(batch, Batch)
    frames, idx = bytearray(), bytearray()
    for i, record in enumerate(body.records):
        last = i == len(body.records) - 1
        frame = wal_frame(record, flags=0 if last else FLAG_OPEN, stamped=False)
        idx += idx_entry(len(frames), len(frame), 0, record.flags)
        frames += frame
    assert (batch.frames, batch.idx) == (frames, idx)
    assert batch.count == len(body.records)
    assert batch.payload_bytes == len(frames) - 46 * batch.count
    assert batch.envelope == body.envelope


@given(body=bodies(), changes=edits)
def test_a_harmed_body_is_judged_as_the_json_module_judges_it(
    body: Body, changes: list[tuple[int, int, bytes]]
) -> None:
    agree_with_the_json_module(harm(body.raw, changes))


@given(
    body=bodies(),
    changes=lists(tuples(integers(0, 2**16), integers(1, 3), sampled_from(TOKENS)), min_size=1),
)
def test_a_body_with_wrong_tokens_is_judged_as_the_json_module_judges_it(
    body: Body, changes: list[tuple[int, int, bytes]]
) -> None:
    agree_with_the_json_module(harm(body.raw, changes))


@given(tokens=lists(sampled_from(TOKENS)))
def test_token_soup_as_data_is_judged_as_the_json_module_judges_it(tokens: list[bytes]) -> None:
    agree_with_the_json_module(b'{"records":[{"data":' + b"".join(tokens) + b"}]}")


@given(body=binary())
def test_random_bytes_are_refused_alike(body: bytes) -> None:
    agree_with_the_json_module(body)
    agree_with_the_json_module(b'{"records":[{"data":"' + body + b'"}]}')


@given(body=bodies(), choose=data())
def test_a_body_cut_short_anywhere_is_not_json(body: Body, choose: DataObject) -> None:
    whole = body.raw.rstrip()
    kept = choose.draw(integers(0, len(whole) - 1), label="bytes kept")
    error, message = agreed("parse_batch", whole[:kept], **LIMITS)
    assert error is RequestError
    assert message.startswith(NOT_JSON)


@given(raw=raw_json())
def test_any_json_value_is_a_record_and_comes_back_byte_for_byte(raw: str) -> None:
    body = b'{"records":[{"data":' + raw.encode() + b"}]}"
    batch = agreed("parse_batch", body, **WIDE_LIMITS)
    assert batch.frames[38:-8] == raw.encode()


@given(depth=integers(240, 262), opener=sampled_from(["[", '{"a":', '[{"b":', " [ "]))
@example(depth=253, opener="[")
@example(depth=254, opener="[")
def test_nesting_is_allowed_up_to_256_levels_and_no_further(depth: int, opener: str) -> None:
    closer = "".join({"[": "]", "{": "}"}.get(c, "") for c in reversed(opener))
    nested = opener * depth + "1" + closer * depth
    agree_with_the_json_module(f'{{"records":[{{"data":{nested}}}]}}'.encode())
    agree_with_the_json_module(f'{{"records":[{{"data":1}}],"config":{nested}}}'.encode())


@given(name=text(max_size=30), field=sampled_from(["tag", "node"]))
def test_a_name_decodes_to_the_same_bytes_however_it_is_escaped(name: str, field: str) -> None:
    spelled = {
        json.dumps(name),
        json.dumps(name, ensure_ascii=False),
        '"' + "".join(f"\\u{ord(c):04X}" for c in name if ord(c) < 0x10000) + '"',
    }
    for raw in spelled:
        meant = json.loads(raw).encode()
        limits = {**LIMITS, "max_tag_bytes": 200, "max_node_bytes": 200}
        body = f'{{"records":[{{"data":0,"{field}":{raw}}}]}}'.encode()
        batch = agreed("parse_batch", body, **limits)
        assert batch.frames[38:-9] == meant


@given(choose=data())
def test_only_the_server_names_the_queue_of_a_dead_letter_however_it_is_spelled(
    choose: DataObject,
) -> None:
    name = choose.draw(
        sampled_from(["$dead_letter_from", "$dead_letter_", "$dead_letter", "$", "k"])
    )
    spelled = choose.draw(quoted(name))
    value = choose.draw(sampled_from(['"$dead_letter_from"', '{"$dead_letter_from":1}', "[[]]"]))
    members = choose.draw(permutations([f"{spelled} :{value}", f'"a":{value}', '"b\\\\":"$"']))
    meta = "{ " + " ,".join(members) + "}"
    raw = f'{{"records":[{{"data":0,"meta":{meta}}}]}}'.encode()
    result = agreed("parse_batch", raw, **LIMITS)
    if name.startswith("$dead_letter_"):
        assert result[0] is RequestError
        assert "only the server writes those" in result[1]
    else:
        assert result.frames.endswith(meta.encode() + bytes(8))
    own = agreed("parse_batch", raw, **LIMITS, dead_letters=True)
    assert own.frames.endswith(meta.encode() + bytes(8))


@given(halves=lists(sampled_from(["\\ud83d", "\\ude00", "\\u0041", "x", "é"]), max_size=5))
def test_half_a_surrogate_pair_is_refused_in_a_name_but_kept_in_data(halves: list[str]) -> None:
    raw = '"' + "".join(halves) + '"'
    try:
        meant: bytes | None = json.loads(raw).encode()
    except UnicodeEncodeError:
        meant = None
    result = agreed("parse_batch", f'{{"records":[{{"data":0,"tag":{raw}}}]}}'.encode(), **LIMITS)
    if meant is None:
        assert result[0] is RequestError
        assert "surrogate" in result[1]
    else:
        assert result.frames[38:-9] == meant
    kept = agreed("parse_batch", f'{{"records":[{{"data":{raw}}}]}}'.encode(), **LIMITS)
    assert kept.frames[38:-8] == raw.encode()


FAULTY_FIELDS = {
    "tag": ['"ok"', "null", "5", '"' + "t" * 65 + '"', '"\\udc00"'],
    "node": ['"ok"', "null", "[]", '"' + "é" * 25 + '"', '"\\ud800"'],
    "meta": [
        "{}", "null", "[]", '"x"', '{"a":"' + "m" * 512 + '"}',
        "{" + ",".join(f'"{i}":{i}' for i in range(65)) + "}",
        '{"a":"$dead_letter_from"}', '{"a":1, "\\u0024dead_letter_x":2}',
    ],
    "data": ["1", "null", '"' + "d" * 5000 + '"'],
    "key": ["7", '"k"'],
    "tags": ["[]"],
    "records": ["[]"],
}  # fmt: skip


@given(choose=data())
def test_the_twins_name_the_same_fault_when_a_body_has_several(choose: DataObject) -> None:
    records = []
    for _ in range(choose.draw(integers(0, 4), label="records")):
        members = [
            f'"{key}":{choose.draw(sampled_from(spellings))}'
            for key in choose.draw(permutations([*FAULTY_FIELDS, *FAULTY_FIELDS]))[:6]
            for spellings in [FAULTY_FIELDS[key]]
        ]
        records.append("{" + ",".join(members) + "}")
    records += choose.draw(lists(sampled_from(["7", "[]", "{}"]), max_size=1))
    top = [f'"records":[{",".join(records)}]', '"node":4', '"node":"n"', '"records":{}']
    top += ['"config":[]', '"configs":[]']
    chosen = choose.draw(lists(sampled_from(top), max_size=4))
    limits = {**LIMITS, "max_records": choose.draw(sampled_from([0, 2, 50]))}
    agreed("parse_batch", ("{" + ",".join(chosen) + "}").encode(), **limits)


@given(size=integers(0, 40), limits=sampled_from([{"max_record_bytes": 20}]))
def test_data_and_meta_share_one_limit(size: int, limits: Mapping[str, int]) -> None:
    raw = b'{"records":[{"meta":{"a":1},"data":"' + b"d" * size + b'"}]}'
    result = agreed("parse_batch", raw, **{**LIMITS, **limits})
    if size + 2 + 7 <= 20:
        assert isinstance(result, Batch)
    else:
        assert result[0] is RecordTooLarge


@given(body=bodies(), name=text(max_size=30), behind=binary(max_size=8), choose=data())
def test_a_field_that_nobody_knows_is_refused_with_its_name_whatever_is_behind_it(
    body: Body, name: str, behind: bytes, choose: DataObject
) -> None:
    spelled = choose.draw(quoted(name)).encode()
    rest = b":" + behind
    for known, raw in (
        (BODY_FIELDS, b"{" + spelled + rest),
        (RECORD_FIELDS, b'{"records":[{"data":1},{"data":2,' + spelled + rest),
        (BODY_FIELDS, body.raw.rstrip()[:-1] + b"," + spelled + rest),
    ):
        result = agreed("parse_batch", raw, **WIDE_LIMITS)
        assert (is_refused(result) and result[0] is UnknownField) is (name not in known)
        if name not in known:
            assert f"unknown field {name!r}: " in result[1]


@given(name=sampled_from(BODY_FIELDS), field=sampled_from(RECORD_FIELDS), choose=data())
def test_a_known_name_is_known_however_it_is_escaped(
    name: str, field: str, choose: DataObject
) -> None:
    spelled, spelled_field = choose.draw(quoted(name)), choose.draw(quoted(field))
    body = f'{{{spelled}:null,"records":[{{{spelled_field}:null,"data":1}}]}}'.encode()
    assert isinstance(agreed("parse_batch", body, **LIMITS), Batch)
