"""Half a surrogate pair is JSON, and one such record must stop nobody."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

import topics
from topics.model.diff import Record
from topics.model.json_text import decode_object, decode_text, decode_value, encode_object

HALF = b'"a\\ud800b"'
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text() | st.just("\udfff"), values, max_size=4), st.integers(0, 2))
def test_members_are_the_very_bytes_whatever_strings_they_have(
    value: dict[str, object], indent: int
) -> None:
    text = json.dumps(value, indent=indent or None).encode()
    members = decode_object(text)
    assert {name: json.loads(bytes(raw)) for name, raw in members.items()} == value
    assert all(bytes(raw) in text for raw in members.values())
    assert json.loads(encode_object(members)) == value


def test_records_and_values_are_read() -> None:
    text = b'[{"$seq":1,"$ts":2,"$tag":"t","meta":{"k":%b},"data":[1e400,%b]}]' % (HALF, HALF)
    (record,) = decode_text(text, list[Record])
    assert (record.seq, record.ts, record.tag, record.node) == (1, 2, "t", None)
    assert record.meta == {"k": "a\ud800b"}
    assert bytes(record.data_json) == b"[1e400,%b]" % HALF


@pytest.mark.parametrize("text", [b"", b"[", b'{"a":', b'{"a":1', b'["\\ud8"]', b"[1,]"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_text(text, list[Raw])


def test_null_is_no_members() -> None:
    assert decode_object(b"null") == {}
    assert decode_value(b"null") is None


def test_a_worn_out_job_with_half_a_pair_dies_as_others_do(tmp_path: object) -> None:
    with topics.open(str(tmp_path)) as log:
        log.create("q", type="queue", max_deliveries=1, dead_letter="dead", lease_ms=100)
        body = b'{"records":[{"data":%b,"meta":{"\\udc00":%b}}]}' % (HALF, HALF)
        log.append_json("q", body)
        (job,) = log.claim("q", node="w").jobs
        log.nack("q", [job.seq], node="w", lease_ids=[job.lease_id])
        log.claim("q", node="w")
        log.engine.sweep_queues()
        (letter,) = log.diff("dead").records
        assert bytes(letter.data_json) == HALF
        assert log.redrive("dead").moved == 1
        (again,) = log.claim("q", node="w").jobs
        assert bytes(again.data_json) == HALF
        assert json.loads(bytes(again.meta_json)) == {"\udc00": "a\ud800b"}
        assert log.last_error is None


def test_a_marking_router_copies_it(tmp_path: object) -> None:
    with topics.open(str(tmp_path)) as log:
        log.create("a")
        for source, dest in (("a", "b"), ("b", "c")):
            fields = {"source": source, "dest": dest, "guarantee": "exactly_once"}
            log.engine.put_router(f"{source}-{dest}", fields)
        log.append_json("a", b'{"records":[{"data":1,"meta":{"k":%b}}]}' % HALF)
        (copy,) = log.diff("c").records
        assert copy.meta is not None
        assert copy.meta["k"] == "a\ud800b"
        assert log.last_error is None
