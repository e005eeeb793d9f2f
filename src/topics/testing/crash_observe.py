"""Read a whole topic as a lagging reader would, and note for every seq what became of it."""

from typing import NamedTuple

from topics.embedded import Log
from topics.testing.crash_model import Entry

PAGE_RECORDS = 3


class Violation(AssertionError):
    """A promise was broken."""


class Observed(NamedTuple):
    """Everything a reader can learn of one topic."""

    epoch: int
    head_seq: int
    earliest_seq: int
    evict_floor: int
    live_records: int
    live_bytes: int
    config: dict[str, object]
    records: dict[int, Entry]
    gaps: tuple[tuple[int, int, str], ...]
    """What tombstones announced: first seq, last seq, reason."""

    def announces(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last, _ in self.gaps)


def observe(log: Log, topic: str) -> Observed:
    """Read from the start; check that the pages are dense, rising and disjoint on the way."""
    records: dict[int, Entry] = {}
    gaps: list[tuple[int, int, str]] = []
    cursor, last_ts = 0, 0
    while True:
        page = log.diff(topic, from_seq=cursor, limit=PAGE_RECORDS)
        behind = cursor
        if page.tombstone is not None:
            gap = page.tombstone
            _require(gap.gap_from > cursor, f"{topic}: tombstone {gap} begins before {cursor}")
            gaps.append((gap.gap_from, gap.gap_to, gap.reason))
            behind = gap.gap_to
        for record in page.records:
            _require(record.seq > behind, f"{topic}: seq {record.seq} after {behind}")
            _require(record.ts >= last_ts, f"{topic}: $ts steps back at seq {record.seq}")
            behind, last_ts = record.seq, record.ts
            meta = None if record.meta is None else bytes(record.meta_json)
            data = bytes(record.data_json)
            size = len(data) + len(record.tag or "") + len(record.node or "")
            size += 4 + len(meta) if meta else 0
            records[record.seq] = Entry(data, record.tag, record.node, meta, record.ts, size)
        _require(
            page.next_from_seq >= behind, f"{topic}: cursor {page.next_from_seq} behind {behind}"
        )
        if page.caught_up:
            break
        _require(page.next_from_seq > cursor, f"{topic}: no progress at {cursor}")
        cursor = page.next_from_seq
    state = log.state(topic)
    return Observed(
        epoch=state.epoch,
        head_seq=state.head_seq,
        earliest_seq=state.earliest_seq,
        evict_floor=state.evict_floor,
        live_records=state.count,
        live_bytes=state.bytes,
        config=state.config.as_dict(),
        records=records,
        gaps=tuple(gaps),
    )


def observe_all(log: Log) -> dict[str, Observed]:
    return {name: observe(log, name) for name in log.topics()}


def _require(holds: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise Violation(message)
