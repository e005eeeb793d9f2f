"""Frames become Arrow columns: keys, times, payloads, gaps."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import topics
from topics.engine import engine
from topics.errors import CorruptData, OptionError, TopicNotFound
from topics.kernel import SEGMENT_LAYOUT
from topics.model.segments import Manifest
from topics.pipeline.decode import Decoder, Frames
from topics.pipeline.directory import DirectoryCatalog
from topics.pipeline.offsets import Part
from topics.pipeline.options import SourceOptions
from topics.pipeline.parse_value import parse_values
from topics.pipeline.plan import Gap, Piece, Plan, plan_batch
from topics.pipeline.push_down import Bounds
from topics.pipeline.read import Snapshot, take_snapshot
from topics.pipeline.schema import frame_columns, row_ddl
from topics.pipeline.segment_reader import read_segment

ROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("seq", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("key", pa.string()),
        ("tag", pa.string()),
        ("node", pa.string()),
        ("meta", pa.string()),
        ("data", pa.string()),
        ("gap_from", pa.int64()),
        ("gap_to", pa.int64()),
        ("gap_reason", pa.string()),
    ]
)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Make a closed data directory: everything is in segments."""
    path = str(tmp_path / "data")
    with topics.open(path) as log:
        log.append(
            "orders",
            [
                {"data": {"n": 1}, "tag": "a", "node": "x", "meta": {"$key": "k", "m": 1}},
                {"data": None},
                {"data": "gone", "tag": "b"},
                {"data": [1, "é"], "tag": "c"},
            ],
        )
        log.append("other", [{"data": n} for n in range(3)])
        log.delete("orders", match="b")
    return path


def options(path: str, *names: str, **more: Any) -> SourceOptions:  # noqa: ANN401 - any option
    return SourceOptions(topics=names, path=path, **more)


def snapshot_and_plan(given: SourceOptions) -> tuple[Snapshot, Plan]:
    assert given.path is not None
    catalog = DirectoryCatalog(given.path)
    snapshot = take_snapshot(given, catalog)
    manifests: dict[str, Manifest] = {
        r.part.name: catalog.manifest(r.part) for r in snapshot.ranges
    }
    plan = plan_batch(
        snapshot.ranges, manifests, Bounds(), records_per_task=1000, min_tasks=1, via="auto"
    )
    return snapshot, plan


def pieces(plan: Plan) -> list[Piece]:
    return [piece for task in plan.tasks for piece in task.pieces]


def rows(plan: Plan, decoder: Decoder) -> list[dict[str, Any]]:
    def batches() -> Iterator[pa.RecordBatch]:
        for piece in pieces(plan):
            for _, batch in read_segment(piece, decoder):
                if batch is not None:
                    yield batch

    return [row for batch in batches() for row in batch.to_pylist()]


def test_a_directory_is_read_without_a_server(directory: str) -> None:
    _, plan = snapshot_and_plan(options(directory, "orders"))
    found = rows(plan, Decoder(ROW, Bounds(), verify=True))
    assert [(r["seq"], r["data"], r["tag"], r["key"]) for r in found] == [
        (1, '{"n":1}', "a", "k"),
        (2, "null", None, None),
        (4, '[1,"é"]', "c", "c"),
    ]
    assert json.loads(found[0]["meta"]) == {"$key": "k", "m": 1}
    assert {r["topic"] for r in found} == {"orders"}
    assert found[0]["node"] == "x"
    assert found[0]["ts"].year >= 2024
    assert all(r["gap_from"] is None for r in found)


def test_columns_without_a_payload_need_no_frames(directory: str) -> None:
    _, plan = snapshot_and_plan(options(directory, "orders"))
    decoder = Decoder(pa.schema([ROW.field("seq"), ROW.field("topic")]), Bounds(), verify=True)
    assert not decoder.needs_frames
    # The data file may even be gone: only the index is opened.
    (data,) = {piece.data or "" for piece in pieces(plan)}
    Path(data.removeprefix("file://")).unlink()
    assert rows(plan, decoder) == [{"seq": n, "topic": "orders"} for n in (1, 2, 4)]


