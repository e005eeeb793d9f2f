"""What the pages show, as plain values: one function a page.

Every function takes `sees`, which says whether the key may see a name. Sums are of the whole
server, as in its metrics; what carries a name is only what may be seen, and bounded.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import nsmallest

from msgspec import Struct, structs

from topics.console.graph import plan_layers
from topics.console.ring import add_series, quantile
from topics.console.sampler import Counts, Sampler
from topics.engine.engine import Engine
from topics.engine.measure import measure
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import FileMissing
from topics.kernel import FRAME_OVERHEAD_BYTES
from topics.model.routers import RouterState
from topics.storage.disk import paths
from topics.storage.wal.log import list_wal_files

MAX_ROWS = 200
"""Rows of one table; a filter finds the others."""
SPARK_POINTS = 60

Sees = Callable[[str], bool]
View = dict[str, object]


def view_overview(engine: Engine, sampler: Sampler, *, sees: Sees, wanted: str) -> View:
    """Show topics by name; partitions are one with their topic, until somebody looks for them."""
    topics, wal = measure(engine)
    both: list[Topic | Partitioned] = [*engine.topics(), *engine.partitioned()]
    seen = sorted((t for t in both if sees(t.name)), key=lambda topic: topic.name)
    parts = {p.id for topic in seen if isinstance(topic, Partitioned) for p in topic.partitions}
    whole = [topic for topic in seen if topic.id not in parts]
    matching = [topic for topic in (seen if wanted else whole) if _matches(topic.name, wanted)]
    return {
        "totals": {
            "topics": len(whole),
            "records": topics.records_live,
            "bytes": topics.bytes_live,
            "appended": sampler.rate("appended"),
            "delivered": sampler.rate("delivered"),
            "at_risk": wal.at_risk_records,
            "read_only": wal.read_only,
            "disk_full": engine.reserve.is_short,
        },
        "matching": len(matching),
        "topics": [_row(topic, sampler) for topic in matching[:MAX_ROWS]],
    }


def _matches(name: str, wanted: str) -> bool:
    return wanted.lower() in name.lower()


def _row(topic: Topic | Partitioned, sampler: Sampler) -> View:
    """Show a topic; one with partitions as their sum."""
    parts = topic.partitions if isinstance(topic, Partitioned) else (topic,)
    rates = add_series([sampler.topic(part.name, SPARK_POINTS) for part in parts])
    return {
        "topic": topic.name,
        "type": topic.config.type,
        "partitions": len(parts) if isinstance(topic, Partitioned) else None,
        "durability": topic.config.durability,
        "head_seq": sum(part.head_seq for part in parts),
        "count": sum(part.live_records for part in parts),
        "bytes": sum(part.live_bytes for part in parts),
        "last_write_ts": max((part.last_ts for part in parts), default=0) or None,
        "rate": rates[-1] if rates else 0.0,
        "rates": rates,
    }


def view_queues(engine: Engine, *, sees: Sees, wanted: str) -> View:
    queues = [
        topic
        for topic in engine.topics()
        if topic.queue is not None and sees(topic.name) and _matches(topic.name, wanted)
    ]
    return {
        "matching": len(queues),
        "queues": [_queue(engine, topic, sees) for topic in queues[:MAX_ROWS]],
    }


def _queue(engine: Engine, topic: Topic, sees: Sees) -> View:
    state = engine.queue_state(topic)
    name = topic.config.dead_letter
    letters = _letters(engine, name) if name is not None and sees(name) else ()
    return {
        "topic": topic.name,
        "ready": state.ready,
        "in_flight": state.in_flight,
        "waiting": max(0, topic.live_records - state.ready - state.in_flight),
        "dead_lettered": state.dead_lettered,
        "max_deliveries": topic.config.max_deliveries,
        "lease_ms": topic.config.lease_ms,
        "dead_letter": None if name is None or not sees(name) else name,
        "dead": sum(part.live_records for part in letters),
        "redrivable": bool(letters) and all(part.queue is None for part in letters),
    }


def _letters(engine: Engine, name: str) -> Sequence[Topic]:
    """Return the topics that hold the dead letters of a queue; none before the first."""
    parent = engine.find_partitioned(name)
    if parent is not None:
        return parent.partitions
    topic = engine.find_topic(name)
    return () if topic is None else (topic,)


def view_groups(engine: Engine, sampler: Sampler, *, sees: Sees, wanted: str) -> View:
    """Show the groups whose topics may all be seen, with how far each is behind."""
    found = []
    for name in engine.groups.names():
        listed = engine.groups.listed(name) if sees(name) and _matches(name, wanted) else None
        if listed is not None and all(map(sees, listed.topics)):
            found.append(listed)
    return {
        "matching": len(found),
        "groups": [
            {
                **structs.asdict(listed),
                "lag": sum(one.lag for one in engine.groups.progress(listed.group)),
                "lags": sampler.group(listed.group, SPARK_POINTS),
            }
            for listed in found[:MAX_ROWS]
        ],
    }


def view_routers(engine: Engine, *, sees: Sees) -> View:
    routers = [state for state in engine.routers() if _sees_router(state, sees)]
    shown = routers[:MAX_ROWS]
    edges = [(state.definition.source, state.definition.dest) for state in shown]
    return {
        "matching": len(routers),
        "nodes": plan_layers(edges),
        "routers": [
            {
                "router": state.router,
                "source": state.definition.source,
                "dest": state.definition.dest,
                "filter": state.definition.filter,
                "guarantee": state.definition.guarantee,
                "forwarded_total": state.forwarded_total,
                "lag": state.lag,
            }
            for state in shown
        ],
    }


def _sees_router(state: RouterState, sees: Sees) -> bool:
    definition = state.definition
    return sees(state.router) and sees(definition.source) and sees(definition.dest)


def view_storage(engine: Engine, *, sees: Sees, wanted: str) -> View:
    topics, wal = measure(engine)
    names = [
        topic for topic in engine.topics() if sees(topic.name) and _matches(topic.name, wanted)
    ]
    # A sort of all of them would keep the interpreter to itself.
    rows = nsmallest(MAX_ROWS, map(_stored, names), key=lambda row: row.order)
    room = engine.disk.room()
    return {
        "totals": {
            "wal_bytes": _wal_bytes(engine),
            "wal_tail_bytes": wal.tail_bytes,
            "hot_bytes": topics.segment_bytes["hot"],
            "cold_bytes": topics.segment_bytes["cold"],
            "hot_segments": topics.segments["hot"],
            "cold_segments": topics.segments["cold"],
            "dead_bytes": sum(_dead_bytes(topic) for topic in engine.each_topic()),
            "live_bytes": topics.bytes_live,
            "at_risk_records": wal.at_risk_records,
            "read_only": wal.read_only,
            "disk_full": engine.reserve.is_short,
            "disk_free_bytes": None if room is None else room.free_bytes,
        },
        "matching": len(names),
        "topics": rows,
    }


class Stored(Struct, frozen=True, kw_only=True):
    """The bytes of one topic by where they are."""

    topic: str
    tail: int
    hot: int
    cold: int
    dead: int
    segments: int

    @property
    def order(self) -> tuple[int, str]:
        return -self.tail - self.hot - self.cold, self.topic


def _stored(topic: Topic) -> Stored:
    sizes = {"hot": 0, "cold": 0}
    segments = topic.segments()
    for segment in segments:
        sizes[segment.tier] += segment.data_bytes
    return Stored(
        topic=topic.name,
        tail=sum(chunk.size for chunk in topic.chunks()),
        hot=sizes["hot"],
        cold=sizes["cold"],
        dead=_dead_bytes(topic),
        segments=len(segments),
    )


def _dead_bytes(topic: Topic) -> int:
    """Return what segments hold of records that nobody can read any more."""
    floor = topic.floors.earliest_seq
    dead = 0
    for segment in topic.segments():
        live = segment.live_bytes + segment.live_records * FRAME_OVERHEAD_BYTES
        dead += segment.data_bytes - (live if segment.last_seq >= floor else 0)
    return dead


def _wal_bytes(engine: Engine) -> int:
    size = 0
    for shard in engine.shards:
        for number in list_wal_files(engine.disk, shard.directory):
            with suppress(FileMissing):  # trimmed meanwhile
                size += engine.disk.size(f"{shard.directory}/{paths.wal_file_name(number)}")
    return size


def view_latency(latencies: dict[str, Counts], routes: Sequence[tuple[str, str, Counts]]) -> View:
    return {
        "histograms": latencies,
        "routes": [
            {
                "route": route,
                "status": status,
                "count": sum(counts.counts),
                "p50_us": quantile(counts.bounds, counts.counts, 0.5),
                "p99_us": quantile(counts.bounds, counts.counts, 0.99),
            }
            for route, status, counts in routes
        ],
    }
