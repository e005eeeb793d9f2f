"""The rules of a write, one by one, in words and examples."""

import json
from types import ModuleType
from typing import Any

import pytest

from topics.errors import BatchTooLarge, RecordTooLarge, RequestError, UnknownField
from topics.kernel import Batch

LIMITS = {
    "max_records": 3,
    "max_record_bytes": 40,
    "max_meta_bytes": 20,
    "max_tag_bytes": 4,
    "max_node_bytes": 4,
}


def parse(twin: ModuleType, body: str | bytes, **limits: int) -> Batch:
    raw = body.encode() if isinstance(body, str) else body
    batch = twin.parse_batch(raw, **{**LIMITS, **limits})
    assert isinstance(batch, Batch)
    return batch


def parts(batch: Batch) -> list[tuple[bytes, bytes, bytes]]:
    """`(node, tag, payload)` of every frame, read by the format page."""
    found = []
    for i in range(batch.count):
        entry = batch.idx[i * 20 : i * 20 + 20]
        at, size = (int.from_bytes(entry[a : a + 4], "little") for a in (0, 4))
        frame = bytes(batch.frames[at : at + size])
        node, tag = (int.from_bytes(frame[a : a + 2], "little") for a in (30, 32))
        found.append((frame[38 : 38 + node], frame[38 + node : 38 + node + tag],
                      frame[38 + node + tag : -8]))  # fmt: skip
    return found


