"""`GET /v0/metrics`: every number the server has about itself.

Sums are of the whole server; series that carry a name are only those the key may see, and bounded.
Reference: docs/reference/metrics.md.
"""

import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from topics.api.auth import Caller
from topics.api.exchange import Exchange
from topics.api.exposition import TEXT, Family, as_json, counter, format_text, gauge
from topics.engine.engine import Engine
from topics.engine.measure import TopicFigures, WalFigures, measure
from topics.engine.topics.topic import Topic

if TYPE_CHECKING:
    from topics.api.app import App

MAX_NAMED = 1000
"""Series of one metric that carry a name: topics, routers."""


async def show(app: "App", exchange: Exchange) -> None:
    families = [*_of_process(app), *_of_requests(app), *_of_streams(app)]
    is_json = "application/json" in exchange.head.headers.get("accept", "")

    def render() -> bytes:
        engine = [] if app.log is None else _of_engine(app.engine, exchange.caller)
        shown = [*families, *engine]
        return msgspec.json.encode(as_json(shown)) if is_json else format_text(shown)

    # Off the event loop: with many topics it takes a while, and appends go on meanwhile.
    shown = render() if app.log is None else await app.ready_log.look(render)
    if is_json:
        exchange.reply_json(msgspec.Raw(shown))
    else:
        exchange.reply(200, shown, content_type=TEXT)


def _of_process(app: "App") -> Iterator[Family]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    rss_unit = 1 if sys.platform == "darwin" else 1024
    yield gauge("topics_ready", "1 when requests are served", app.is_ready)
    yield gauge("topics_recovery_progress", "share of the log replayed", app.replay_progress)
    uptime_ms = int((app.clock.monotonic_s() - app.started_s) * 1000)
    yield gauge("topics_uptime_ms", "since the process began to listen", uptime_ms)
    crowd = app.crowd
    yield gauge("topics_connections", "open connections", len(crowd))
    yield gauge("topics_connections_max", "so many there may be", crowd.most)
    yield counter("topics_connections_refused_total", "no place was left", crowd.refused)
    yield counter(
        "topics_connections_ended_total", "at rest, ended to make place for others", crowd.ended
    )
    yield counter(
        "topics_log_lines_dropped_total",
        "lines that nobody read in time",
        app.request_log.count_dropped(),
    )
    yield gauge(
        "topics_process_max_rss_bytes", "most memory ever resident", usage.ru_maxrss * rss_unit
    )
    yield counter(
        "topics_process_cpu_seconds_total", "user and system", usage.ru_utime + usage.ru_stime
    )


def _of_requests(app: "App") -> Iterator[Family]:
    yield Family(
        "topics_request_latency_us",
        "histogram",
        "from the whole request to its answer, or to the start of its stream",
        [
            ({"route": route.label, "status": str(status)}, histogram)
            for (route, status), histogram in app.metrics.latency_us.items()
        ],
    )
    metrics = app.metrics
    yield counter("topics_records_delivered_total", "to readers", metrics.records_delivered)
    yield counter("topics_tombstones_total", "gaps told to readers", metrics.tombstones)


def _of_streams(app: "App") -> Iterator[Family]:
    metrics = app.metrics
    yield gauge("topics_sse_connections", "open event streams", metrics.sse_connections)
    yield gauge("topics_websocket_connections", "open WebSockets", metrics.websocket_connections)
    yield gauge("topics_watch_sessions", "with a stream or without", metrics.watch_sessions)
    yield gauge(
        "topics_delivery_pressure",
        "how hard live delivery works: 0 idle, 1 nothing more fits",
        0.0 if app.log is None else app.delivery.pressure,
    )


def _of_engine(engine: Engine, caller: Caller) -> list[Family]:
    topics, wal = measure(engine)
    return [
        *_of_topics(topics, wal),
        *_of_disk(engine),
        *_of_wal(wal),
        *_of_queues(engine, topics),
        gauge("topics_pins", "held by readers of files", len(engine.pins)),
        *_of_routers(engine, caller),
        *_of_groups(engine, caller),
        *_of_each_topic(engine, caller),
    ]


def _of_topics(topics: TopicFigures, wal: WalFigures) -> Iterator[Family]:
    by_class = [({"class": name}, count) for name, count in topics.by_class.items()]
    yield gauge("topics_topics", "topics", sum(topics.by_class.values()))
    yield Family("topics_topics_by_class", "gauge", "topics by durability class", by_class)
    yield gauge("topics_records_live", "records that can be read", topics.records_live)
    yield gauge("topics_bytes_live", "bytes of data and meta that can be read", topics.bytes_live)
    yield counter("topics_records_appended_total", "since the start", wal.records_appended)
    yield counter(
        "topics_records_evicted_total",
        "lost to a cap or a TTL since the start",
        topics.records_evicted + wal.records_evicted,
    )
    yield gauge(
        "topics_at_risk_records",
        "acknowledged and not yet synced: what a power cut now would take",
        wal.at_risk_records,
    )
    for name, help_text, figures in (
        ("topics_segments", "segments by tier", topics.segments),
        ("topics_segment_bytes", "bytes of segment data by tier", topics.segment_bytes),
    ):
        samples = [({"tier": tier}, figure) for tier, figure in figures.items()]
        yield Family(name, "gauge", help_text, samples)


