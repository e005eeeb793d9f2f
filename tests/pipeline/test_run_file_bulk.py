"""Jobs on whole topics in a pipeline file: they are run, run again, and tell what they find."""

import json
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.feed import Feed
from typer.testing import CliRunner, Result

from topics.cli import exit_codes
from topics.cli.app import app
from topics.pipeline import run_kind
from topics.pipeline.audit.report import AuditReport, SegmentVerdict
from topics.pipeline.file import parse_pipeline
from topics.pipeline.jobs.audit import AuditOptions
from topics.pipeline.jobs.job import JobRun, Progress
from topics.pipeline.run_file import run_pipeline
from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Any = None
DEADLINE_S = 30.0
BAD = SegmentVerdict(
    topic="orders", first_seq=1, records=9, tier="hot", bytes=99, verdict="damaged"
)
REPORT = AuditReport(
    healthy=False, source="x", segments=[BAD], topics=[], files=[], lakes=[], records=9, bytes=99,
    seconds=1.0,
)  # fmt: skip
AUDIT = '[jobs.check]\nkind = "audit"\n'


def find_damage(_: object, __: AuditOptions, run: JobRun) -> AuditReport:
    run.findings = REPORT.findings
    run.step(rows=9)
    return REPORT


def test_an_audit_that_finds_damage_tells_it_and_the_other_jobs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited, compacted = threading.Event(), threading.Event()

    def compact_after(*_: object) -> None:
        assert audited.wait(DEADLINE_S)
        compacted.set()

    monkeypatch.setattr(run_kind, "audit", find_damage)
    monkeypatch.setattr(run_kind, "compact_cold", compact_after)
    text = f'lake = "{tmp_path}/lake"\n{AUDIT}trigger = "10ms"\n'
    text += '[jobs.cold]\nkind = "compact-cold"\ntrigger = "10ms"\n'
    told: list[Progress] = []
    summaries = run_pipeline(
        NO_SPARK,
        parse_pipeline(text, name="file"),
        token=None,
        listeners=[told.append],
        audited=lambda job, found: (
            audited.set() if found is REPORT and job.source is None else None
        ),
        stopped=compacted.is_set,
    )
    assert {summary.job: summary.state for summary in summaries} == {
        "check": "done",
        "cold": "done",
    }
    assert {summary.job: summary.findings for summary in summaries} == {"check": 1, "cold": None}
    running = [one for one in told if one.job == "check" and one.state == "running"]
    assert {one.findings for one in running} == {1}


def test_an_error_that_is_not_ours_ends_the_run_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(run_kind, "compact_cold", fail)
    monkeypatch.setattr(run_kind, "audit", find_damage)
    text = f'lake = "{tmp_path}/lake"\n{AUDIT}trigger = "10ms"\n'
    text += '[jobs.cold]\nkind = "compact-cold"\ntrigger = "10ms"\n'
    ended: list[str] = []
    deadline_s = time.monotonic() + DEADLINE_S
    with pytest.raises(ZeroDivisionError):
        run_pipeline(
            NO_SPARK,
            parse_pipeline(text, name="file"),
            token=None,
            ended=lambda summary: ended.append(f"{summary.job} {summary.state}"),
            stopped=lambda: time.monotonic() > deadline_s,
        )
    assert time.monotonic() < deadline_s, "nothing but the error has ended it"
    assert sorted(ended) == ["check done", "cold failed"]


def run_command(spark: Any, file: Path, *flags: str) -> Result:  # noqa: ANN401 - or none
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topics.cli.pipeline.check_installed", lambda: None)
        patch.setattr("topics.cli.pipeline.open_spark", lambda *_: nullcontext(spark))
        patch.setattr("topics.cli.spark.Stop.on_signals", lambda _: None)
        return CliRunner().invoke(app, ["pipeline", "run", str(file), *flags, "--json"])


def test_the_command_ends_with_the_code_for_damage_and_writes_reports_and_metrics(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_kind, "audit", find_damage)
    file, metrics, report = tmp_path / "p.toml", tmp_path / "metrics", tmp_path / "audit.json"
    head = f'lake = "{tmp_path}/lake"\nurl = "{server.url}"\n'
    file.write_text(f'{head}{AUDIT}report = "{report}"\n')
    said = run_command(NO_SPARK, file, "--metrics", str(metrics))
    assert said.exit_code == exit_codes.DAMAGE, said.output
    assert json.loads(said.stdout)["findings"] == 1
    assert "orders 1: damaged" in said.stderr
    assert json.loads(report.read_text())["healthy"] is False
    assert 'topics_pipeline_findings{job="check"} 1' in metrics.read_text()
    assert not (tmp_path / "lake").exists(), "nothing here writes one"


FILE = """
lake = "{lake}"
url = "{url}"
[sources.one]
topics = ["{topic}"]
[jobs.load]
kind = "bulk-load"
topic = "{topic}-loaded"
path = "{lines}"
[jobs.again]
kind = "replay"
into = "{topic}-again"
name = "again"
topic = "{topic}-loaded"
from = 3
to = 7
[jobs.lake]
kind = "lake"
source = "one"
[jobs.check]
kind = "audit"
source = "one"
[jobs.cold]
kind = "compact-cold"
source = "one"
"""


def test_a_file_of_all_kinds_can_be_run_again_and_finds_damage_when_there_is_some(
    spark: "SparkSession", feed: Feed, tmp_path: Path
) -> None:
    feed.number(250)
    feed.wait_for_sealed(2)
    lines, file = tmp_path / "lines.jsonl", tmp_path / "p.toml"
    lines.write_text("".join(f'{{"n":{n}}}\n' for n in range(10)))
    file.write_text(
        FILE.format(lake=tmp_path / "lake", url=feed.url, topic=feed.topic, lines=lines)
    )
    first = run_command(spark, file)
    assert first.exit_code == 0, first.output
    load, again, lake, check, cold = map(json.loads, first.stdout.splitlines())
    assert (load["rows"], load["detail"]["already_there"]) == (10, False)
    assert (again["rows"], again["detail"]["head_moved"]) == (5, 5)
    assert (lake["rows"], check["findings"], cold["state"]) == (250, 0, "done")
    assert [one["data"]["n"] for one in feed.records(f"{feed.topic}-again")] == [2, 3, 4, 5, 6]

    path = Path(feed.sealed()[0]["location"]["data"].removeprefix("file://"))
    content = bytearray(path.read_bytes())
    content[1000] ^= 0x10
    path.write_bytes(content)
    second = run_command(spark, file)
    assert second.exit_code == exit_codes.DAMAGE, second.output
    load, again, lake, check, cold = map(json.loads, second.stdout.splitlines())
    assert (load["rows"], load["detail"]["already_there"]) == (0, True)
    assert again["detail"]["head_moved"] == 0
    assert check["findings"] > 0
    assert f"{feed.topic} 1: damaged" in second.stderr
    assert f"{feed.topic} is damaged in the log: not compared" in second.stderr
    assert cold["state"] == "done", "it runs although the audit has found damage"
