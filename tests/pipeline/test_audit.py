"""An audit finds each kind of damage, and nothing in a healthy store."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.pipeline.feed import HANG_S, Feed, wait_until
from tests.pipeline.java import needs_java
from tests.pipeline.lakes import Lake

from topics.cli import exit_codes
from topics.clock import SystemClock
from topics.embedded import Log
from topics.errors import OptionError
from topics.model.segments import Manifest
from topics.pipeline.audit.check import check_any, deal
from topics.pipeline.audit.lake import reach
from topics.pipeline.audit.page import render_page
from topics.pipeline.audit.plan import DirectoryPlan, ServerPlan, Tail, judge_manifest
from topics.pipeline.audit.report import AuditReport, sum_up
from topics.pipeline.jobs.audit import AuditOptions, audit, check_options
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.offsets import Part, PartState, Place
from topics.pipeline.server import Server
from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 450


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with five segments of one topic, closed."""
    import topics  # noqa: PLC0415 - as a user opens it

    path = tmp_path_factory.mktemp("audit") / "data"
    with topics.open(str(path), segment_max_events=100) as log:
        fill(log)
    return path


def fill(log: Log) -> None:
    for start in range(0, RECORDS, 50):
        log.append(
            "orders",
            [
                {"data": {"n": n, "é": "x" * 20}, "tag": f"t{n % 7}"}
                for n in range(start, start + 50)
            ],
        )
        log.checkpoint()
    log.delete("orders", match="t3")


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    shutil.copytree(healthy, tmp_path / "data")
    return tmp_path / "data"


def run_audit(spark: "SparkSession", **given: Any) -> AuditReport:  # noqa: ANN401 - any option
    with JobRun("audit") as run:
        return audit(spark, AuditOptions(**given), run)


def audit_here(store: Path) -> AuditReport:
    """Do what the job does, without Spark."""
    with closing(DirectoryPlan(str(store))) as plan:
        checked = [check_any(job) for job in plan.jobs]
        return sum_up("here", plan.jobs, checked, plan.judge(checked), [], seconds=1.0)


def files(store: Path, kind: str) -> list[Path]:
    (folder,) = (store / "topics").iterdir()
    return sorted(folder.glob(f"seg-*.{kind}"))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def flip_data(store: Path) -> None:
    flip(files(store, "data")[1], 1000)


def flip_checksum(store: Path) -> None:
    path = files(store, "data")[2]
    flip(path, path.stat().st_size - 4)


def flip_index(store: Path) -> None:
    flip(files(store, "idx")[1], 20 * 7 + 9)


def lose_data(store: Path) -> None:
    files(store, "data")[2].unlink()


def lose_both(store: Path) -> None:
    for kind in ("data", "idx"):
        files(store, kind)[2].unlink()


def double(store: Path) -> None:
    for kind in ("data", "idx"):
        first = files(store, kind)[0]
        shutil.copy(first, first.with_name(f"seg-{51:016d}.{kind}"))


def swap(store: Path) -> None:
    for kind in ("data", "idx"):
        one, other = files(store, kind)[1:3]
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)


def test_a_healthy_store_is_healthy(spark: "SparkSession", store: Path) -> None:
    report = run_audit(spark, path=str(store))
    assert report.healthy, report
    assert report.files == []
    assert report.records == RECORDS
    assert [segment.first_seq for segment in report.segments] == [1, 101, 201, 301, 401]
    assert {segment.verdict for segment in report.segments} == {"ok"}


@pytest.mark.parametrize(
    ("harm", "first_seqs"),
    [
        (flip_data, {101}),
        (flip_checksum, {201}),
        (flip_index, {101}),
        (lose_data, set()),
        (lose_both, set()),
        (double, {51}),
        (swap, {101, 201}),
    ],
)
def test_each_kind_of_damage_is_found_where_it_is(
    store: Path, harm: Callable[[Path], None], first_seqs: set[int]
) -> None:
    harm(store)
    report = audit_here(store)
    assert not report.healthy
    assert {segment.first_seq for segment in report.bad_segments} == first_seqs
    if not first_seqs:
        (topic,) = report.topics
        assert topic.uncovered == [(201, 300)]


def test_the_page_shows_what_is_wrong_and_needs_nothing_else(
    spark: "SparkSession", store: Path
) -> None:
    flip_data(store)
    page = render_page(run_audit(spark, path=str(store)), made="today <now>")
    assert "not healthy" in page
    assert "fail their checksum" in page
    assert "today &lt;now&gt;" in page
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.fixture
def fed(feed: Feed) -> Feed:
    feed.number(450)
    feed.wait_for_sealed(4)
    return feed