def _of_disk(engine: Engine) -> Iterator[Family]:
    yield gauge(
        "topics_disk_full", "1 while no records are taken for want of room", engine.reserve.is_short
    )
    room = engine.disk.room()
    if room is not None:
        yield gauge("topics_disk_free_bytes", "free on the device for us", room.free_bytes)
        yield gauge("topics_disk_size_bytes", "of the device", room.total_bytes)


def _of_wal(wal: WalFigures) -> Iterator[Family]:
    yield counter("topics_wal_frames_total", "frames written", wal.frames)
    yield counter("topics_wal_batches_total", "writes to the log", wal.batches)
    yield counter("topics_wal_fsyncs_total", "syncs of the log", wal.fsyncs)
    yield counter("topics_wal_bytes_written_total", "bytes written", wal.bytes_written)
    yield counter("topics_wal_rotations_total", "new log files", wal.rotations)
    yield counter("topics_wal_submit_full_total", "writes refused by a full queue", wal.submit_full)
    yield gauge("topics_wal_queue_depth", "batches on their way to the disk", wal.queue_depth)
    yield gauge("topics_wal_queue_depth_peak", "the most there were", wal.queue_depth_peak)
    yield gauge("topics_wal_read_only", "shards that take no more writes", wal.read_only)
    yield gauge("topics_wal_tail_bytes", "log that no segment holds yet", wal.tail_bytes)
    yield Family(
        "topics_wal_fsync_latency_us", "histogram", "time of one sync", [({}, wal.sync_us)]
    )
    yield Family(
        "topics_wal_commit_batch_size",
        "histogram",
        "writers that shared one write to the log",
        [({}, wal.batch_tickets)],
    )


def _of_queues(engine: Engine, topics: TopicFigures) -> Iterator[Family]:
    yield gauge("topics_queue_topics", "topics of type queue", topics.queues)
    # As the last sweep left them: to bring each up to now takes a lock a queue.
    in_flight = sum(t.queue.in_flight for t in engine.each_topic() if t.queue is not None)
    yield gauge("topics_queue_leases_in_flight", "jobs in the hands of workers", in_flight)


def _of_routers(engine: Engine, caller: Caller) -> Iterator[Family]:
    yield gauge("topics_routers", "routers", engine.router_count)
    seen = engine.some_routers(caller.sees_router, limit=MAX_NAMED)
    lags = [({"router": state.router}, state.lag) for state in seen]
    totals = [({"router": state.router}, state.forwarded_total) for state in seen]
    yield Family("topics_router_lag", "gauge", "source records not looked at yet", lags)
    yield Family("topics_router_forwarded_total", "counter", "copies made", totals)


def _of_groups(engine: Engine, caller: Caller) -> Iterator[Family]:
    names = engine.groups.names()
    yield gauge("topics_groups", "consumer groups", len(names))
    lags: list[tuple[dict[str, str], float]] = []
    for name in filter(caller.sees, names):
        lags += [
            ({"group": name, "topic": p.topic, "partition": str(p.partition)}, p.lag)
            for p in engine.groups.progress(name)
            if caller.sees(p.topic)
        ]
        if len(lags) >= MAX_NAMED:
            break
    yield Family(
        "topics_group_lag", "gauge", "records not committed by a group yet", lags[:MAX_NAMED]
    )


def _of_each_topic(engine: Engine, caller: Caller) -> Iterator[Family]:
    seen: list[Topic] = []
    for prefix in caller.prefixes_within(""):
        seen += engine.topics_starting(prefix, MAX_NAMED + 1 - len(seen))
    shown = seen[:MAX_NAMED]
    yield gauge(
        "topics_topic_metrics_truncated",
        f"1 when only the first {MAX_NAMED} topics by name are shown",
        len(seen) > len(shown),
    )
    yield _each("head_seq", "newest seq", shown, lambda topic: topic.head_seq)
    yield _each("earliest_seq", "oldest seq", shown, lambda topic: topic.floors.earliest_seq)
    yield _each("records_live", "records", shown, lambda topic: topic.live_records)
    yield _each("bytes_live", "bytes of data and meta", shown, lambda topic: topic.live_bytes)
    queues = {topic: engine.queue_state(topic) for topic in shown if topic.queue is not None}
    yield _each("queue_ready", "jobs to claim", list(queues), lambda topic: queues[topic].ready)
    yield _each(
        "queue_in_flight", "jobs with workers", list(queues), lambda topic: queues[topic].in_flight
    )


def _each(
    name: str, help_text: str, topics: Sequence[Topic], value: Callable[[Topic], int]
) -> Family:
    samples = [({"topic": topic.name}, value(topic)) for topic in topics]
    return Family(f"topics_topic_{name}", "gauge", help_text, samples)
