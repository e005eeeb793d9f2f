"""What one topic must answer, told by the plainest code that can tell it.

Independent on purpose: lists and dicts, one seq at a time, nothing of `topics.engine` and nothing
of files. It knows records, floors, gaps and repeats, and of a restart only which records cannot
survive it. Byte sizes follow the format pages. The words are those of the semantics: evicting and
expiring is announced, deleting is silent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

PRODUCER_WRITES_KNOWN = 64
_META_LENGTH_BYTES = 4


class Refused(Exception):
    """A write that must fail with this error code, and change nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class OracleConfig:
    """The part of a topic's config that changes what the log means."""

    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    durability: str = "disk"
    idempotency_window_ms: int = 120_000
    producer_expiry_ms: int = 604_800_000
    dedupe_node: bool = True

    @property
    def survives(self) -> bool:
        """Whether a record written now is there after the process."""
        return self.durability != "ephemeral"

    def changed(self, changes: Mapping[str, Any]) -> "OracleConfig":
        return replace(self, **changes)

    def overflows(self, records: int, size: int) -> bool:
        too_many = 0 < self.cap_records < records
        return too_many or 0 < self.cap_bytes < size


@dataclass(frozen=True)
class OracleRecord:
    """One record as its writer gave it; `data` and `meta` are raw JSON."""

    data: bytes
    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None
    seq: int = 0
    ts: int = 0
    survives: bool = True

    @property
    def size(self) -> int:
        """What the record counts towards `bytes` and `cap_bytes`."""
        meta = 0 if self.meta is None else _META_LENGTH_BYTES + len(self.meta)
        named = len((self.tag or "").encode()) + len((self.node or "").encode())
        return named + len(self.data) + meta

    def matches(self, match: tuple[str, str] | None) -> bool:
        if match is None:
            return True
        op, literal = match
        if self.tag is None:
            return False
        return self.tag == literal if op == "Eq" else self.tag.startswith(literal)


class Gap(NamedTuple):
    """Seqs that a reader is told of and never gets."""

    gap_from: int
    gap_to: int
    reason: str


class OraclePage(NamedTuple):
    """What one read must give."""

    records: list[OracleRecord]
    tombstone: Gap | None
    next_from_seq: int


@dataclass(frozen=True)
class OracleAppend:
    """What one write must answer."""

    first_seq: int
    count: int
    deduped: bool = False

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1 if self.count else 0


@dataclass(frozen=True)
class Repeatable:
    """A finished write that must not happen twice."""

    first_seq: int
    count: int
    ts: int
    sure: bool = True
    """False: a crash may have taken the memory of it, which only an `ephemeral` topic may do."""
    survives: bool = True


@dataclass(frozen=True)
class Once:
    """The names under which a write must not happen twice."""

    key: str | None = None
    producer: tuple[str, int] | None = None


NOT_REPEATABLE = Once()
UNKNOWN_WRITE = Repeatable(0, 0, 0)


