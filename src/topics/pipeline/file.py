"""The pipeline file: sources, schemas, tables, jobs and when they run. Needs no Spark.

Keeps: a key that nobody knows is refused with the nearest one that is known, and every name that a
job, table or source refers to is there. Reference: docs/reference/pipeline.md.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from topics.errors import ConfigError
from topics.pipeline.lake.compact import GRACE_MS, TARGET_BYTES
from topics.pipeline.lake.entry import FormatName, TableFormat
from topics.pipeline.lake.log import check_root
from topics.pipeline.lake.publish import parse_format
from topics.pipeline.lake.query import DEFAULT_BATCH_RECORDS
from topics.pipeline.lake.typed import TypedTable

ONCE: Final = "once"
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_USES: Final = {
    "lake": {"source", "infer", "max_records"},
    "rollup": {"source", "max_records", "window_ms"},
    "compact": {"target_bytes", "grace_ms"},
}
"""What a job of a kind may say besides `kind` and `trigger`."""
_INTERVAL: Final = re.compile(r"(\d+)(ms|s|m|h)")


class SourceSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics, and from where."""

    topics: list[str]
    starting: Literal["earliest", "latest"] = "earliest"


class TableSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A typed table: the topics in it, and the name of their schema."""

    topics: list[str]
    schema: str | None = None


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job; what a kind does not use may not be set."""

    kind: Literal["lake", "rollup", "compact"]
    source: str | None = None
    trigger: str = ONCE
    infer: bool = True
    max_records: int = DEFAULT_BATCH_RECORDS
    window_ms: int = 60_000
    target_bytes: int = TARGET_BYTES
    grace_ms: int = GRACE_MS

    @property
    def interval_ms(self) -> int | None:
        """How often it runs, None for once."""
        return None if self.trigger == ONCE else parse_interval_ms(self.trigger)


class PipelineFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    lake: str
    url: str = "http://127.0.0.1:4000"
    token_file: str | None = None
    master: str = "local[*]"
    format: FormatName | None = None
    catalog: str | None = None
    schemas: dict[str, str] = {}
    sources: dict[str, SourceSpec] = {}
    tables: dict[str, TableSpec] = {}
    jobs: dict[str, JobSpec] = {}

    @property
    def table_format(self) -> TableFormat | None:
        return parse_format(self.format, self.catalog)

    def topics_of(self, job: JobSpec) -> str:
        return "*" if job.source is None else ",".join(self.sources[job.source].topics)

    def starting_of(self, job: JobSpec) -> str:
        return "earliest" if job.source is None else self.sources[job.source].starting

    def typed_tables(self) -> list[TypedTable]:
        return [
            TypedTable(
                table=name,
                topics=tuple(table.topics),
                schema=None if table.schema is None else self.schemas[table.schema],
            )
            for name, table in self.tables.items()
        ]


def default_pipeline(*, lake: str, url: str, trigger: str = "1s") -> PipelineFile:
    """Return what runs when nothing is said: every topic into the lake, counted and compacted."""
    jobs = {
        "lake": JobSpec(kind="lake", trigger=trigger),
        "rollup": JobSpec(kind="rollup", trigger="10s" if trigger != ONCE else ONCE),
        "compact": JobSpec(kind="compact", trigger="10m" if trigger != ONCE else ONCE),
    }
    return PipelineFile(lake=check_root(lake), url=url, jobs=jobs)


def parse_pipeline(text: str, *, name: str) -> PipelineFile:
    """Read a file, or say what is wrong in it and where."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{name}: {problem}") from problem
    _check_keys(found, PipelineFile, name)
    try:
        parsed = msgspec.convert(found, PipelineFile)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{name}: {problem}") from problem
    check_root(parsed.lake)
    _ = parsed.table_format  # says what is missing
    _check_names(parsed, name)
    for title, job in parsed.jobs.items():
        _check_uses(job, found["jobs"][title], f"{name}: [jobs.{title}]")
    return parsed


def parse_interval_ms(text: str) -> int:
    found = _INTERVAL.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ConfigError(f"a trigger is `once` or an interval like 500ms, 10s, 5m, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def _check_keys(found: Mapping[str, Any], kind: type[Struct], where: str) -> None:
    hints = get_type_hints(kind)
    for key, value in found.items():
        if key not in hints:
            raise ConfigError(f"{where}: `{key}` is unknown: {_nearest(key, hints)}")
        inner = get_args(hints[key])[-1] if get_origin(hints[key]) is dict else None
        if isinstance(inner, type) and issubclass(inner, Struct) and isinstance(value, dict):
            for name, one in value.items():
                if isinstance(one, dict):
                    _check_keys(one, inner, f"{where}: [{key}.{name}]")


def _check_uses(job: JobSpec, given: Mapping[str, Any], where: str) -> None:
    unused = sorted(set(given) - {"kind", "trigger"} - _USES[job.kind])
    if unused:
        raise ConfigError(f"{where}: a job of kind {job.kind} does not use `{unused[0]}`")


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(sorted(known))}"


def _check_names(pipeline: PipelineFile, name: str) -> None:
    if not pipeline.jobs:
        raise ConfigError(f'{name} has no jobs: add [jobs.lake] with kind = "lake"')
    for title, table in pipeline.tables.items():
        if table.schema is not None and table.schema not in pipeline.schemas:
            hint = _nearest(table.schema, pipeline.schemas)
            raise ConfigError(f"{name}: [tables.{title}] names no schema: {hint}")
    kinds: set[str] = set()
    for title, job in pipeline.jobs.items():
        if job.source is not None and job.source not in pipeline.sources:
            hint = _nearest(job.source, pipeline.sources)
            raise ConfigError(f"{name}: [jobs.{title}] names no source: {hint}")
        if job.trigger != ONCE:
            parse_interval_ms(job.trigger)
        if job.kind in kinds:
            raise ConfigError(f"{name}: [jobs.{title}]: one lake has one job of kind {job.kind}")
        kinds.add(job.kind)
