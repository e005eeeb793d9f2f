"""Rollups count every record once; SQL sees topics and tables by their names."""

import csv
import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.feed import Feed
from tests.pipeline.lakes import Lake
from typer.testing import CliRunner

from topics.cli.app import app
from topics.cli.spark import leave_errors_to_us, open_spark
from topics.errors import PipelineError
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.jobs.rollup import ROLLUP_TOPIC, run_rollup
from topics.pipeline.jobs.sql import SqlOptions, format_csv, rows_of, run_query
from topics.pipeline.jobs.sql_names import Named, find, find_all, names_in
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.query import QueryOptions
from topics.pipeline.lake.tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_rollup_counts_records_bytes_and_delay_by_tag(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.append([{"data": {"n": n}, "tag": f"t{n % 2}"} for n in range(10)])
    options = QueryOptions(url=feed.url, topics=feed.topic)

    def roll_up() -> list[Any]:
        with JobRun("rollup") as run:
            run_rollup(spark, str(tmp_path), options, run, window_ms=3_600_000)
        return read_table(spark, str(tmp_path), "_rollup").collect()

    assert sum(row.records for row in roll_up()) == 10
    feed.append([{"data": {"n": n}, "tag": "t1"} for n in range(4)])
    rows = roll_up()  # counts only what is new
    assert sum(row.records for row in rows) == 14
    assert sum(row.records for row in rows if row.tag == "t1") == 9
    assert sum(row.bytes for row in rows) == 14 * len('{"n":0}')
    assert all(0 <= row.delay_ms_max <= row.delay_ms_sum for row in rows)
    assert {row.window_ms for row in rows} == {3_600_000}

    told = [record["data"] for record in feed.records(ROLLUP_TOPIC)]
    ours = [record for record in told if record["topic"] == feed.topic]
    assert sum(record["records"] for record in ours) == 14
    assert set(ours[0]) >= {"window_start", "tag", "bytes", "rate_per_s", "delay_ms_max"}
    assert LakeLog(str(tmp_path)).load().queries["rollup"].batch == 1


def test_sql_reads_topics_and_tables_by_name(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path / "lake", feed)
    feed.append([{"data": {"n": n, "s": 'a "b", c'}} for n in range(5)])
    lake.run()
    options = SqlOptions(url=feed.url, lake=lake.root)
    name = feed.topic.replace("-", "_")
    both = f"SELECT (SELECT count(*) FROM `{feed.topic}`) AS log, count(*) AS lake FROM lake_raw"
    assert list(rows_of(run_query(spark, both, options))) == [{"log": 5, "lake": 5}]
    full = f"SELECT a.seq FROM `topic/{feed.topic}` a JOIN `lake/_raw` b ON a.seq = b.seq"
    assert run_query(spark, full, options).count() == 5
    typed = f"SELECT value.n, value.s, ts FROM lake_{name} ORDER BY seq LIMIT 2"
    frame = run_query(spark, typed, options)
    lines = list(format_csv(frame.columns, rows_of(frame)))
    parsed = list(csv.reader(lines))
    assert parsed[0] == ["n", "s", "ts"]
    assert parsed[2][:2] == ["1", 'a "b", c']
    with pytest.raises(PipelineError, match="nowhere"):
        run_query(spark, "SELECT * FROM nowhere", options)
    feed.number(1, topic="un.clear")
    assert run_query(spark, "SELECT * FROM un_clear", options).count() == 1
    feed.number(1, topic="un-clear")
    with pytest.raises(PipelineError, match=r"may be `topic/un-clear` or `topic/un\.clear`"):
        run_query(spark, "SELECT * FROM un_clear", options)
    assert run_query(spark, "SELECT 1 AS un_clear", options).count() == 1, "it is no table here"


def test_the_command_prints_a_table_csv_or_json_and_takes_queries_from_stdin(
    spark: "SparkSession", feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.append([{"data": n} for n in (7, 8)])
    monkeypatch.setattr("topics.cli.sql.open_spark", lambda *_: nullcontext(spark))
    query = f"SELECT seq, data FROM `{feed.topic}` ORDER BY seq"

    def ask(*flags: str, stdin: str = "") -> list[str]:
        result = CliRunner().invoke(
            app, ["pipeline", "sql", "--url", feed.url, *flags], input=stdin, catch_exceptions=False
        )
        assert result.exit_code == 0
        return result.stdout.splitlines()

    assert ask("--format", "csv", "-e", query) == ["seq,data", "1,7", "2,8"]
    assert ask("--format", "table", "-e", f"{query};") == [
        "seq  data",
        "---  ----",
        "1    7",
        "2    8",
    ]
    two = f"{query};\nSELECT ';' AS mark\nFROM `{feed.topic}`\nLIMIT 1;\nquit\n"
    assert list(map(json.loads, ask("--format", "json", stdin=two))) == [
        {"seq": 1, "data": "7"},
        {"seq": 2, "data": "8"},
        {"mark": ";"},
    ]


def test_an_error_of_a_query_is_told_by_us_alone(
    spark: "SparkSession", capfd: pytest.CaptureFixture[str]
) -> None:
    errors = pytest.importorskip("pyspark.errors")
    leave_errors_to_us()
    with pytest.raises(errors.AnalysisException):
        spark.sql("SELECT * FROM nowhere")
    assert capfd.readouterr().err == ""


class Session:
    """Stands where a Spark session would."""

    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


def test_an_error_of_spark_in_a_command_is_one_line_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = pytest.importorskip("pyspark.errors")
    session = Session()
    monkeypatch.setattr("topics.cli.spark.check_installed", lambda: None)
    monkeypatch.setattr("topics.pipeline.session.build_session", lambda **_: session)
    said = "Job aborted\n  File x\ntopics.errors.DataLoss: 5 records are gone\n\tat java.Thing"
    with pytest.raises(PipelineError, match=r"^5 records are gone$"), open_spark("x", "yarn"):
        raise errors.PySparkException(said)
    assert session.is_stopped


def test_names_are_words_and_what_is_in_back_quotes() -> None:
    query = "SELECT a.x FROM `orders.eu` a JOIN lake_raw ON a.seq = 1"
    assert {"orders.eu", "lake_raw", "a"} <= names_in(query)
    assert "orders" not in names_in(query)


RAW, TYPED, TOPIC = Named("lake", "_raw"), Named("lake", "raw"), Named("topic", "raw")
DOT, DASH, LINE = (Named("topic", name) for name in ("a.b", "a-b", "a_b"))


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("lake_raw", [TYPED, RAW, TOPIC], RAW),
        ("lake/raw", [TYPED, RAW, TOPIC], TYPED),
        ("lake/_raw", [TYPED, RAW, TOPIC], RAW),
        ("raw", [TYPED, RAW, TOPIC], TOPIC),
        ("topic/raw", [TYPED, RAW, TOPIC], TOPIC),
        ("lake_raw", [Named("topic", "lake_raw"), RAW], RAW),
        ("lake_raw", [TYPED], TYPED),
        ("a_b", [DOT], DOT),
        ("a_b", [DOT, LINE, DASH], LINE),
        ("a-b", [DOT, LINE, DASH], DASH),
        ("select", [DOT, RAW], None),
    ],
)
def test_a_name_in_a_query_means_one_thing(
    word: str, known: list[Named], meant: Named | None
) -> None:
    expected = [] if meant is None else [meant]
    assert find(word, known) == find(word, known[::-1]) == expected


@pytest.mark.parametrize(
    ("word", "known", "message"),
    [
        ("a_b", [DOT, DASH], "`topic/a-b` or `topic/a.b`"),
        ("lake_x", [Named("lake", "x"), Named("topic", "lake_x")], "`lake/x` or `topic/lake_x`"),
    ],
)
def test_a_name_that_means_two_things_is_told_with_the_full_ones(
    word: str, known: list[Named], message: str
) -> None:
    clear, unclear = find_all([word, "other"], known)
    assert (clear, list(unclear)) == ({}, [word])
    assert message in unclear[word]


def test_names_that_differ_in_case_alone_are_not_asked_in_one_query() -> None:
    known = [Named("topic", "Orders"), Named("topic", "orders")]
    assert find_all(["Orders", "x"], known) == ({"Orders": known[0]}, {})
    clear, unclear = find_all(["Orders", "orders"], known)
    assert (clear, set(unclear)) == ({}, {"Orders", "orders"})


def test_values_that_are_no_plain_text_are_json_in_a_csv() -> None:
    rows = [{"a": {"b": [1, None]}, "c": None, "d": True}]
    assert list(format_csv(["a", "c", "d"], rows)) == ["a,c,d", '"{""b"":[1,null]}",,True']