def test_a_running_server_is_audited_by_its_manifest_and_its_pins_are_released(
    spark: "SparkSession", server: ServerProcess, fed: Feed
) -> None:
    fed.delete_tag("t3")
    report = run_audit(spark, url=fed.url, topics=(fed.topic,))
    assert report.healthy, report
    assert [segment.first_seq for segment in report.segments] == [1, 101, 201, 301, 401]
    assert report.records == 450
    assert report.segments[-1].tier == "tail"
    assert "topics_pins 0" in fed.text("/v0/metrics")
    flip(data_of(server, fed)[1], 500)
    report = run_audit(spark, url=fed.url, topics=(fed.topic,))
    assert [segment.first_seq for segment in report.bad_segments] == [101]


def data_of(server: ServerProcess, feed: Feed) -> list[Path]:
    folder = Path(server.data_dir) / "topics" / f"{feed.manifest()['epoch']:016x}"
    return sorted(folder.glob("seg-*.data"))


def test_a_directory_in_use_is_not_read(spark: "SparkSession", server: ServerProcess) -> None:
    with pytest.raises(OptionError, match="in use: audit it through its server"):
        run_audit(spark, path=server.data_dir)


def rows(spark: "SparkSession", feed: Feed) -> "DataFrame":
    return spark.read.format("topics").options(url=feed.url, topic=feed.topic).load()


CHANGED = """
    select * except (tag, seq),
        if(seq = 77, null, tag) as tag,
        cast(case seq when 300 then 301 when 301 then 300 else seq end as bigint) as seq
    from lake where seq != 150
    union all select * except (tag, seq), tag, seq from lake where seq = 200
"""


def test_a_table_is_compared_with_the_log_row_by_row(
    spark: "SparkSession", fed: Feed, tmp_path: Path
) -> None:
    lake = rows(spark, fed)
    lake.write.parquet(str(tmp_path / "good"))
    lake.createOrReplaceTempView("lake")
    spark.sql(CHANGED).write.parquet(str(tmp_path / "bad"))
    given = (str(tmp_path / "good"), str(tmp_path / "bad"))
    report = run_audit(spark, url=fed.url, topics=(fed.topic,), lakes=given)
    good, bad = report.lakes
    assert not report.healthy
    assert good.healthy
    assert (good.log_records, good.lake_rows) == (450, 450)
    assert [(fault.seq, fault.fault) for fault in bad.faults] == [
        (77, "altered"), (150, "missing"), (200, "doubled"), (300, "altered"), (301, "altered"),
    ]  # fmt: skip


def test_what_the_log_has_dropped_since_may_stay_in_the_lake(
    spark: "SparkSession", fed: Feed, tmp_path: Path
) -> None:
    rows(spark, fed).write.parquet(str(tmp_path / "lake"))
    fed.delete_tag("t3")
    report = run_audit(spark, url=fed.url, topics=(fed.topic,), lakes=(str(tmp_path / "lake"),))
    assert report.healthy
    assert report.lakes[0].only_in_lake == 45


def test_tasks_share_the_bytes(store: Path) -> None:
    with closing(DirectoryPlan(str(store))) as plan:
        tasks = deal(plan.jobs, min_tasks=2)
        assert sorted(len(task) for task in tasks) == [2, 3]
        assert deal([], min_tasks=2) == []
        assert len(deal(plan.jobs, min_tasks=100)) == len(plan.jobs)


def test_a_dry_run_reads_no_segment(spark: "SparkSession", store: Path) -> None:
    flip_data(store)
    with JobRun("audit", dry_run=True) as run:
        audit(spark, AuditOptions(path=str(store)), run, clock=SystemClock())
    assert run.summary().detail["segments"] == 5


@pytest.mark.parametrize(
    "given",
    [{}, {"url": "http://x", "path": "/x"}, {"path": "x"}, {"url": "http://x", "cold": "/c"}],
)
def test_options_that_mean_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        check_options(AuditOptions(**given))


def test_a_manifest_that_names_a_seq_twice_or_never_is_bad(fed: Feed) -> None:
    manifest = msgspec.convert(fed.manifest(), Manifest)
    assert judge_manifest(manifest).verdict == "ok"
    doubled = [*manifest.segments, manifest.segments[0]]
    assert judge_manifest(msgspec.structs.replace(manifest, segments=doubled)).findings
    lost = [manifest.segments[0], *manifest.segments[2:]]
    verdict = judge_manifest(msgspec.structs.replace(manifest, segments=lost))
    assert verdict.uncovered == [(101, 200)]
    low = msgspec.structs.replace(manifest, evict_floor=manifest.earliest_seq + 1)
    assert "floors" in judge_manifest(low).findings[0].message


