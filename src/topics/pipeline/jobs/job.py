"""One run of a job: what it has done, whom it tells, and how it is summed up.

Keeps: every run ends with one last word, `done` or `failed`, told to the same listeners as its
progress, and a listener that cannot be reached never stops a job. Needs no Spark. Reference:
docs/reference/pipeline.md.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from msgspec import Struct

from topics.clock import Clock, SystemClock

State: TypeAlias = Literal["started", "running", "done", "failed"]
PIPELINE_TOPIC: Final = "topics.pipeline"
"""Where all jobs write their progress; a job that reads every topic leaves it out."""


class Progress(Struct, frozen=True, kw_only=True):
    """How far a run has come: the record that a job writes to `topics.pipeline`."""

    job: str
    run: str
    state: State
    batch: int | None
    rows: int
    rows_per_s: float
    lag: int | None
    table: str | None
    tables: Mapping[str, int]
    """Of a lake: the tables that have changed since this run last spoke, and their rows now."""
    ts: int


class JobSummary(Struct, frozen=True, kw_only=True):
    """What a run did, for programs; `detail` is what the job alone knows."""

    job: str
    run: str
    state: State
    dry_run: bool
    batches: int
    rows: int
    seconds: float
    rows_per_s: float
    lag: int | None
    table: str | None
    detail: dict[str, Any]


Listener: TypeAlias = Callable[[Progress], None]


class JobRun:
    """Counts while a job runs; `with JobRun(...) as run:` tells its start and its end.

    `detail` is for the job to fill. A dry run counts and tells nobody.
    """

    def __init__(
        self,
        job: str,
        *,
        listeners: Iterable[Listener] = (),
        table: str | None = None,
        dry_run: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.job = job
        self.run = secrets.token_hex(8)
        self.dry_run = dry_run
        self.detail: dict[str, Any] = {}
        self._listeners = () if dry_run else tuple(listeners)
        self._table = table
        self._clock = clock or SystemClock()
        self._started_s = self._clock.monotonic_s()
        self._state: State = "started"
        self._rows = 0
        self._batches = 0
        self._lag: int | None = None

    def __enter__(self) -> Self:
        self._tell(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Ctrl-C ends a run that has no other end.
        stopped = kind is None or issubclass(kind, KeyboardInterrupt)
        self._state = "done" if stopped else "failed"
        self._tell(None)

    def step(
        self,
        *,
        rows: int,
        batch: int | None = None,
        lag: int | None = None,
        table: str | None = None,
        tables: Mapping[str, int] | None = None,
    ) -> None:
        """Count a batch of rows, and tell it; `lag` is what is known to be left."""
        self._state = "running"
        self._rows += rows
        self._batches += 1
        self._lag = lag
        self._tell(batch, table=table, tables=tables)

    def summary(self) -> JobSummary:
        seconds = self._clock.monotonic_s() - self._started_s
        return JobSummary(
            job=self.job,
            run=self.run,
            state=self._state,
            dry_run=self.dry_run,
            batches=self._batches,
            rows=self._rows,
            seconds=round(seconds, 3),
            rows_per_s=self._rows_per_s(seconds),
            lag=self._lag,
            table=self._table,
            detail=self.detail,
        )

    def _tell(
        self,
        batch: int | None,
        *,
        table: str | None = None,
        tables: Mapping[str, int] | None = None,
    ) -> None:
        seconds = self._clock.monotonic_s() - self._started_s
        progress = Progress(
            job=self.job,
            run=self.run,
            state=self._state,
            batch=batch,
            rows=self._rows,
            rows_per_s=self._rows_per_s(seconds),
            lag=self._lag,
            table=table or self._table,
            tables=tables or {},
            ts=self._clock.now_ms(),
        )
        for listener in self._listeners:
            listener(progress)

    def _rows_per_s(self, seconds: float) -> float:
        return round(self._rows / seconds, 1) if seconds > 0 else 0.0


def format_metrics(summary: JobSummary) -> str:
    """Write a summary as Prometheus reads it, for a collector of text files."""
    labels = f'{{job="{summary.job}"}}'
    values: dict[str, float | None] = {
        "rows": summary.rows,
        "batches": summary.batches,
        "seconds": summary.seconds,
        "lag_records": summary.lag,
        "failed": int(summary.state == "failed"),
    }
    lines: list[str] = []
    for name, value in values.items():
        if value is not None:
            full = f"topics_pipeline_{name}"
            lines += [f"# TYPE {full} gauge", f"{full}{labels} {value}"]
    return "\n".join(lines) + "\n"
