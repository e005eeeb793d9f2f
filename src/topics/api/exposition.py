"""Metrics as text and as JSON: the format of Prometheus 0.0.4, every family with HELP and TYPE."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from topics.histogram import Histogram

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "histogram"]
Value = float | Histogram
Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class Family(NamedTuple):
    """One metric with all its series."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[tuple[Labels, Value]]


def gauge(name: str, help_text: str, value: float) -> Family:
    return Family(name, "gauge", help_text, [(NO_LABELS, value)])


def counter(name: str, help_text: str, value: float) -> Family:
    return Family(name, "counter", help_text, [(NO_LABELS, value)])


def format_text(families: Iterable[Family]) -> bytes:
    return "".join(line + "\n" for family in families for line in _lines(family)).encode()


def as_json(families: Iterable[Family]) -> dict[str, object]:
    """Return name → value; a metric with labels is a list of labels and value."""
    return {family.name: _json_of(family) for family in families}


def _lines(family: Family) -> Iterator[str]:
    help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {family.name} {help_text}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, value in family.samples:
        if isinstance(value, Histogram):
            yield from _histogram_lines(family.name, labels, value)
        else:
            yield f"{family.name}{_format_labels(labels)} {_format_number(value)}"


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    for bound, count in cumulate(histogram):
        yield f"{name}_bucket{_format_labels({**labels, 'le': bound})} {count}"
    shown = _format_labels(labels)
    yield f"{name}_sum{shown} {_format_number(histogram.total)}"
    yield f"{name}_count{shown} {histogram.count}"


def cumulate(histogram: Histogram) -> Iterator[tuple[str, int]]:
    """Yield each bound with how many values are at or below it."""
    below = 0
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        below += count
        yield bound, below


def _format_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _json_of(family: Family) -> object:
    if len(family.samples) == 1 and not family.samples[0][0]:
        return _json_value(family.samples[0][1])
    return [{"labels": labels, "value": _json_value(value)} for labels, value in family.samples]


def _json_value(value: Value) -> object:
    if not isinstance(value, Histogram):
        return int(value) if isinstance(value, bool) else value
    return {"buckets": dict(cumulate(value)), "sum": value.total, "count": value.count}
