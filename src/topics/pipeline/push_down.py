"""What a filter of Spark says about topics, seqs, times and tags, so that less is read.

A filter is taken only if the reader keeps exactly the rows it would keep: Spark does not look at
those rows again. Filters come by the names of their classes, so that no Spark is needed here.
Rows that stand for a gap have neither seq, time nor tag: a filter on one of them drops these rows.
"""

from datetime import UTC, datetime
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from topics.kernel import MATCH_EQ, MATCH_PREFIX
from topics.pipeline.offsets import Part

SEQ_MAX: Final = 2**63 - 1


class Bounds(Struct, frozen=True, kw_only=True):
    """What is left to read."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_seq: int = 0
    last_seq: int = SEQ_MAX
    first_ts: int = 0
    last_ts: int = SEQ_MAX
    match: tuple[int, bytes] | None = None
    with_gaps: bool = True

    def has_part(self, part: Part) -> bool:
        return (self.topics is None or part.topic in self.topics) and (
            self.partitions is None or part.partition in self.partitions
        )

    @property
    def bounds_time(self) -> bool:
        return self.first_ts > 0 or self.last_ts < SEQ_MAX


class Filter(Protocol):
    """A filter of `pyspark.sql.datasource`; some have a `value`."""

    @property
    def attribute(self) -> tuple[str, ...]: ...


def push(bounds: Bounds, given: object) -> Bounds | None:
    """Narrow the bounds by a filter; None if it cannot be taken."""
    attribute: tuple[str, ...] | None = getattr(given, "attribute", None)
    if attribute is None or len(attribute) != 1:
        return None
    kind, column = type(given).__name__, attribute[0]
    value: Any = getattr(given, "value", None)
    take = _TAKERS.get(column)
    return None if take is None else take(bounds, kind, value)


def _push_topic(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    names = _values(kind, value, str)
    if names is None:
        return bounds if kind == "IsNotNull" else None
    if bounds.topics is not None:
        names &= bounds.topics
    return replace(bounds, topics=names)


def _push_partition(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    numbers = _values(kind, value, int)
    if numbers is None:
        return bounds if kind == "IsNotNull" else None
    if bounds.partitions is not None:
        numbers &= bounds.partitions
    return replace(bounds, partitions=numbers)


def _values(kind: str, value: Any, of: type) -> frozenset[Any] | None:  # noqa: ANN401 - as Spark gives it
    if kind == "EqualTo" and isinstance(value, of):
        return frozenset({value})
    if kind == "In" and isinstance(value, (tuple, list)) and all(isinstance(v, of) for v in value):
        return frozenset(value)
    return None


def _push_seq(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    if kind == "IsNotNull":
        return replace(bounds, with_gaps=False)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    span = _span(kind, low=value, high=value)
    if span is None:
        return None
    first, last = max(bounds.first_seq, span[0]), min(bounds.last_seq, span[1])
    return replace(bounds, first_seq=first, last_seq=last, with_gaps=False)


def _push_ts(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    if kind == "IsNotNull":
        return replace(bounds, with_gaps=False)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    # Times of records are whole milliseconds; the filter need not be.
    span = _span(kind, low=micros // 1000, high=-(-micros // 1000))
    if span is None:
        return None
    first, last = max(bounds.first_ts, span[0]), min(bounds.last_ts, span[1])
    return replace(bounds, first_ts=first, last_ts=last, with_gaps=False)


def _span(kind: str, *, low: int, high: int) -> tuple[int, int] | None:
    """Whole numbers that fulfil a comparison with a value between `low` and `high`."""
    spans = {
        "EqualTo": (high, low),  # empty unless the value is whole
        "GreaterThan": (low + 1, SEQ_MAX),
        "GreaterThanOrEqual": (high, SEQ_MAX),
        "LessThan": (0, high - 1),
        "LessThanOrEqual": (0, low),
    }
    return spans.get(kind)


def _push_tag(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    operator = {"EqualTo": MATCH_EQ, "StringStartsWith": MATCH_PREFIX}.get(kind)
    if operator is None or not isinstance(value, str) or bounds.match is not None:
        return None
    return replace(bounds, match=(operator, value.encode()), with_gaps=False)


_TAKERS: Final = {
    "topic": _push_topic,
    "partition": _push_partition,
    "seq": _push_seq,
    "ts": _push_ts,
    "tag": _push_tag,
}
