"""The manifest of a topic: which files hold which seqs, and where others find them.

Keeps: what is named was synced by a checkpoint; named and pinned are one step under the shard's
lock, so that nothing named can go in between.
Reference: docs/reference/segments.md.
"""

from topics.engine.pins import Pins
from topics.engine.stores import Stores
from topics.engine.topics.topic import Topic
from topics.model.segments import HoleState, Manifest, PinState, SegmentLocation, SegmentState
from topics.storage.segments.segment import Segment


def read_manifest(
    topic: Topic, *, stores: Stores, pins: Pins, owner: str, pin_ms: int | None
) -> Manifest:
    """Name the segments of a topic and, with `pin_ms`, hold them; the shard's lock is held."""
    floors = topic.floors
    named = [s for s in topic.segments() if s.count and s.bound_for != "nowhere"]
    return Manifest(
        topic=topic.name,
        epoch=topic.id,
        head_seq=topic.head_seq,
        earliest_seq=floors.earliest_seq,
        evict_floor=floors.evict_floor,
        evict_reason=floors.reason,
        holes=[
            HoleState(first_seq=hole.first_seq, last_seq=hole.last_seq, reason=hole.reason)
            for hole in topic.holes
            if hole.announced
        ],
        segments=[_describe(segment, stores) for segment in named],
        pin=_pin(topic, named, pins=pins, owner=owner, pin_ms=pin_ms),
    )


def _pin(
    topic: Topic, named: list[Segment], *, pins: Pins, owner: str, pin_ms: int | None
) -> PinState | None:
    if pin_ms is None:
        return None
    first_seq = named[0].first_seq if named else 1
    last_seq = named[-1].last_seq if named else 0
    return pins.add(topic, owner=owner, first_seq=first_seq, last_seq=last_seq, pin_ms=pin_ms)


def _describe(segment: Segment, stores: Stores) -> SegmentState:
    is_cold = segment.tier == "cold" or segment.bound_for == "cold"
    store = stores.cold if is_cold and stores.cold is not None else segment.store
    data = store.location(segment.topic_id, segment.first_seq)
    idx = segment.disk.location(segment.idx_path)
    return SegmentState(
        first_seq=segment.first_seq,
        last_seq=segment.last_seq,
        records=segment.count,
        live_records=segment.live_records,
        bytes=segment.data_bytes,
        first_ts=segment.first_ts,
        last_ts=segment.last_ts,
        tier="cold" if is_cold else "hot",
        location=None if data is None or idx is None else SegmentLocation(data=data, idx=idx),
        sealed=segment.sealed,
    )
