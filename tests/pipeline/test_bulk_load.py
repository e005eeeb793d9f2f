"""Files become a topic, whole or not at all."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.feed import Feed

from topics.errors import OptionError, ServerRefused, UploadNotFound
from topics.pipeline.jobs.bulk_load import LoadOptions, bulk_load, plan_shares
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.load_input import LoadInput
from topics.pipeline.server import Server
from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load(
    spark: "SparkSession",
    feed: Feed,
    *,
    dry_run: bool = False,
    size: int = 1 << 20,
    drop_dead_letter_meta: bool = False,
    **given: Any,  # noqa: ANN401 - any input
) -> dict[str, Any]:
    options = LoadOptions(
        url=feed.url,
        topic=feed.topic,
        input=LoadInput(**given),
        segment_bytes=size,
        drop_dead_letter_meta=drop_dead_letter_meta,
    )
    with JobRun("bulk-load", dry_run=dry_run) as run:
        bulk_load(spark, options, run)
    return run.summary().detail


def lines(path: Path, count: int, *, files: int = 1) -> str:
    """Write JSON lines that count, with blank lines and blanks around them."""
    path.mkdir()
    each = count // files
    for file in range(files):
        texts = [
            f" {json.dumps({'n': n, 'at': {'kind': f'k{n % 3}'}, 'ts': 1_000_000 - n})} "
            for n in range(file * each, (file + 1) * each)
        ]
        (path / f"{file}.jsonl").write_text("\n\n".join(texts) + "\n")
    return str(path)


def uploads(server: ServerProcess) -> list[str]:
    folder = Path(server.data_dir) / "uploads"
    return [entry.name for entry in folder.iterdir()] if folder.exists() else []


def test_json_lines_become_records_in_their_order(
    spark: "SparkSession", server: ServerProcess, feed: Feed, tmp_path: Path
) -> None:
    path = lines(tmp_path / "in", 3000)
    detail = load(spark, feed, format="jsonl", path=path, tag="at.kind", size=100_000)
    found = feed.records()
    assert [record["data"]["n"] for record in found] == list(range(3000))
    assert [record["$seq"] for record in found] == list(range(1, 3001))
    assert {record["$tag"] for record in found} == {"k0", "k1", "k2"}
    assert detail["records"] == 3000
    assert detail["segments"] > 1
    assert uploads(server) == []
    feed.append([{"data": "next"}])
    assert feed.records()[-1]["$seq"] == 3001


def test_lines_of_many_files_keep_their_order(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    load(spark, feed, format="jsonl", path=lines(tmp_path / "in", 5000, files=5))
    assert [record["data"]["n"] for record in feed.records()] == list(range(5000))


def test_with_times_records_are_sorted_by_them(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    path = lines(tmp_path / "in", 2000, files=4)
    load(spark, feed, format="jsonl", path=path, ts="ts")
    found = feed.records()
    assert [record["data"]["n"] for record in found] == list(range(1999, -1, -1))
    assert [record["$ts"] for record in found] == [1_000_000 - n for n in range(1999, -1, -1)]


def test_csv_rows_become_objects(spark: "SparkSession", feed: Feed, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,name\n1,é\n2,\n")
    load(
        spark, feed, format="csv", path=str(tmp_path / "in.csv"), schema="id int, name string",
        tag="id",
    )  # fmt: skip
    assert [(record["data"], record["$tag"]) for record in feed.records()] == [
        ({"id": 1, "name": "é"}, "1"),
        ({"id": 2, "name": None}, "2"),
    ]


def test_a_table_of_records_is_taken_as_it_is(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    table = pa.table(
        {
            "seq": [9, 8],
            "data": ["[1]", '"x"'],
            "tag": ["t", None],
            "meta": [None, '{"m": 1}'],
            "ts": pa.array([1_700_000_000_000, 1_700_000_000_001], pa.timestamp("ms", tz="UTC")),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    load(spark, feed, format="parquet", path=str(tmp_path / "in.parquet"))
    assert feed.records() == [
        {"$seq": 1, "$ts": 1_700_000_000_000, "$tag": "t", "data": [1]},
        {"$seq": 2, "$ts": 1_700_000_000_001, "meta": {"m": 1}, "data": "x"},
    ]


def test_dead_letters_of_a_table_are_loaded_as_the_jobs_they_were(
    spark: "SparkSession", server: ServerProcess, feed: Feed, tmp_path: Path
) -> None:
    metas = ['{"m": 1}', '{"a":1,"$dead_letter_from":"q"}', '{"$dead_letter_from":"q"}']
    path = str(tmp_path / "in.parquet")
    pq.write_table(pa.table({"data": ["1", "2", "3"], "meta": metas}), path)
    with pytest.raises(Exception, match=r"BadRow: row 1 of task 0: .*--drop-dead-letter-meta"):
        load(spark, feed, format="parquet", path=path)
    assert uploads(server) == []
    load(spark, feed, drop_dead_letter_meta=True, format="parquet", path=path)
    found = [(record["data"], record.get("meta")) for record in feed.records()]
    assert found == [(1, {"m": 1}), (2, {"a": 1}), (3, None)]


def test_a_bad_line_leaves_no_topic_and_no_files(
    spark: "SparkSession", server: ServerProcess, feed: Feed, tmp_path: Path
) -> None:
    path = lines(tmp_path / "in", 500)
    with (tmp_path / "in" / "0.jsonl").open("a") as file:
        file.write('{"n": 500,}\n')
    with pytest.raises(Exception, match=r"BadRow: behind row \d+ .*not one JSON value"):
        load(spark, feed, format="jsonl", path=path)
    assert feed.topic not in [found["topic"] for found in feed.call("GET", "/v0/topics")["topics"]]
    assert uploads(server) == []


def test_a_topic_that_is_there_is_not_touched(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.append([{"data": 1}])
    with pytest.raises(ServerRefused, match="409"):
        load(spark, feed, format="jsonl", path=lines(tmp_path / "in", 10))
    assert len(feed.records()) == 1


def test_a_dry_run_counts_and_writes_nothing(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    detail = load(spark, feed, dry_run=True, format="jsonl", path=lines(tmp_path / "in", 50))
    assert detail["records"] == 50
    assert feed.topic not in [found["topic"] for found in feed.call("GET", "/v0/topics")["topics"]]


def test_what_executors_cannot_find_is_refused(spark: "SparkSession", feed: Feed) -> None:
    with pytest.raises(OptionError, match="must be absolute"):
        load(spark, feed, format="jsonl", path="in.jsonl")


def test_kafka_without_its_jar_says_what_to_add(spark: "SparkSession", feed: Feed) -> None:
    with pytest.raises(Exception, match="--packages"):
        load(spark, feed, format="kafka", options={"subscribe": "x"})


def test_shares_are_dense_and_in_the_order_of_tasks() -> None:
    shares = plan_shares({2: 5, 0: 3, 7: 1})
    assert {task: (share.first_seq, share.rows) for task, share in shares.items()} == {
        0: (1, 3), 2: (4, 5), 7: (9, 1),
    }  # fmt: skip


def test_a_server_that_was_killed_before_the_last_step_has_no_topic(
    spark: "SparkSession",
    server: ServerProcess,
    feed: Feed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attach = Server.attach

    def killed(self: Server, *given: Any) -> None:  # noqa: ANN401 - handed on
        server.kill9()
        server.start()
        attach(self, *given)

    monkeypatch.setattr(Server, "attach", killed)
    with pytest.raises(UploadNotFound):
        load(spark, feed, format="jsonl", path=lines(tmp_path / "in", 100))
    assert feed.topic not in [found["topic"] for found in feed.call("GET", "/v0/topics")["topics"]]
    assert uploads(server) == []


def test_a_last_step_whose_answer_was_lost_is_known_to_be_done(
    spark: "SparkSession",
    server: ServerProcess,
    feed: Feed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attach = Server.attach

    def lost(self: Server, *given: Any) -> None:  # noqa: ANN401 - handed on
        attach(self, *given)
        server.kill9()
        server.start()
        attach(self, *given)

    monkeypatch.setattr(Server, "attach", lost)
    load(spark, feed, format="jsonl", path=lines(tmp_path / "in", 100))
    assert [record["data"]["n"] for record in feed.records()] == list(range(100))