def test_damage_names_the_file_and_the_seq(directory: str) -> None:
    _, plan = snapshot_and_plan(options(directory, "orders"))
    uri = pieces(plan)[0].data
    assert uri is not None
    file = Path(uri.removeprefix("file://"))
    content = bytearray(file.read_bytes())
    content[38] ^= 1  # the tag
    file.write_bytes(content)
    with pytest.raises(CorruptData, match=r"seg-.*record 1 .*checksum"):
        rows(plan, Decoder(ROW, Bounds(), verify=True))
    assert len(rows(plan, Decoder(ROW, Bounds(), verify=False))) == 3


def test_topics_of_a_directory_go_by_name_prefix_and_list(directory: str) -> None:
    def names(*patterns: str) -> list[str]:
        return [r.part.name for r in snapshot_and_plan(options(directory, *patterns))[0].ranges]

    assert names("o*") == names("orders", "other") == ["orders", "other"]
    assert names("other") == ["other"]
    assert names("nothing*") == []
    with pytest.raises(TopicNotFound):
        names("nothing")


def test_a_directory_that_is_none_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not there on"):
        DirectoryCatalog(str(tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match="holds no topics"):
        DirectoryCatalog(str(tmp_path / "empty"))


def test_a_directory_in_use_is_read_with_a_warning(
    directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    DirectoryCatalog(directory)
    assert caplog.messages == []
    with topics.open(directory) as log:
        log.append("orders", [{"data": "newest"}])
        state = DirectoryCatalog(directory).states(["orders"])[0]
    assert state.head_seq == 4
    assert "is in use, or was not closed" in caplog.messages[0]


def test_a_directory_whose_stop_left_records_on_the_log_is_read_with_a_warning(
    directory: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ABSORBED_AT_STOP_MAX", 0)
    with topics.open(directory) as log:
        log.append("orders", [{"data": "newest"}])
    state = DirectoryCatalog(directory).states(["orders"])[0]
    assert state.head_seq == 4
    assert "very many topics" in caplog.messages[0]


def test_a_partitioned_topic_of_a_directory_is_all_of_its_partitions(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with topics.open(path) as log:
        log.create("orders", partitions=3)
        log.append("orders", [{"data": n, "key": f"k{n}"} for n in range(30)])
    _, plan = snapshot_and_plan(options(path, "orders"))
    found = rows(plan, Decoder(ROW, Bounds(), verify=True))
    assert sorted(int(row["data"]) for row in found) == list(range(30))
    assert {(row["topic"], row["partition"]) for row in found} == {("orders", n) for n in range(3)}
    assert all(row["key"] == f"k{row['data']}" for row in found)
    one, _ = snapshot_and_plan(options(path, "orders-1"))
    assert [r.part for r in one.ranges] == [Part("orders-1", "orders", 1)]


def test_times_become_seqs(directory: str) -> None:
    given = options(directory, "orders")
    catalog = DirectoryCatalog(directory)
    state = catalog.states(["orders"])[0]
    assert catalog.seq_at(state, 0) == 1
    assert catalog.seq_at(state, 2**60) == 5
    late = options(directory, "orders", starting_ts=2**60)
    assert [(r.start, r.end) for r in take_snapshot(late, catalog).ranges] == [(4, 4)]
    assert [(r.start, r.end) for r in take_snapshot(given, catalog).ranges] == [(0, 4)]


def test_an_offset_behind_the_end_is_refused(directory: str) -> None:
    with pytest.raises(OptionError, match="ends at seq 4"):
        snapshot_and_plan(options(directory, "orders", ending={"orders": 9}))


def test_a_range_that_ends_before_it_starts_is_refused(directory: str) -> None:
    with pytest.raises(OptionError, match="starts at 3, behind its end 2"):
        snapshot_and_plan(
            options(directory, "orders", starting={"orders": 3}, ending={"orders": 2})
        )


def test_a_gap_is_one_row_without_a_record() -> None:
    row = Decoder(ROW, Bounds(), verify=True).gap(Gap(Part("a-1", "a", 1), 3, 9, "cap")).to_pylist()
    told = {name: value for name, value in row[0].items() if value is not None}
    assert told == {
        "topic": "a", "partition": 1, "gap_from": 3, "gap_to": 9, "gap_reason": "cap",
    }  # fmt: skip


def test_an_unknown_column_is_refused_with_those_there_are() -> None:
    with pytest.raises(OptionError, match="no column `offset`"):
        frame_columns(["seq", "offset"])


def test_a_schema_adds_two_columns() -> None:
    assert row_ddl("id int").endswith("value struct<id int>, _corrupt string")


VALUE = pa.struct([("n", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int32()))])


@pytest.mark.parametrize("bad", range(9))
def test_a_payload_that_does_not_fit_harms_no_neighbour(bad: int, tmp_path: Path) -> None:
    broken = [
        '{"n":"one"}', "1", '"text"', "[1]", "true", '{"n":{"m":1}}', '{"list":["x"]}',
        '{"n":1.5}', '{"text":[1]}',
    ][bad]  # fmt: skip
    texts = ['{"n":1,"text":"a\\nb","list":[1,2],"more":0}', broken, "null", '{"text":null}', "{}"]
    path = str(tmp_path / "data")
    with topics.open(path) as log:
        body = ",".join(f'{{"data":{text}}}' for text in texts)
        log.append_json("a", f'{{"records":[{body}]}}'.encode())
    _, plan = snapshot_and_plan(options(path, "a"))
    schema = pa.schema([("value", VALUE), ("_corrupt", pa.string())])
    found = rows(plan, Decoder(schema, Bounds(), verify=True))
    empty = {"n": None, "text": None, "list": None}
    assert [row["value"] for row in found] == [
        {"n": 1, "text": "a\nb", "list": [1, 2]}, None, None, empty, empty,
    ]  # fmt: skip
    assert [row["_corrupt"] for row in found] == [None, broken, None, None, None]


def test_dates_and_times_are_read_from_their_texts() -> None:
    kind = pa.struct(
        [
            ("day", pa.date32()),
            ("days", pa.list_(pa.date32())),
            ("at", pa.timestamp("us", tz="UTC")),
            ("price", pa.decimal128(5, 2)),
        ]
    )
    good = (
        '{"day":"2026-01-02","days":["2026-01-03",null],"at":"2026-01-02T03:04:05.5Z","price":1.5}'
    )
    bad = ['{"day":"soon"}', '{"days":["2026-13-01"]}', '{"at":"noon"}', '{"price":12345.6}']
    values, corrupt = parse_values(pa.array([good, *bad, "{}"]), kind)
    assert values.to_pylist()[0] == {
        "day": date(2026, 1, 2),
        "days": [date(2026, 1, 3), None],
        "at": datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC),
        "price": Decimal("1.50"),
    }
    assert corrupt.to_pylist() == [None, *bad, None]


MARKED = pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int32()),
        pa.struct([pa.field("value", pa.binary()), MARKED]),
        pa.duration("us"),
    ],
)
def test_a_type_that_no_payload_can_be_read_into_is_refused_at_once(kind: pa.DataType) -> None:
    schema = pa.schema([("value", pa.struct([("one", kind)]))])
    with pytest.raises(OptionError, match="from_json or parse_json on `data`"):
        Decoder(schema, Bounds(), verify=True)


def test_bounds_on_time_and_tag_hold_inside_a_segment(directory: str) -> None:
    _, plan = snapshot_and_plan(options(directory, "orders"))
    tagged = Decoder(ROW, Bounds(match=(1, b"c")), verify=True)
    assert [row["seq"] for row in rows(plan, tagged)] == [4]
    early = Decoder(ROW, Bounds(last_ts=5), verify=True)
    assert rows(plan, early) == []


def test_an_index_that_is_too_short_is_damage() -> None:
    decoder = Decoder(ROW, Bounds(), verify=True)
    with pytest.raises(ValueError, match="not inside"):
        decoder.decode(Part("a", "a"), Frames(b"", b"", 0, SEGMENT_LAYOUT, 1), 0, 1)
