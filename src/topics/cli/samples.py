"""The metrics of a server at one moment, as it prints them; and what two of them say together."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

_LINE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
FSYNC: Final = "topics_wal_fsync_latency_us"
COUNTS: Final = {
    "topics": "topics_topics",
    "records": "topics_records_live",
    "bytes": "topics_bytes_live",
    "at_risk_records": "topics_at_risk_records",
    "connections": "topics_connections",
    "read_only_shards": "topics_wal_read_only",
    "disk_full": "topics_disk_full",
    "uptime_ms": "topics_uptime_ms",
}
Labels = dict[str, str]


class Sample(Struct, frozen=True):
    """All series of one moment, by name."""

    at_s: float
    series: dict[str, list[tuple[Labels, float]]]

    def value(self, name: str) -> float:
        """Return a metric without labels; 0 where the server has none."""
        return next((value for _, value in self.series.get(name, [])), 0.0)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of a metric by one of its labels."""
        sums: dict[str, float] = {}
        for labels, value in self.series.get(name, []):
            key = labels.get(label, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums


class View(Struct, frozen=True, kw_only=True):
    """What happened between two samples, and what is there at the second."""

    server: dict[str, float | None]
    topics: list[dict[str, object]]
    queues: list[dict[str, object]]
    groups: list[dict[str, object]]


def parse_sample(text: str, *, at_s: float) -> Sample:
    series: dict[str, list[tuple[Labels, float]]] = {}
    for name, labels, value in _parsed(text):
        series.setdefault(name, []).append((labels, value))
    return Sample(at_s, series)


def compare(before: Sample, after: Sample) -> View:
    """Return rates between two samples, the busiest topics and the slowest groups first."""
    seconds = max(1e-3, after.at_s - before.at_s)

    def rate(name: str) -> float:
        return round(_per_second(before.value(name), after.value(name), seconds), 1)

    server: dict[str, float | None] = {
        "writes_per_s": rate("topics_records_appended_total"),
        "reads_per_s": rate("topics_records_delivered_total"),
        "fsyncs_per_s": rate("topics_wal_fsyncs_total"),
        "fsync_p99_ms": percentile_ms(before, after, FSYNC, 0.99),
    }
    server |= {name: int(after.value(metric)) for name, metric in COUNTS.items()}
    return View(
        server=server,
        topics=_topics(before, after, seconds),
        queues=_queues(after),
        groups=[
            {"group": group, "lag": int(lag)}
            for group, lag in _largest_first(after.by("topics_group_lag", "group"))
        ],
    )


def percentile_ms(before: Sample, after: Sample, name: str, share: float) -> float | None:
    """Return a percentile between two samples; of the whole life where nothing happened since.

    It is the bound of the bucket that the percentile falls into, so never too small.
    """
    then, now = _buckets(before, name), _buckets(after, name)
    since = {bound: count - then.get(bound, 0.0) for bound, count in now.items()}
    counts = since if max(since.values(), default=0.0) > 0 else now
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    bound = min(bound for bound, count in counts.items() if count >= total * share)
    finite = [known for known in counts if known != float("inf")]
    return min(bound, max(finite, default=0.0)) / 1_000


def _topics(before: Sample, after: Sample, seconds: float) -> list[dict[str, object]]:
    heads = after.by("topics_topic_head_seq", "topic")
    old = before.by("topics_topic_head_seq", "topic")
    records = after.by("topics_topic_records_live", "topic")
    sizes = after.by("topics_topic_bytes_live", "topic")
    rates = {
        topic: _per_second(old.get(topic, head), head, seconds) for topic, head in heads.items()
    }
    return [
        {
            "topic": topic,
            "writes_per_s": round(rate, 1),
            "head_seq": int(heads[topic]),
            "records": int(records.get(topic, 0)),
            "bytes": int(sizes.get(topic, 0)),
        }
        for topic, rate in _largest_first(rates)
    ]


def _queues(after: Sample) -> list[dict[str, object]]:
    held = after.by("topics_topic_queue_in_flight", "topic")
    ready = after.by("topics_topic_queue_ready", "topic")
    return [
        {"queue": queue, "ready": int(count), "in_flight": int(held.get(queue, 0))}
        for queue, count in _largest_first(ready)
    ]


def _largest_first(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: (-item[1], item[0]))


def _per_second(before: float, after: float, seconds: float) -> float:
    # A counter that fell belongs to a server that was started again.
    return (after - before if after >= before else after) / seconds


def _buckets(sample: Sample, name: str) -> dict[float, float]:
    return {
        float(labels["le"]): count
        for labels, count in sample.series.get(f"{name}_bucket", [])
        if "le" in labels
    }


def _parsed(text: str) -> Iterator[tuple[str, Labels, float]]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        name, labels, value = found.groups()
        yield name, {key: _unescape(raw) for key, raw in _LABEL.findall(labels or "")}, float(value)


def _unescape(raw: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], raw)
