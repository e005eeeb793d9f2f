"""The pipeline file: sources, schemas, tables, jobs and when they run. Needs no Spark.

Keeps: a key that nobody knows is refused with the nearest one that is known, and every name that a
job, table or source refers to is there. Reference: docs/reference/pipeline.md.
"""

import difflib
import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from topics.errors import ConfigError
from topics.pipeline.job_specs import (
    KINDS,
    ONCE,
    BulkLoadJob,
    CompactJob,
    JobSpec,
    LakeJob,
    ReplayJob,
    RollupJob,
    TopicsJob,
)
from topics.pipeline.lake.entry import FormatName, TableFormat
from topics.pipeline.lake.log import check_root
from topics.pipeline.lake.publish import parse_format
from topics.pipeline.lake.typed import TypedTable

ONE_OF_A_LAKE: Final = frozenset({"lake", "rollup", "compact"})
"""Kinds of which a lake has one job: they have one place in it."""


class SourceSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics, and from where."""

    topics: list[str]
    starting: Literal["earliest", "latest"] = "earliest"


class TableSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A typed table: the topics in it, and the name of their schema."""

    topics: list[str]
    schema: str | None = None


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

    def topics_of(self, job: TopicsJob) -> str:
        return "*" if job.source is None else ",".join(self.sources[job.source].topics)

    def starting_of(self, job: TopicsJob) -> str:
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
    jobs: dict[str, JobSpec] = {
        "lake": LakeJob(trigger=trigger),
        "rollup": RollupJob(trigger="10s" if trigger != ONCE else ONCE),
        "compact": CompactJob(trigger="10m" if trigger != ONCE else ONCE),
    }
    return PipelineFile(lake=check_root(lake), url=url, jobs=jobs)


def parse_pipeline(text: str, *, name: str) -> PipelineFile:
    """Read a file, or say what is wrong in it and where."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{name}: {problem}") from problem
    _check_keys(found, PipelineFile, name)
    jobs = found.get("jobs", {})
    for title, given in jobs.items() if isinstance(jobs, dict) else ():
        if isinstance(given, dict):
            _check_job(given, f"{name}: [jobs.{title}]")
    try:
        parsed = msgspec.convert(found, PipelineFile)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{name}: {problem}") from problem
    check_root(parsed.lake)
    _ = parsed.table_format  # says what is missing
    _check_names(parsed, name)
    return parsed


def _fields(kind: type[Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _check_keys(found: Mapping[str, Any], kind: type[Struct], where: str) -> None:
    fields = _fields(kind)
    for key, value in found.items():
        if key not in fields:
            raise ConfigError(f"{where}: `{key}` is unknown: {_nearest(key, fields)}")
        inner = get_args(fields[key])[-1] if get_origin(fields[key]) is dict else None
        if isinstance(inner, type) and issubclass(inner, Struct) and isinstance(value, dict):
            for name, one in value.items():
                if isinstance(one, dict):
                    _check_keys(one, inner, f"{where}: [{key}.{name}]")


def _check_job(given: Mapping[str, Any], where: str) -> None:
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"{where}: there is no kind {kind!r}: {_nearest(str(kind), KINDS)}")
    known = {"kind": str, **_fields(KINDS[kind])}
    for key in (key for key in given if key not in known):
        if any(key in _fields(other) for other in KINDS.values()):
            raise ConfigError(f"{where}: a job of kind {kind} does not use `{key}`")
        raise ConfigError(f"{where}: `{key}` is unknown: {_nearest(key, known)}")
    try:
        msgspec.convert(given, KINDS[kind])
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{where}: {problem}") from problem


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(sorted(known))}"


def _check_names(pipeline: PipelineFile, name: str) -> None:
    if not pipeline.jobs:
        raise ConfigError(f'{name} has no jobs: add [jobs.lake] with kind = "lake"')
    for title, table in pipeline.tables.items():
        if not title or title.startswith("_"):
            raise ConfigError(
                f"{name}: [tables.{title}]: names with `_` in front are the lake's own"
            )
        if table.schema is not None and table.schema not in pipeline.schemas:
            hint = _nearest(table.schema, pipeline.schemas)
            raise ConfigError(f"{name}: [tables.{title}] names no schema: {hint}")
    for title, job in pipeline.jobs.items():
        _check_spec(pipeline, job, f"{name}: [jobs.{title}]")
    _check_alone(pipeline, name)


def _check_spec(pipeline: PipelineFile, job: JobSpec, where: str) -> None:
    source = job.source if isinstance(job, TopicsJob) else None
    if source is not None and source not in pipeline.sources:
        raise ConfigError(f"{where} names no source: {_nearest(source, pipeline.sources)}")
    try:
        job.check(pipeline.url)
    except ConfigError as problem:
        raise ConfigError(f"{where}: {problem}") from problem


def _check_alone(pipeline: PipelineFile, name: str) -> None:
    """Refuse two jobs that would take each other's place."""
    places: set[tuple[str, str]] = set()
    for title, job in pipeline.jobs.items():
        if job.kind in ONE_OF_A_LAKE:
            place, said = (job.kind, ""), f"one lake has one job of kind {job.kind}"
        elif isinstance(job, ReplayJob):
            place, said = (job.kind, job.name), f"another replay has the name {job.name!r}"
        elif isinstance(job, BulkLoadJob):
            place, said = (job.kind, job.topic), f"another job loads {job.topic!r}"
        else:
            continue
        if place in places:
            raise ConfigError(f"{name}: [jobs.{title}]: {said}")
        places.add(place)
