"""What a topic must look like: the words of the spec as arithmetic over one dict of records.

Shares nothing with the engine but the config: an independent second opinion, too slow and too
simple to be wrong in the same way. A model is a value: applying an operation returns another one,
so every moment of a run can be kept.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import msgspec
from msgspec import Struct

from topics.testing.workload import Append, Delete


class Entry(NamedTuple):
    """One record as a reader must see it, and what it counts towards caps."""

    data: bytes
    tag: str | None
    node: str | None
    meta: bytes | None
    ts: int
    size: int


class TopicModel(Struct, frozen=True, kw_only=True):
    """One topic at one moment."""

    config: dict[str, Any]
    head_seq: int = 0
    live: dict[int, Entry] = {}
    removed: frozenset[int] = frozenset()
    """Seqs that were deleted, not lost."""
    volatile: frozenset[int] = frozenset()
    """Seqs that were written while the topic was ephemeral."""
    holes: tuple[tuple[int, int], ...] = ()
    earliest_seq: int = 1
    evict_floor: int = 1
    last_ts: int = 0
    keys: dict[str, tuple[int, int]] = {}
    """Idempotency key → first seq and count."""
    producers: dict[str, dict[int, tuple[int, int]]] = {}
    unsure: frozenset[str] = frozenset()
    """Keys and producers that a crash may or may not have left: their records tell nothing."""

    @property
    def durability(self) -> str:
        return str(self.config.get("durability", "disk"))

    @property
    def live_bytes(self) -> int:
        return sum(entry.size for entry in self.live.values())

    def repeats(self, append: Append) -> tuple[int, int] | None:
        """Return the seqs of the first write, where this one is a repeat."""
        if append.producer is not None:
            history = self.producers.get(append.producer[0], {})
            if history and append.producer[1] <= max(history):
                return history.get(append.producer[1], (0, 0))
        return self.keys.get(append.key) if append.key is not None else None

    def append(self, append: Append, now_ms: int) -> Self:
        if self.repeats(append) is not None:
            return self
        first_seq, ts = self.head_seq + 1, max(now_ms, self.last_ts)
        entries = {first_seq + i: encode_entry(r, ts) for i, r in enumerate(append.records())}
        keys, producers = dict(self.keys), self.producers
        durable = self.durability != "ephemeral"  # others forget their repeats with a restart
        if append.key is not None and durable:
            keys[append.key] = (first_seq, append.count)
        if append.producer is not None and durable:
            name, producer_seq = append.producer
            history = {**producers.get(name, {}), producer_seq: (first_seq, append.count)}
            producers = {**producers, name: history}
        grown = self.but(
            head_seq=self.head_seq + append.count,
            live={**self.live, **entries},
            volatile=self.volatile if durable else self.volatile | entries.keys(),
            last_ts=ts,
            keys=keys,
            producers=producers,
        )
        return grown.settled().capped()

    def delete(self, delete: Delete, now_ms: int) -> Self:
        expired = self.expired(now_ms)
        before_seq = delete.before_seq or expired.head_seq + 1
        gone = [
            seq
            for seq, entry in expired.live.items()
            if seq < before_seq and _matches(delete.tag, entry.tag)
        ]
        return expired.without(gone).but(removed=expired.removed | set(gone)).settled()

    def configured(self, changes: Mapping[str, Any], now_ms: int) -> Self:
        """Change the config; what it loses that way is lost as by any cap."""
        expired = self.expired(now_ms)
        return expired.but(config={**self.config, **changes}).expired(now_ms).capped()

    def expired(self, now_ms: int) -> Self:
        ttl_ms = self.config.get("ttl_ms", 0)
        gone = [s for s, entry in self.live.items() if ttl_ms and now_ms - entry.ts > ttl_ms]
        return self.evicted(gone)

    def crashed(self, head_seq: int) -> Self:
        """Return the topic with an announced gap up to a new head."""
        if head_seq == self.head_seq:
            return self
        hole = (self.head_seq + 1, head_seq)
        return self.but(head_seq=head_seq, holes=(*self.holes, hole)).settled()

    @property
    def forgets(self) -> bool:
        """Whether a restart, even a clean one, loses records of it."""
        told = self.live.keys() | self.removed  # a delete by tag does not tell the log whose it was
        return self.durability == "ephemeral" or not self.volatile.isdisjoint(told)

    def agreed(self, others: Iterable[Self]) -> Self:
        """Return this version, unsure of the repeats in which equal looking versions differ."""
        unsure = set()
        for other in others:
            for mine, theirs in ((self.keys, other.keys), (self.producers, other.producers)):
                differing = {k for k in mine.keys() | theirs if mine.get(k) != theirs.get(k)}
                unsure |= differing
        return self.but(unsure=frozenset(unsure)) if unsure else self

    def forgotten(
        self, head_seq: int, floors: tuple[int, int], holes: tuple[tuple[int, int], ...]
    ) -> Self:
        """Return the topic after a restart that lost what was volatile, as it was found."""
        kept = {seq: entry for seq, entry in self.live.items() if seq not in self.volatile}
        earliest_seq, evict_floor = floors
        return self.but(
            live=kept,
            holes=holes,
            head_seq=head_seq,
            earliest_seq=earliest_seq,
            evict_floor=evict_floor,
        )

    # Steps of the above.

    def capped(self) -> Self:
        over = len(self.live) - self.config.get("cap_records", 0)
        over_bytes = self.live_bytes - self.config.get("cap_bytes", 0)
        over = over if self.config.get("cap_records") else 0
        over_bytes = over_bytes if self.config.get("cap_bytes") else 0
        gone = []
        for seq, entry in self.live.items():
            if over <= 0 and over_bytes <= 0:
                break
            gone.append(seq)
            over -= 1
            over_bytes -= entry.size
        return self.evicted(gone)

    def evicted(self, gone: Iterable[int]) -> Self:
        gone = list(gone)
        if not gone:
            return self
        return self.without(gone).but(evict_floor=max(gone) + 1).settled()

    def settled(self) -> Self:
        first = min(self.live, default=self.head_seq + 1)
        return self.but(earliest_seq=max(self.earliest_seq, first))

    def without(self, gone: Iterable[int]) -> Self:
        dead = set(gone)
        return self.but(live={s: e for s, e in self.live.items() if s not in dead})

    def but(self, **changes: object) -> Self:
        return msgspec.structs.replace(self, **changes)


def encode_entry(record: Mapping[str, Any], ts: int) -> Entry:
    data = msgspec.json.encode(record["data"])
    tag, node = record.get("tag"), record.get("node")
    meta = msgspec.json.encode(record["meta"]) if "meta" in record else None
    size = len(data) + len(tag or "") + len(node or "") + (4 + len(meta) if meta else 0)
    return Entry(data, tag, node, meta, ts, size)


def _matches(wanted: str | None, tag: str | None) -> bool:
    if wanted is None:
        return True
    if tag is None:
        return False
    return tag.startswith(wanted[:-1]) if wanted.endswith("*") else tag == wanted
