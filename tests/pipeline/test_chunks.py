"""Rows become appends that can be repeated, and bad rows are told apart."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from

from topics.errors import BadRow, OptionError
from topics.pipeline.chunks import CHUNKS_MAX, Chunk, cut_chunks
from topics.pipeline.encode import OutRow, check_columns, encode_rows
from topics.pipeline.encode_value import value_texts
from topics.pipeline.options import SinkOptions

SINK = SinkOptions(url="http://h", topic="out")
LENIENT = SinkOptions(url="http://h", topic="out", on_bad_row="deadLetter", dead_letter_topic="bad")


def encoded(to: str | None = "out", **columns: Any) -> list[OutRow]:  # noqa: ANN401 - any column
    return list(encode_rows(pa.RecordBatch.from_pydict(columns), topic=to))


def chunked(rows: list[OutRow], options: SinkOptions = SINK, batch_id: int = 0) -> list[Chunk]:
    return list(cut_chunks(rows, options, batch_id=batch_id))


def sent(chunk: Chunk) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(chunk.body("p"))
    return body


@given(
    targets=lists(sampled_from(["a", "b", "c"]), max_size=60),
    size=integers(1, 7),
    batch_id=integers(0, 2**31),
)
def test_chunks_hold_every_row_once_in_order_with_rising_numbers(
    targets: list[str], size: int, batch_id: int
) -> None:
    options = SinkOptions(url="http://h", batch_records=size)
    rows = (
        encoded(None, data=[str(i) for i in range(len(targets))], topic=targets) if targets else []
    )
    chunks = chunked(rows, options, batch_id)
    assert chunks == chunked(rows, options, batch_id)
    for topic in "abc":
        ours = [chunk for chunk in chunks if chunk.topic == topic]
        written = [int(r["data"]) for chunk in ours for r in sent(chunk)["records"]]
        assert written == [i for i, target in enumerate(targets) if target == topic]
    numbers = [chunk.producer_seq for chunk in chunks]
    assert numbers == sorted(set(numbers))
    assert all(batch_id * CHUNKS_MAX < n < (batch_id + 1) * CHUNKS_MAX for n in numbers)
    assert all(len(chunk.records) <= size for chunk in chunks)


def test_long_records_make_short_chunks() -> None:
    rows = encoded(data=[json.dumps("x" * 900_000)] * 10)
    assert [len(chunk.records) for chunk in chunked(rows)] == [5, 5]


def test_long_metas_make_short_chunks_too() -> None:
    """A body of 10,000 of them would be larger than a server takes."""
    meta = json.dumps({"m": "x" * 16_000})
    chunks = chunked(encoded(data=["1"] * 600, meta=[meta] * 600))
    assert sum(len(chunk.records) for chunk in chunks) == 600
    assert max(len(chunk.body("p")) for chunk in chunks) < 5 << 20


def test_text_is_taken_as_json_and_kept_as_it_is() -> None:
    (chunk,) = chunked(
        encoded(data=['{"b" : 1.0, "a":2}'], tag=["t"], node=["n"], meta=['{"k": 1}'])
    )
    assert b'"data":{"b" : 1.0, "a":2}' in chunk.body("p")
    assert sent(chunk)["records"] == [
        {"data": {"b": 1.0, "a": 2}, "tag": "t", "node": "n", "meta": {"k": 1}}
    ]
    assert sent(chunk)["producer_id"] == "p"


def test_a_dead_letter_is_a_bad_row_unless_it_shall_be_what_it_was() -> None:
    kept = {"$dead_letter_from": "q", "$dead_letter_meta": {"b": [1]}}
    metas = [{"a": 1, "$dead_letter_from": "q"}, {"$dead_letter_from": "q"}, kept, {"c": "$dead_"}]
    texts = [json.dumps(meta) for meta in metas]
    with pytest.raises(BadRow, match=r"'\$dead_letter_from'.* dropDeadLetterMeta=true"):
        chunked(encoded(data=["1"] * 4, meta=texts))
    batch = pa.RecordBatch.from_pydict({"data": ["1"] * 4, "meta": texts})
    (chunk,) = chunked(list(encode_rows(batch, topic="out", drop_dead_letter_meta=True)))
    assert [record.get("meta") for record in sent(chunk)["records"]] == [
        {"a": 1}, None, {"b": [1]}, {"c": "$dead_"},
    ]  # fmt: skip


def test_structs_lists_and_maps_become_json() -> None:
    values = [{"n": 1, "d": Decimal("1.50"), "l": [1, None], "t": None}]
    kind = pa.struct(
        [
            ("n", pa.int32()),
            ("d", pa.decimal128(5, 2)),
            ("l", pa.list_(pa.int32())),
            ("t", pa.string()),
        ]
    )
    maps = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))
    rows = list(
        encode_rows(
            pa.RecordBatch.from_arrays([pa.array(values, kind), maps], names=["data", "meta"]),
            topic="out",
        )
    )  # fmt: skip
    (chunk,) = chunked(rows)
    assert sent(chunk)["records"] == [
        {"data": {"n": 1, "d": 1.5, "l": [1, None], "t": None}, "meta": {"k": 1}}
    ]


def variants(*texts: str | None) -> pa.Array:
    """Make a column as Spark hands variants over; the bytes are those of `VariantVal`."""
    pytest.importorskip("pyspark", reason="a variant is decoded by Spark's own class")
    from pyspark.sql.types import VariantVal  # noqa: PLC0415 - checked above

    kind = pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    )
    made = [None if text is None else VariantVal.parseJson(text) for text in texts]
    values = [
        None if one is None else {"value": one.value, "metadata": one.metadata} for one in made
    ]
    return pa.array(values, kind)


def test_variants_are_encoded_wherever_they_are() -> None:
    found = variants('{"v": [1, null]}', None, '"x"')
    kind = pa.struct([("v", found.type), ("variant", pa.int32())])
    inner = found.to_pylist()
    columns = {
        "struct": pa.array([{"v": inner[0], "variant": 1}, {"v": None, "variant": 2}], kind),
        "list": pa.array([inner, []], pa.list_(found.type)),
        "map": pa.array([[("k", inner[2])], None], pa.map_(pa.string(), found.type)),
        "plain": found.slice(0, 2),
    }
    texts = {name: value_texts(column) for name, column in columns.items()}
    assert texts == {
        "struct": ['{"v":{"v":[1,null]},"variant":1}', '{"v":null,"variant":2}'],
        "list": ['[{"v":[1,null]},null,"x"]', "[]"],
        "map": ['{"k":"x"}', None],
        "plain": ['{"v":[1,null]}', None],
    }


def test_a_value_that_json_cannot_say_spoils_its_own_row_alone() -> None:
    days = pa.array([0, -800_000, None], pa.int32()).cast(
        pa.date32()
    )  # the second is before year 1
    keys = pa.map_(pa.struct([("x", pa.int32())]), pa.int32())
    for column in (
        pa.StructArray.from_arrays([days], names=["day"]),
        pa.array([[], [({"x": 1}, 1)], None], keys),
        pa.array([{"x": 0.5}, {"x": float("nan")}, None], pa.struct([("x", pa.float64())])),
        pa.array([[0.5], [float("-inf")], None], pa.list_(pa.float32())),
    ):
        first, second, _ = encoded(data=column)
        assert first.record is not None
        assert second.record is None
        assert "that JSON cannot say" in second.reason


def test_a_key_is_the_tag_of_a_record_that_has_none() -> None:
    (chunk,) = chunked(encoded(data=["1", "2"], key=["k", "k"], tag=[None, "t"]))
    assert sent(chunk)["records"] == [
        {"data": 1, "key": "k", "tag": "k"}, {"data": 2, "key": "k", "tag": "t"},
    ]  # fmt: skip


BAD: list[tuple[dict[str, str | None], str]] = [
    ({"data": "{"}, "not JSON"),
    ({"data": "[" * 5000}, "not JSON"),
    ({"data": None}, "`data` is null"),
    ({"data": '"' + "x" * (1 << 20) + '"'}, "longer than"),
    ({"data": "1", "tag": "é" * 200}, "`tag` is longer"),
    ({"data": "1", "node": "n" * 129}, "`node` is longer"),
    ({"data": "1", "key": "n" * 257}, "`key` is longer"),
    ({"data": "1", "meta": "[1]"}, "`meta` must be"),
    ({"data": "1", "meta": json.dumps({str(i): i for i in range(65)})}, "`meta` must be"),
    ({"data": "1", "topic": "no/name"}, "not a topic name"),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_fails_the_task_and_says_why(row: dict[str, str | None], reason: str) -> None:
    rows = encoded(**{name: pa.array([value], pa.string()) for name, value in row.items()})
    with pytest.raises(BadRow, match=reason):
        chunked(rows)


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_may_go_to_a_topic_of_its_own(row: dict[str, str | None], reason: str) -> None:
    good = {"data": "1", "topic": "out"}
    columns = {
        name: pa.array([good.get(name), row.get(name, good.get(name))], pa.string())
        for name in {*row, "data", "topic"}
    }
    bad, out = chunked(encoded(**columns), LENIENT)
    assert (bad.topic, out.topic) == ("bad", "out")
    assert len(out.records) == 1
    assert reason in sent(bad)["records"][0]["data"]["reason"]


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"tag": "string"}, "`data` is missing"),
        ({"data": "string", "value": "string"}, "not \\['value'\\]"),
        ({"data": "binary"}, "is a binary"),
        ({"data": "string", "tag": "int"}, "`tag` is a int"),
        ({"data": "string", "meta": "array<int>"}, "`meta` is a array"),
    ],
)
def test_a_frame_that_no_record_can_be_made_of_is_refused(types: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_columns(types, topic="out")


def test_somebody_has_to_say_where_to_write() -> None:
    with pytest.raises(OptionError, match="where to write"):
        check_columns({"data": "string"}, topic=None)
    check_columns({"data": "variant", "topic": "string"}, topic=None)
