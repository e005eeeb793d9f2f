"""`audit`: read everything, believe nothing, and say what is wrong.

    which segments there should be → every frame, in all tasks → floors, density → lake and log

Changes nothing. Reference: docs/reference/pipeline-jobs.md.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topics.clock import Clock, SystemClock
from topics.errors import OptionError, PipelineError
from topics.model.segments import Manifest
from topics.pipeline.audit.check import check_segments
from topics.pipeline.audit.lake import (
    LakeRows,
    LakeVerdict,
    compare_rows,
    reach,
    read_lake,
    split_rows,
)
from topics.pipeline.audit.plan import AuditPlan, DirectoryPlan, ServerPlan
from topics.pipeline.audit.report import AuditReport, sum_up
from topics.pipeline.catalog import Catalog, ServerCatalog
from topics.pipeline.directory import DirectoryCatalog
from topics.pipeline.jobs.job import PIPELINE_TOPIC, JobRun
from topics.pipeline.offsets import PartState
from topics.pipeline.options import Token
from topics.pipeline.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIN_MS = 120_000
RENEW_S = 30.0
MIN_TASKS = 8


class AuditOptions(Struct, frozen=True, kw_only=True):
    """What is audited: a server, or a data directory that nobody has open."""

    url: str | None = None
    token: Token | None = None
    path: str | None = None
    cold: str | None = None
    topics: tuple[str, ...] = ("*",)
    """Of a server: names and prefixes."""
    lakes: tuple[str, ...] = ()
    """Lakes, or folders of Parquet with the rows of the source; compared with the log."""


def check_options(options: AuditOptions) -> None:
    if (options.url is None) == (options.path is None):
        raise OptionError("give either a server (url) or a data directory (path)")
    for path in (options.path, options.cold, *options.lakes):
        if path is not None and not path.startswith("/"):
            raise OptionError(f"{path} must be absolute: executors have other working directories")
    if options.cold is not None and options.path is None:
        raise OptionError("a server knows its cold directory: `cold` goes with `path`")


def audit(
    spark: "SparkSession", options: AuditOptions, run: JobRun, *, clock: Clock | None = None
) -> AuditReport:
    """Audit; the report says whether anything is wrong, and exactly where."""
    check_options(options)
    clock = clock or SystemClock()
    started_s = clock.monotonic_s()
    source = options.url or options.path or ""
    with _open_plan(options) as plan:
        run.detail.update(segments=len(plan.jobs), bytes=sum(job.bytes for job in plan.jobs))
        if run.dry_run:
            return sum_up(source, [], [], ([], []), [], seconds=0.0)
        checked = check_segments(spark, plan.jobs, min_tasks=MIN_TASKS)
        verdicts = plan.judge(checked)
    run.step(rows=sum(found.records for found in checked))
    lakes = [_compare(spark, options, lake) for lake in options.lakes]
    seconds = clock.monotonic_s() - started_s
    report = sum_up(source, plan.jobs, checked, verdicts, lakes, seconds=seconds)
    run.detail.update(healthy=report.healthy, bad_segments=len(report.bad_segments))
    return report


@contextmanager
def _open_plan(options: AuditOptions) -> Iterator[AuditPlan]:
    if options.path is not None:
        with closing(DirectoryPlan(options.path, options.cold)) as plan:
            yield plan
        return
    assert options.url is not None
    with closing(Server(options.url, options.token)) as server:
        states = ServerCatalog(server).states(options.topics)
        manifests = [server.manifest(state.part.name, pin_ms=PIN_MS) for state in states]
        with _holding(options, manifests):
            yield ServerPlan(manifests, url=options.url, token=options.token)


@contextmanager
def _holding(options: AuditOptions, manifests: Sequence[Manifest]) -> Iterator[None]:
    """Renew pins for as long as it takes, then release them."""
    pins = [manifest.pin.id for manifest in manifests if manifest.pin is not None]
    done = threading.Event()
    renewer = threading.Thread(
        target=_renew, args=(options, pins, done), name="topics-audit-pins", daemon=True
    )
    renewer.start()
    try:
        yield
    finally:
        done.set()
        renewer.join()


def _renew(options: AuditOptions, pins: Sequence[str], done: threading.Event) -> None:
    assert options.url is not None
    with closing(Server(options.url, options.token)) as server:
        while not done.wait(RENEW_S):
            for pin in pins:
                _try(server, pin, release=False)
        for pin in pins:
            _try(server, pin, release=True)


def _try(server: Server, pin: str, *, release: bool) -> None:
    """Go on without a pin that is gone: a file that moved then shows up as missing."""
    try:
        if release:
            server.release_pin(pin)
        else:
            server.renew_pin(pin, pin_ms=PIN_MS)
    except PipelineError:
        return


def _compare(spark: "SparkSession", options: AuditOptions, path: str) -> LakeVerdict:
    """Compare a lake with what the log has of its topics, as far as its batches went."""
    lake = read_lake(spark, path)
    names = {row[0] for row in lake.frame.select("topic").distinct().collect()}
    topics = sorted({*names, *(lake.places or ())} - {PIPELINE_TOPIC})
    with closing(_open_catalog(options)) as catalog:
        states = catalog.states(topics, skip_missing=True)
    rows, others = split_rows(lake.frame, states)
    verdict = LakeVerdict(table=path, log_records=0, lake_rows=0)
    if states:
        verdict = compare_rows(_read_log(spark, options, lake, states), rows, table=path)
    there = {state.part.topic for state in states}
    return replace(
        verdict,
        lake_rows=verdict.lake_rows + sum(others.values()),
        only_in_lake=verdict.only_in_lake + sum(others.values()),
        dropped_topics=sorted(set(others) - there),
        earlier_lives=sorted(set(others) & there),
    )


def _open_catalog(options: AuditOptions) -> Catalog:
    if options.path is not None:
        return DirectoryCatalog(options.path)
    assert options.url is not None
    return ServerCatalog(Server(options.url, options.token))


def _read_log(
    spark: "SparkSession", options: AuditOptions, lake: LakeRows, states: Sequence[PartState]
) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs pyspark

    given = {"topic": ",".join(sorted({s.part.topic for s in states})), "failOnDataLoss": "false"}
    if options.path is not None:
        given["path"] = options.path
    else:
        given |= {"url": options.url or ""} | ({"token": options.token} if options.token else {})
    ends = {state.part.name: reach(state, lake.places) for state in states}
    given["endingOffsets"] = msgspec.json.encode(ends).decode()
    frame = spark.read.format("topics").options(**given).load()
    return frame.where(f.col("seq").isNotNull())