@needs_java
def test_the_command_writes_its_reports_and_ends_with_the_code_for_damage(
    store: Path, tmp_path: Path
) -> None:
    flip_data(store)
    said = subprocess.run(
        [sys.executable, "-m", "topics", "pipeline", "audit", "--path", str(store), "--master",
         "local[1]", "--report", "audit.json", "--html", "audit.html", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )  # fmt: skip
    assert said.returncode == exit_codes.DAMAGE, said.stderr
    assert "orders 101: damaged" in said.stderr
    assert json.loads(said.stdout)["detail"]["healthy"] is False
    assert json.loads((tmp_path / "audit.json").read_text())["records"] >= RECORDS - 100
    assert "not healthy" in (tmp_path / "audit.html").read_text()


def tail_of(server: ServerProcess, feed: Feed) -> Path:
    """Return the file of the topic's newest, unsealed segment."""
    return data_of(server, feed)[-1]


def test_the_tail_that_is_in_no_sealed_segment_is_read_from_the_server(
    server: ServerProcess, fed: Feed
) -> None:
    with closing(Server(fed.url)) as asked:
        plan = ServerPlan([asked.manifest(fed.topic)], url=fed.url)
    (tail,) = (job for job in plan.jobs if isinstance(job, Tail))
    assert (tail.first_seq, tail.last_seq) == (401, 450)
    checked = check_any(tail)
    assert (checked.first_seq, checked.records) == (401, 50)
    assert checked.files[0].verdict == "ok"
    wait_until(lambda: len(data_of(server, fed)) == 5, "a checkpoint of the tail")
    flip(tail_of(server, fed), 1000)
    (damaged,) = check_any(tail).files
    assert damaged.verdict == "damaged"
    (finding,) = damaged.findings
    assert finding.first_seq is not None
    assert 401 <= finding.first_seq <= 450


def test_a_tail_is_not_missed_where_the_log_dropped_it_meanwhile(fed: Feed) -> None:
    with closing(Server(fed.url)) as asked:
        plan = ServerPlan([asked.manifest(fed.topic)], url=fed.url)
    (tail,) = (job for job in plan.jobs if isinstance(job, Tail))
    beyond = msgspec.structs.replace(tail, last_seq=tail.last_seq + 5)
    assert "no frame" in check_any(beyond).files[0].findings[0].message
    fed.drop()
    assert check_any(tail).files[0].verdict == "ok"
    fed.number(3)
    assert check_any(tail).files[0].verdict == "ok"


@pytest.mark.parametrize(
    ("place", "upto"),
    [
        (Place(7, 60), 60),
        (Place(7, 5), 40),  # the log has dropped what the lake has reached, and more
        (Place(7, 500), 100),  # what a lake of another server would say
        (Place(0, 60), 60),
        (Place(6, 60), 40),  # the topic was made anew, and the lake does not know
        (None, 40),
    ],
)
def test_a_lake_should_have_what_its_batches_have_reached(place: Place | None, upto: int) -> None:
    state = PartState(part=Part("t", "t"), epoch=7, head_seq=100, earliest_seq=41)
    assert reach(state, {} if place is None else {"t": place}) == upto
    assert reach(state, None) == 100


def test_topics_that_were_dropped_or_made_anew_are_told_apart_from_damage(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    root, gone = str(tmp_path / "lake"), f"{feed.topic}-gone"
    lake = Lake(spark, tmp_path / "lake", feed)
    both = f"{feed.topic},{gone}"
    feed.number(7, topic=gone)
    feed.number(30)
    lake.run(infer=False, topics=both)
    feed.call("DELETE", f"/v0/topics/{gone}")
    feed.drop()
    feed.number(10)
    report = run_audit(spark, url=feed.url, topics=(feed.topic,), lakes=(root,))
    (found,) = report.lakes
    assert report.healthy, found
    assert (found.dropped_topics, found.earlier_lives) == ([gone], [feed.topic])
    assert (found.log_records, found.lake_rows, found.only_in_lake) == (0, 37, 37)
    page = render_page(report, made="today")
    assert f"dropped since: {gone}." in page
    lake.run(infer=False, topics=feed.topic)
    (found,) = run_audit(spark, url=feed.url, topics=(feed.topic,), lakes=(root,)).lakes
    assert found.healthy, found
    assert (found.log_records, found.lake_rows, found.only_in_lake) == (10, 47, 37)
    rows = lake.rows("_raw")
    assert len({row.epoch for row in rows if row.topic == feed.topic}) == 2
    assert {row.gap_reason for row in lake.rows("_gaps")} == {"recreated", "deleted"}


def test_nothing_is_found_in_a_healthy_store_of_a_million_records(tmp_path: Path) -> None:
    import topics  # noqa: PLC0415 - as a user opens it

    path = tmp_path / "data"
    records = [{"data": {"n": n}, "tag": f"t{n % 50}"} for n in range(10_000)]
    with topics.open(str(path)) as log:
        log.create("orders", durability="disk")
        for _ in range(100):
            log.append("orders", records)
        log.delete("orders", match="t3")
    report = audit_here(path)
    assert report.healthy, report.files[:5]
    assert (report.files, report.records) == ([], 1_000_000)
    assert {topic.verdict for topic in report.topics} == {"ok"}
    flip_data(path)
    assert not audit_here(path).healthy