@dataclass
class OracleTopic:
    """One life of one topic."""

    config: OracleConfig
    head_seq: int = 0
    former_seq: int = 0
    """The highest seq that an earlier life of its name may have handed out."""
    evict_floor: int = 1
    reason: str = ""
    last_ts: int = 0
    live: dict[int, OracleRecord] = field(default_factory=dict)
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that a crash took, disjoint and ascending."""
    keys: dict[str, Repeatable] = field(default_factory=dict)
    producers: dict[str, dict[int, Repeatable]] = field(default_factory=dict)

    # What it is.

    @property
    def earliest_seq(self) -> int:
        return min(self.live, default=self.head_seq + 1)

    @property
    def count(self) -> int:
        return len(self.live)

    @property
    def size(self) -> int:
        return sum(record.size for record in self.live.values())

    # What a caller does.

    def append(
        self,
        records: Sequence[OracleRecord],
        *,
        now_ms: int,
        once: Once = NOT_REPEATABLE,
        seen_deduped: bool | None = None,
    ) -> OracleAppend:
        """Write a batch; `seen_deduped` settles what a crash left open."""
        repeat = self._find_repeat(once, now_ms=now_ms)
        if repeat is not None and (repeat.sure or seen_deduped):
            return OracleAppend(repeat.first_seq, repeat.count, deduped=True)
        self._admit(records, now_ms=now_ms)
        self.last_ts = max(self.last_ts, now_ms)
        first_seq = self.head_seq + 1
        for record in records:
            self.head_seq += 1
            self.live[self.head_seq] = replace(
                record, seq=self.head_seq, ts=self.last_ts, survives=self.config.survives
            )
        self._remember(once, first_seq=first_seq, count=len(records))
        self.enforce_caps()
        return OracleAppend(first_seq, len(records))

    def delete(self, *, before_seq: int | None, match: tuple[str, str] | None, now_ms: int) -> int:
        """Delete what there is; return how many records went."""
        self.expire(now_ms)
        gone = [
            record.seq
            for record in self.live.values()
            if record.matches(match) and (before_seq is None or record.seq < before_seq)
        ]
        for seq in gone:
            del self.live[seq]
        return len(gone)

    def configure(self, changes: Mapping[str, Any], *, now_ms: int) -> None:
        changed = self.config.changed(changes)
        if changed == self.config:
            return
        self.config = changed
        self.expire(now_ms)
        self.enforce_caps()

    def read(
        self,
        from_seq: int,
        *,
        limit: int,
        now_ms: int,
        nodes: Sequence[str] = (),
        match: tuple[str, str] | None = None,
    ) -> OraclePage:
        self.expire(now_ms)
        tombstone, cursor = self._first_cursor(from_seq)
        hidden = set(nodes) if self.config.dedupe_node else set()
        found: list[OracleRecord] = []
        while cursor < self.head_seq and len(found) < limit:
            gap = next((g for g in self.lost if g[0] <= cursor + 1 <= g[1]), None)
            if gap is not None:
                if tombstone is not None or found:
                    break
                tombstone = Gap(cursor + 1, gap[1], "crash")
                cursor = gap[1]
                continue
            cursor += 1
            record = self.live.get(cursor)
            if record is not None and record.node not in hidden and record.matches(match):
                found.append(record)
        return OraclePage(found, tombstone, cursor)

    # What time does.

    def sweep(self, now_ms: int) -> None:
        self.expire(now_ms)
        self.enforce_caps()
        window_ms = self.config.idempotency_window_ms
        self.keys = {k: w for k, w in self.keys.items() if now_ms - w.ts <= window_ms}

    def expire(self, now_ms: int) -> None:
        if self.config.ttl_ms:
            old = [r.seq for r in self.live.values() if now_ms - r.ts > self.config.ttl_ms]
            self._evict(old, "ttl")

    def enforce_caps(self) -> None:
        over: list[int] = []
        records, size = self.count, self.size
        for seq in sorted(self.live):
            if not self.config.overflows(records, size):
                break
            over.append(seq)
            records, size = records - 1, size - self.live[seq].size
        self._evict(over, "cap")

    # What a restart does.

    def restart(self, *, clean: bool) -> list[int]:
        """Lose what cannot survive; return the live seqs that are gone and must be announced."""
        gone = [seq for seq, record in self.live.items() if not record.survives]
        for seq in gone:
            del self.live[seq]
        if not clean:
            self.keys = {k: _after_crash(w) for k, w in self.keys.items()}
            self.producers = {
                p: {s: _after_crash(w) for s, w in known.items()}
                for p, known in self.producers.items()
            }
        return gone

    def lose(self, ranges: Iterable[tuple[int, int]], *, head_seq: int) -> None:
        """Take over which seqs a crash took, and the head that keeps them from being used again."""
        self.lost = sorted({*ranges})
        self.head_seq = head_seq

    # Inside.

    def _first_cursor(self, from_seq: int) -> tuple[Gap | None, int]:
        if from_seq > self.head_seq:
            if from_seq <= self.former_seq:
                return Gap(1, self.head_seq, "recreated"), self.earliest_seq - 1
            return Gap(self.head_seq + 1, from_seq, "beyond_head"), self.head_seq
        if from_seq + 1 < self.evict_floor:
            return Gap(from_seq + 1, self.earliest_seq - 1, self.reason), self.earliest_seq - 1
        return None, from_seq

    def _evict(self, seqs: Sequence[int], reason: str) -> None:
        if not seqs:
            return
        for seq in seqs:
            del self.live[seq]
        self.evict_floor = max(seqs) + 1
        self.reason = reason if self.reason in ("", reason) else "mixed"

    def _admit(self, records: Sequence[OracleRecord], *, now_ms: int) -> None:
        if self.config.discard != "reject":
            return
        count, size = len(records), sum(record.size for record in records)
        if self.config.overflows(count, size):
            raise Refused("record_too_large")
        self.expire(now_ms)
        if self.config.overflows(self.count + count, self.size + size):
            raise Refused("topic_full")

    def _find_repeat(self, once: Once, *, now_ms: int) -> Repeatable | None:
        if once.producer is not None:
            found = self._find_producer(*once.producer, now_ms=now_ms)
            if found is not None:
                return found
        written = self.keys.get(once.key) if once.key is not None else None
        if written is not None and now_ms - written.ts <= self.config.idempotency_window_ms:
            return written
        return None

    def _find_producer(
        self, producer_id: str, producer_seq: int, *, now_ms: int
    ) -> Repeatable | None:
        known = self.producers.get(producer_id)
        if not known or producer_seq > max(known) or self._is_silent(known, now_ms):
            return None
        sure = all(written.sure for written in known.values())
        return replace(known.get(producer_seq, UNKNOWN_WRITE), sure=sure)

    def _is_silent(self, known: dict[int, Repeatable], now_ms: int) -> bool:
        expiry_ms = self.config.producer_expiry_ms
        return 0 < expiry_ms < now_ms - known[max(known)].ts

    def _remember(self, once: Once, *, first_seq: int, count: int) -> None:
        written = Repeatable(first_seq, count, self.last_ts, survives=self.config.survives)
        if once.key is not None:
            self.keys[once.key] = written
        if once.producer is not None:
            producer_id, producer_seq = once.producer
            known = self.producers.get(producer_id, {})
            if known and self._is_silent(known, self.last_ts):
                known = {}
            # A later one that did not stop this write was forgotten by a crash.
            known = {s: w for s, w in known.items() if s < producer_seq}
            known[producer_seq] = written
            newest = sorted(known)[-PRODUCER_WRITES_KNOWN:]
            self.producers[producer_id] = {s: known[s] for s in newest}


def _after_crash(written: Repeatable) -> Repeatable:
    return written if written.survives else replace(written, sure=False)
