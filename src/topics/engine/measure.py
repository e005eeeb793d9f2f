"""What the engine can say about itself in numbers.

Takes no lock: every figure is right at some moment of the call, not all at the same one.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from topics.engine.engine import Engine
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.histogram import LATENCY_US, SIZES, Histogram

DURABILITIES = ("ephemeral", "memory", "disk", "fsync")
TIERS = ("hot", "cold")


class TopicFigures(Struct, kw_only=True):
    """Sums over all topics."""

    by_class: dict[str, int]
    queues: int = 0
    records_live: int = 0
    bytes_live: int = 0
    records_evicted: int = 0
    segments: dict[str, int]
    segment_bytes: dict[str, int]


class WalFigures(Struct, kw_only=True):
    """Sums over all shards."""

    frames: int = 0
    batches: int = 0
    fsyncs: int = 0
    bytes_written: int = 0
    rotations: int = 0
    submit_full: int = 0
    queue_depth: int = 0
    queue_depth_peak: int = 0
    read_only: int = 0
    tail_bytes: int = 0
    records_appended: int = 0
    records_evicted: int = 0
    at_risk_records: int = 0
    sync_us: Histogram
    batch_tickets: Histogram


def measure_topics(topics: Iterable[Topic]) -> TopicFigures:
    by_class = Counter(dict.fromkeys(DURABILITIES, 0))
    segments, segment_bytes = Counter(dict.fromkeys(TIERS, 0)), Counter(dict.fromkeys(TIERS, 0))
    figures = TopicFigures(by_class=by_class, segments=segments, segment_bytes=segment_bytes)
    for topic in topics:
        by_class[topic.config.durability] += 1
        figures.queues += topic.config.type == "queue"
        figures.records_live += topic.live_records
        figures.bytes_live += topic.live_bytes
        figures.records_evicted += topic.evicted_records
        for segment in topic.segments():
            segments[segment.tier] += 1
            segment_bytes[segment.tier] += segment.data_bytes
    return figures


def measure_wal(shards: Iterable[Shard]) -> WalFigures:
    figures = WalFigures(sync_us=Histogram(LATENCY_US), batch_tickets=Histogram(SIZES))
    for shard in shards:
        commit = shard.commit
        counters = commit.log.counters
        for name in ("frames", "batches", "fsyncs", "bytes_written", "rotations"):
            setattr(figures, name, getattr(figures, name) + getattr(counters, name))
        figures.submit_full += commit.submit_full
        figures.queue_depth += commit.queue_depth
        figures.queue_depth_peak = max(figures.queue_depth_peak, commit.queue_depth_peak)
        figures.read_only += commit.log.failed is not None
        figures.tail_bytes += shard.tail_bytes
        figures.records_appended += shard.records_appended
        figures.records_evicted += shard.records_evicted
        figures.at_risk_records += commit.at_risk_records
        figures.sync_us.add(counters.sync_us)
        figures.batch_tickets.add(counters.batch_tickets)
    return figures


def measure(engine: Engine) -> tuple[TopicFigures, WalFigures]:
    return measure_topics(engine.each_topic()), measure_wal(engine.shards)
