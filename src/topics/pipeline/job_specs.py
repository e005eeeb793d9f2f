"""The jobs that a pipeline file may name: one struct a kind, with what may be said of it.

Keeps: a key is called as the option of the command. What a kind does not use it does not have.
Reference: docs/reference/pipeline.md.
"""

import re
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import Meta, Struct, field

from topics.errors import ConfigError
from topics.pipeline.jobs.audit import AuditOptions
from topics.pipeline.jobs.audit import check_options as check_audit
from topics.pipeline.jobs.bulk_load import LoadOptions, check_load
from topics.pipeline.jobs.compact_cold import CompactOptions as CompactColdOptions
from topics.pipeline.jobs.replay import ReplayOptions, check_replay
from topics.pipeline.jobs.rollup import WINDOW_MS
from topics.pipeline.lake.compact import GRACE_MS, TARGET_BYTES, CompactOptions
from topics.pipeline.lake.query import DEFAULT_BATCH_RECORDS
from topics.pipeline.load_input import LoadInput
from topics.pipeline.options import Token

ONCE: Final = "once"
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_INTERVAL: Final = re.compile(r"(\d+)(ms|s|m|h)")
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Ratio: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]


def parse_interval_ms(text: str) -> int:
    found = _INTERVAL.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ConfigError(f"a trigger is `once` or an interval like 500ms, 10s, 5m, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


class Job(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all jobs have: when they run."""

    trigger: str = ONCE

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def interval_ms(self) -> int | None:
        """How often it runs, None for once."""
        return None if self.trigger == ONCE else parse_interval_ms(self.trigger)

    def check(self, url: str) -> None:
        """Refuse what can be known to be wrong before anything runs."""
        _ = url, self.interval_ms


class TopicsJob(Job, frozen=True, kw_only=True):
    """A job on topics that a source names; without one on all of them."""

    source: str | None = None


class LakeJob(TopicsJob, frozen=True, kw_only=True, tag="lake"):
    """Topics into the lake."""

    infer: bool = True
    max_records: int = DEFAULT_BATCH_RECORDS


class RollupJob(TopicsJob, frozen=True, kw_only=True, tag="rollup"):
    """Counts of what comes."""

    max_records: int = DEFAULT_BATCH_RECORDS
    window_ms: int = WINDOW_MS


class CompactJob(Job, frozen=True, kw_only=True, tag="compact"):
    """Small files of the lake into large ones."""

    target_bytes: int = TARGET_BYTES
    grace_ms: int = GRACE_MS

    def options(self) -> CompactOptions:
        return CompactOptions(target_bytes=self.target_bytes, grace_ms=self.grace_ms)


class AuditJob(TopicsJob, frozen=True, kw_only=True, tag="audit"):
    """Every frame against its checksum, and lakes against the log."""

    lake: list[str] | None = None
    """Lakes to compare; without it that of the file."""
    report: str | None = None
    html: str | None = None

    def options(
        self, url: str, token: Token | None, *, topics: str = "*", lake: str | None = None
    ) -> AuditOptions:
        lakes = self.lake if self.lake is not None else [] if lake is None else [lake]
        named = tuple(topics.split(","))
        return AuditOptions(url=url, token=token, topics=named, lakes=tuple(lakes))

    def check(self, url: str) -> None:
        super().check(url)
        check_audit(self.options(url, None))


class CompactColdJob(TopicsJob, frozen=True, kw_only=True, tag="compact-cold"):
    """Cold segments without their dead records."""

    min_dead_ratio: Ratio = 0.5
    at_a_time: Count = 64

    def options(self, url: str, token: Token | None, *, topics: str) -> CompactColdOptions:
        return CompactColdOptions(
            url=url, token=token, topics=tuple(topics.split(",")),
            min_dead_ratio=self.min_dead_ratio, segments_at_a_time=self.at_a_time,
        )  # fmt: skip


class OnceJob(Job, frozen=True, kw_only=True):
    """A job that has an end and then nothing more to do."""

    def check(self, url: str) -> None:
        _ = url
        if self.trigger != ONCE:
            raise ConfigError(f"a job of kind {self.kind} runs once, not every {self.trigger}")


class ReplayJob(OnceJob, frozen=True, kw_only=True, tag="replay"):
    """A range of a topic, or of a lake, into a topic."""

    into: str
    name: str
    topic: str | None = None
    lake: str | None = None
    where: str | None = None
    first_seq: Count = field(name="from", default=1)
    last_seq: Count | None = field(name="to", default=None)
    rate: Count | None = None
    drop_dead_letter_meta: bool = False

    def options(self, url: str, token: Token | None) -> ReplayOptions:
        return ReplayOptions(
            url=url, token=token, into=self.into, name=self.name, topic=self.topic,
            lake=self.lake, where=self.where, first_seq=self.first_seq, last_seq=self.last_seq,
            records_per_second=self.rate, drop_dead_letter_meta=self.drop_dead_letter_meta,
        )  # fmt: skip

    def check(self, url: str) -> None:
        super().check(url)
        check_replay(self.options(url, None))


class BulkLoadJob(OnceJob, frozen=True, kw_only=True, tag="bulk-load"):
    """Files into a new topic."""

    topic: str
    path: str | None = None
    format: Literal["jsonl", "csv", "parquet", "kafka"] = "jsonl"
    tag: str | None = None
    ts: str | None = None
    schema: str | None = None
    option: dict[str, str] = {}
    config: dict[str, Any] = {}
    drop_dead_letter_meta: bool = False

    def options(self, url: str, token: Token | None) -> LoadOptions:
        given = LoadInput(
            format=self.format, path=self.path, schema=self.schema, tag=self.tag, ts=self.ts,
            options=self.option,
        )  # fmt: skip
        return LoadOptions(
            url=url, token=token, topic=self.topic, input=given, config=self.config,
            drop_dead_letter_meta=self.drop_dead_letter_meta,
        )  # fmt: skip

    def check(self, url: str) -> None:
        super().check(url)
        check_load(self.options(url, None))


JobSpec: TypeAlias = (
    LakeJob | RollupJob | CompactJob | AuditJob | CompactColdJob | ReplayJob | BulkLoadJob
)
KINDS: Final[dict[str, type[Job]]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(JobSpec)
}