@pytest.mark.parametrize(
    "body",
    [
        "",
        "  ",
        "{",
        "{}x",
        '{"records":[{"data":1}]}{}',
        '{"records":[{"data":1},]}',
        '{"records":[{"data":1,}]}',
        '{"records":[{"data":NaN}]}',
        '{"records":[{"data":-Infinity}]}',
        '{"records":[{"data":01}]}',
        '{"records":[{"data":1.}]}',
        '{"records":[{"data":.1}]}',
        '{"records":[{"data":+1}]}',
        '{"records":[{"data":1e}]}',
        '{"records":[{"data":-}]}',
        '{"records":[{"data":tru}]}',
        '{"records":[{"data":"\\x41"}]}',
        '{"records":[{"data":"\\u12g4"}]}',
        '{"records":[{"data":"\t"}]}',
        '{"records":[{"data":\'a\'}]}',
        '{"records":[{data:1}]}',
        '{"records":[{"data" 1}]}',
        '{"records":[{"data":1]}',
        '{"records":[{"data":[1}]}',
        '{"records":[{"data":1}],,"x":1}',
        '\ufeff{"records":[{"data":1}]}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":"\xc0\xaf"}]}',
        b'{"records":[{"data":"\xed\xa0\x80"}]}',
        b'{"records":[{"data":"\xf5\x80\x80\x80"}]}',
        b'{"records":[{"data":"\xe2\x82"}]}',
        b'{"records":[{"data":1}]}\x00',
        b'{"records":[{"data":1}]}\xff',
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_place(
    twin: ModuleType, body: str | bytes
) -> None:
    with pytest.raises(RequestError, match=r"not valid JSON at byte \d+: expected") as caught:
        parse(twin, body)
    assert caught.type is RequestError


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{}", "'records' is missing"),
        ('{"records":{}}', "'records' must be an array"),
        ('{"records":null}', "'records' must be an array"),
        ('{"records":[]}', "'records' is empty"),
        ('{"records":[{"data":1},7]}', "record 1: must be an object"),
        ('{"records":[{}]}', "record 0: 'data' is missing"),
        ('{"records":[{"tag":"x"}]}', "record 0: 'data' is missing"),
        ('{"records":[{"data":1,"tag":5}]}', "record 0: 'tag' must be a string"),
        ('{"records":[{"data":1,"tag":"12345"}]}', "record 0: 'tag' is longer than 4 bytes"),
        ('{"records":[{"data":1,"tag":"ééé"}]}', "record 0: 'tag' is longer than 4 bytes"),
        ('{"records":[{"data":1,"tag":"\\ud800"}]}', "record 0: 'tag' holds half a surrogate"),
        ('{"records":[{"data":1,"tag":"\\udc00\\ud800"}]}', "'tag' holds half a surrogate"),
        ('{"records":[{"data":1,"node":[]}]}', "record 0: 'node' must be a string"),
        ('{"records":[{"data":1,"node":"12345"}]}', "record 0: 'node' is longer than 4 bytes"),
        ('{"records":[{"data":1,"node":"\\ud800x"}]}', "record 0: 'node' holds half a surr"),
        ('{"records":[{"data":1,"meta":[]}]}', "record 0: 'meta' must be an object"),
        ('{"records":[{"data":1,"meta":{"a":"123456789012345"}}]}', "'meta' is longer than 20"),
        ('{"records":[{"data":1}],"node":5}', "'node' must be a string"),
        ('{"records":[{"data":1}],"node":"12345"}', "'node' is longer than 4 bytes"),
        ('{"records":[{"data":1}],"node":"\\ud800"}', "'node' holds half a surrogate"),
    ],
)
def test_a_wrong_field_is_refused_and_named(twin: ModuleType, body: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        parse(twin, body)
    assert caught.type is RequestError


def test_more_records_than_allowed_are_a_batch_too_large(twin: ModuleType) -> None:
    assert parse(twin, '{"records":[{"data":1},{"data":1},{"data":1}]}').count == 3
    with pytest.raises(BatchTooLarge, match="'records' holds 4, the limit is 3"):
        parse(twin, '{"records":[{"data":1},{"data":1},{"data":1},{}]}')


def test_data_and_meta_above_the_limit_are_a_record_too_large(twin: ModuleType) -> None:
    exact = '{"records":[{"data":"' + "x" * 31 + '","meta":{"a":1}}]}'
    assert parse(twin, exact).count == 1
    with pytest.raises(RecordTooLarge, match="record 0: 'data' and 'meta' are longer than 40"):
        parse(twin, exact.replace("xx", "xxx", 1))


def test_meta_may_have_64_keys_and_no_more(twin: ModuleType) -> None:
    def body(keys: int) -> str:
        members = ",".join(f'"k{i}":[]' for i in range(keys))
        return f'{{"records":[{{"data":0,"meta":{{{members}}}}}]}}'

    wide = {"max_meta_bytes": 4096, "max_record_bytes": 4096}
    assert parse(twin, body(64), **wide).count == 1
    with pytest.raises(RequestError, match="record 0: 'meta' has more than 64 keys"):
        parse(twin, body(65), **wide)


def test_broken_json_beats_every_other_fault(twin: ModuleType) -> None:
    with pytest.raises(RequestError, match="not valid JSON at byte 87") as caught:
        parse(twin, '{"node":5,"records":[{"data":"' + "x" * 50 + '"},{}],}')
    assert caught.type is RequestError


def test_faults_are_reported_in_the_documented_order(twin: ModuleType) -> None:
    many = ",".join(['{"tag":5}'] * 4)
    with pytest.raises(BatchTooLarge):
        parse(twin, f'{{"node":5,"records":[{many}]}}')
    with pytest.raises(RequestError, match=r"^'node' must be"):
        parse(twin, '{"node":5,"records":[{"tag":5}]}')
    with pytest.raises(RequestError, match="'data' is missing"):
        parse(twin, '{"records":[{"tag":5,"node":5,"meta":5}]}')
    too_large = '"data":"' + "x" * 60 + '"'
    with pytest.raises(RequestError, match="'meta' must be"):
        parse(twin, f'{{"records":[{{"meta":5,{too_large}}}]}}')
    with pytest.raises(RecordTooLarge, match="record 0"):
        parse(twin, f'{{"records":[{{{too_large}}},{{}}]}}')


def test_the_last_of_two_equal_keys_wins(twin: ModuleType) -> None:
    body = """{"records":5,"create":1,"node":7,"records":[
        {"data":1,"data":2,"tag":8,"tag":"t","node":"a","node":null,"meta":4,"meta":null}
    ],"node":"n","create":2}"""
    batch = parse(twin, body)
    assert parts(batch) == [(b"n", b"t", b"2")]
    assert batch.envelope == {"create": b"2"}


def test_a_last_records_that_is_wrong_wins_too(twin: ModuleType) -> None:
    with pytest.raises(RequestError, match="'records' is empty"):
        parse(twin, '{"records":[{"data":1}],"records":[]}')


def test_the_node_of_the_batch_is_for_records_without_one_wherever_it_stands(
    twin: ModuleType,
) -> None:
    records = '"records":[{"data":1},{"data":2,"node":"own"},{"data":3,"node":null}]'
    for body in (f'{{"node":"all",{records}}}', f'{{{records},"node":"all"}}'):
        nodes = [node for node, _, _ in parts(parse(twin, body))]
        assert nodes == [b"all", b"own", b"all"]
    assert [node for node, _, _ in parts(parse(twin, f'{{{records},"node":null}}'))] == [
        b"", b"own", b"",
    ]  # fmt: skip


def test_an_empty_tag_is_a_tag_and_null_is_none(twin: ModuleType) -> None:
    batch = parse(twin, '{"records":[{"data":1,"tag":""},{"data":1,"tag":null}]}')
    assert [batch.idx[16], batch.idx[36]] == [1, 0]


def test_keys_written_with_escapes_are_the_same_keys(twin: ModuleType) -> None:
    escaped = r'{"\u0072ecords":[{"d\u0061ta":1,"\u0074ag":"a\/b"}],"cr\u0065ate":1}'
    batch = parse(twin, escaped)
    assert parts(batch) == [(b"", b"a/b", b"1")]
    assert batch.envelope == {"create": b"1"}


def test_raw_slices_keep_their_spelling_and_lose_the_space_around_them(twin: ModuleType) -> None:
    body = '{"records":[{"data" : [1.0, 1E5 ,"\\u0041"] , "meta" : { "a" : 1 } }], "config" : {} }'
    batch = parse(twin, body)
    data = b'[1.0, 1E5 ,"\\u0041"]'
    assert parts(batch) == [(b"", b"", len(data).to_bytes(4, "little") + data + b'{ "a" : 1 }')]
    assert batch.envelope == {"config": b"{}"}


def test_every_frame_but_the_last_says_that_the_batch_goes_on(twin: ModuleType) -> None:
    batch = parse(twin, '{"records":[{"data":1},{"data":2},{"data":3}]}')
    assert [batch.frames[at + 5] & 0x20 for at in (0, 47, 94)] == [0x20, 0x20, 0]


def test_a_body_large_enough_to_give_up_the_gil_is_parsed_the_same(twin: ModuleType) -> None:
    records: list[dict[str, Any]] = [{"data": "x" * 50, "tag": f"{i % 100}"} for i in range(9000)]
    body = json.dumps({"records": records, "node": "n\u00e9"}, separators=(",", ":"))
    batch = parse(twin, body, max_records=9000, max_record_bytes=100)
    assert batch.count == 9000
    assert parts(batch)[8999] == ("né".encode(), b"99", b'"' + b"x" * 50 + b'"')
    with pytest.raises(RequestError, match="'tag' must be a string"):
        parse(twin, body.replace('"99"', "99"), max_records=9000, max_record_bytes=100)


@pytest.mark.parametrize(
    ("body", "message", "nearest"),
    [
        ('{"records":[{"data":1,"tags":"x"}]}', "record 0: unknown field 'tags'", "tag"),
        ('{"records":[{"data":1},{"$tag":1,"data":1}]}', "record 1: unknown field '$tag'", "tag"),
        ('{"records":[{"data":1,"records":1}]}', "record 0: unknown field 'records'", None),
        ('{"records":[{"data":1,"create":1}]}', "record 0: unknown field 'create'", None),
        ('{"record":[{"data":1}]}', "unknown field 'record': did you mean 'records'?", "records"),
        ('{"data":1}', "unknown field 'data': it belongs into a record", "records"),
        ('{"records":[{"data":1}],"idempotencykey":"a"}', "idempotency_key", "idempotency_key"),
        ('{"records":[{"data":1}],"":1}', "unknown field '': known are", None),
        (r'{"records":[{"data":1}],"\ud800":1}', r"unknown field '\ud800'", None),
        (r'{"records":[{"data":1}],"d\u0061t\u0061":1}', "unknown field 'data'", "records"),
    ],
)
def test_a_field_that_nobody_knows_is_refused_with_the_nearest_name(
    twin: ModuleType, body: str, message: str, nearest: str | None
) -> None:
    with pytest.raises(UnknownField) as caught:
        parse(twin, body)
    assert message in str(caught.value)
    assert caught.value.nearest == nearest
    assert caught.value.detail.get("nearest") == nearest


@pytest.mark.parametrize("name", ["x" * 100_000, "\\u0041" * 100_000, "é" * 5_000, '\\"' * 300])
def test_of_an_endless_name_only_the_beginning_is_shown(twin: ModuleType, name: str) -> None:
    with pytest.raises(UnknownField) as caught:
        parse(twin, f'{{"{name}":1}}')
    assert len(str(caught.value)) < 300
    assert caught.value.nearest is None


def test_nothing_behind_an_unknown_field_is_read(twin: ModuleType) -> None:
    """A body of millions of them costs what the first one costs."""
    with pytest.raises(UnknownField, match="'a0'"):
        parse(twin, '{"a0":1,' + '"a":1,' * 1000 + "this is no JSON")


def test_a_name_sent_a_thousand_times_is_kept_once(twin: ModuleType) -> None:
    batch = parse(twin, '{"records":[{"data":1}],' + '"config":{},' * 1000 + '"create":true}')
    assert batch.envelope == {"config": b"{}", "create": b"true"}
