"""The engine and the oracle, driven by the same words and compared after each of them."""

from typing import Any

import msgspec
from msgspec import Raw

from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import RequestError
from topics.limits import KIB
from topics.model.append import Appended
from topics.model.diff import MAX_SEQ, Page
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock
from topics.testing.oracle import (
    Gap,
    Once,
    OracleConfig,
    OraclePage,
    OracleRecord,
    OracleTopic,
    Refused,
)

TINY = ServerConfig(
    wal_shards=1,
    wal_file_bytes=4 * KIB,
    segment_max_events=4,
    segment_max_bytes=KIB,
    segment_max_age_ms=5_000,
    hot_retain_segments=1,
    compact_dead_ratio=0.3,
)
Match = tuple[str, str] | None


def wire_match(match: Match) -> object:
    """Return a parsed match as a caller writes it."""
    if match is None:
        return None
    op, literal = match
    return ["tag", op, literal + "*" if op == "Glob" else literal]


def wire_record(record: OracleRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {"data": Raw(record.data)}
    if record.tag is not None:
        fields["tag"] = record.tag
    if record.node is not None:
        fields["node"] = record.node
    if record.meta is not None:
        fields["meta"] = Raw(record.meta)
    return fields


class SideBySide:
    """One log on hostile disks, and what it must answer."""

    def __init__(self, config: ServerConfig = TINY) -> None:
        self.config = config
        self.clock = ManualClock()
        self.disk = HostileDisk()
        self.cold_disk = HostileDisk()
        self.oracles: dict[str, OracleTopic] = {}
        self.ever_volatile: set[str] = set()
        self.ever_kept: set[str] = set()
        self.former: dict[str, int] = {}
        """How far topics came that were dropped."""
        self.vague: set[str] = set()
        """Names of those that a kill may have left the log alone to tell of."""
        self.log = self._open()

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def _open(self) -> Log:
        return Log(
            self.config,
            disk=self.disk,
            cold_disk=self.cold_disk,
            clock=self.clock,
            background=False,
        )

    def _new_oracle(self, topic: str, config: OracleConfig) -> OracleTopic:
        return OracleTopic(config, former_seq=self.former.get(topic, 0))

    # Words.

    def create(self, topic: str, changes: dict[str, Any]) -> None:
        self.log.create(topic, **changes)
        if topic in self.oracles:
            self.oracles[topic].configure(changes, now_ms=self.now_ms)
        else:
            self.oracles[topic] = self._new_oracle(topic, OracleConfig().changed(changes))
        self.oracles[topic].expire(self.now_ms)  # the answer is the state, and a state expires
        self._note_class(topic)
        self.check_floors(topic)

    def without_forgotten_caps(self, topic: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Leave out the one case in which an eviction is not remembered across a kill.

        Caps count `ephemeral` records too, and may evict kept ones for them; no WAL frame tells of
        it, so a kill that takes the former brings the latter back.
        """
        oracle = self.oracles.get(topic)
        config = (oracle.config if oracle else OracleConfig()).changed(changes)
        was_kept, was_volatile = topic in self.ever_kept, topic in self.ever_volatile
        mixed = (was_kept or config.survives) and (was_volatile or not config.survives)
        return changes | {"cap_records": 0, "cap_bytes": 0} if mixed else changes

    def append(
        self,
        topic: str,
        records: list[OracleRecord],
        *,
        node: str | None = None,
        once: Once | None = None,
    ) -> None:
        once = once or Once()
        is_new = topic not in self.oracles
        oracle = self.oracles.get(topic) or self._new_oracle(topic, OracleConfig())
        appended, error = self._try_append(topic, records, node, once)
        stamped = [_with_node(record, node) for record in records]
        try:
            expected = oracle.append(
                stamped,
                now_ms=self.now_ms,
                once=once,
                seen_deduped=appended.deduped if appended else None,
            )
        except Refused as refused:
            self._check_refused(error, refused.code)
            return
        assert appended is not None, f"refused: {error!r}"
        self.oracles[topic] = oracle
        assert (appended.first_seq, appended.count) == (expected.first_seq, expected.count)
        assert appended.last_seq == expected.last_seq
        assert appended.deduped == expected.deduped
        assert appended.created == is_new
        assert appended.head_seq == oracle.head_seq
        self._note_class(topic)
        self.check_floors(topic)

    def delete(self, topic: str, *, before_seq: int | None = None, match: Match = None) -> None:
        deleted = self.log.delete(topic, before_seq=before_seq, match=wire_match(match))
        oracle = self.oracles[topic]
        count = oracle.delete(before_seq=before_seq, match=match, now_ms=self.now_ms)
        assert deleted.deleted == count
        assert deleted.earliest_seq == oracle.earliest_seq
        assert deleted.head_seq == oracle.head_seq
        assert (deleted.count, deleted.bytes) == (oracle.count, oracle.size)

    def drop(self, topic: str) -> None:
        assert self.log.drop(topic) == (topic in self.oracles)
        oracle = self.oracles.pop(topic, None)
        if oracle is not None:
            self.former[topic] = max(oracle.head_seq, oracle.former_seq)
        self.ever_volatile.discard(topic)
        self.ever_kept.discard(topic)

    def sweep(self) -> None:
        self.log.engine.sweep()
        for oracle in self.oracles.values():
            oracle.sweep(self.now_ms)

    # Reading.

    def read(
        self,
        topic: str,
        from_seq: int,
        *,
        limit: int = 256,
        nodes: tuple[str, ...] = (),
        match: Match = None,
    ) -> Page:
        page = self.log.diff(
            topic, from_seq=from_seq, limit=limit, node=nodes, match=wire_match(match)
        )
        lost = page.tombstone
        if lost is not None and lost.reason == "recreated" and topic in self.vague:
            self.oracles[topic].former_seq = MAX_SEQ
        expected = self.oracles[topic].read(
            from_seq, limit=limit, now_ms=self.now_ms, nodes=nodes, match=match
        )
        self._compare(topic, page, expected)
        return page

    def read_bytes(self, topic: str, from_seq: int, *, max_batch_bytes: int) -> Page:
        """Read with a byte budget: any page is right that ends at the budget, or at the end."""
        page = self.log.diff(topic, from_seq=from_seq, max_batch_bytes=max_batch_bytes)
        oracle = self.oracles[topic]
        whole = oracle.read(from_seq, limit=256, now_ms=self.now_ms)
        if page.count == len(whole.records):
            self._compare(topic, page, whole)
            return page
        assert page.count >= 1
        part = oracle.read(from_seq, limit=page.count, now_ms=self.now_ms)
        following = whole.records[page.count].seq
        assert part.next_from_seq <= page.next_from_seq < following
        self._compare(topic, page, part._replace(next_from_seq=page.next_from_seq))
        assert page.count == 1 or len(page.records_json) <= max_batch_bytes
        more = self.log.diff(topic, from_seq=page.next_from_seq, limit=1)
        assert len(page.records_json) + len(more.records_json) >= max_batch_bytes
        return page

    def read_all(self, topic: str, *, limit: int = 3) -> list[Gap]:
        """Follow the cursor from the start to the head; return what was announced on the way."""
        cursor, gaps = 0, []
        head_seq = self.log.state(topic).head_seq
        while cursor < head_seq:
            page = self.read(topic, cursor, limit=limit)
            assert page.next_from_seq > cursor, "a read that is not at the head goes on"
            gaps += [_gap(page)] if page.tombstone else []
            cursor = page.next_from_seq
        return gaps

    def _compare(self, topic: str, page: Page, expected: OraclePage) -> None:
        oracle = self.oracles[topic]
        found = [
            OracleRecord(
                data=bytes(r.data_json),
                tag=r.tag,
                node=r.node,
                meta=None if r.meta is None else bytes(r.meta_json),
                seq=r.seq,
                ts=r.ts,
            )
            for r in page.records
        ]
        assert found == [_as_read(record) for record in expected.records]
        assert page.count == len(found)
        tombstone = _gap(page) if page.tombstone else None
        assert tombstone == expected.tombstone
        assert page.next_from_seq == expected.next_from_seq
        assert page.head_seq == oracle.head_seq
        assert page.earliest_seq == oracle.earliest_seq
        assert page.caught_up == (expected.next_from_seq == oracle.head_seq)
        assert page.lag == oracle.head_seq - expected.next_from_seq

    # Looking.

    def check_floors(self, topic: str) -> None:
        """Compare without asking for the state, which would expire what is old."""
        found, oracle = self.log.engine.topic(topic), self.oracles[topic]
        assert found.head_seq == oracle.head_seq
        assert found.floors.evict_floor == oracle.evict_floor
        assert found.floors.earliest_seq == oracle.earliest_seq
        assert (found.live_records, found.live_bytes) == (oracle.count, oracle.size)
        assert found.floors.evict_floor <= found.floors.earliest_seq <= found.head_seq + 1

    def check_state(self, topic: str) -> None:
        state, oracle = self.log.state(topic), self.oracles[topic]
        oracle.expire(self.now_ms)
        assert state.head_seq == oracle.head_seq
        assert state.next_seq == oracle.head_seq + 1
        assert state.earliest_seq == oracle.earliest_seq
        assert state.evict_floor == oracle.evict_floor
        assert (state.count, state.bytes) == (oracle.count, oracle.size)
        assert state.config.durability == oracle.config.durability
        if topic not in self.ever_volatile:
            assert (state.last_write_ts or 0) == oracle.last_ts

    def check_all(self) -> None:
        assert self.log.topics() == sorted(self.oracles)
        for topic in self.oracles:
            self.check_state(topic)
            self.read_all(topic)

    # Starting again.

    def restart(self, *, clean: bool, wal_shards: int | None = None) -> None:
        """Stop or kill the process, and start the next one on what it left."""
        if clean:
            self.log.close()
        else:
            self.disk, self.cold_disk = self.disk.kill(), self.cold_disk.kill()
            self.vague |= set(self.former)
        if wal_shards is not None:
            self.config = msgspec.structs.replace(self.config, wal_shards=wal_shards)
        before = {name: oracle.head_seq for name, oracle in self.oracles.items()}
        gone = {name: oracle.restart(clean=clean) for name, oracle in self.oracles.items()}
        self.log = self._open()
        for name, oracle in self.oracles.items():
            if name in self.ever_volatile:
                self._take_over_loss(name, gone[name], before[name], clean=clean)
            oracle.sweep(self.now_ms)
            if not clean:
                self._take_over_reason(name)
        self.check_all()

    def _take_over_loss(self, topic: str, gone: list[int], head_seq: int, *, clean: bool) -> None:
        """Learn which seqs were announced as lost, after checking that these are the right ones.

        What an `ephemeral` topic was, only memory knew: after a kill its gap may be wider than
        what was live, never narrower.
        """
        oracle, state = self.oracles[topic], self.log.state(topic)
        may_widen = not clean
        assert state.head_seq >= head_seq
        if clean or oracle.config.survives:
            assert state.head_seq == head_seq
        if may_widen:
            oracle.evict_floor = state.evict_floor
            oracle.last_ts = self.log.engine.topic(topic).last_ts
        gaps = self._crash_gaps(topic, state.evict_floor - 1)
        announced = {seq for first, last in gaps for seq in range(first, last + 1)}
        known = {seq for first, last in oracle.lost for seq in range(first, last + 1)}
        told = range(1, state.evict_floor)
        assert not [seq for seq in gone if seq not in announced and seq not in told]
        assert not announced & set(oracle.live)
        if not may_widen:
            extra = [g for g in gaps if not known.intersection(range(g[0], g[1] + 1))]
            assert all(any(g[0] <= seq <= g[1] for seq in gone) for g in extra), (extra, gone)
        oracle.lose(gaps, head_seq=state.head_seq)

    def _crash_gaps(self, topic: str, from_seq: int) -> list[tuple[int, int]]:
        gaps, cursor = [], from_seq
        while True:
            page = self.log.diff(topic, from_seq=cursor)
            if page.tombstone is not None and page.tombstone.reason == "crash":
                gaps.append((page.tombstone.gap_from, page.tombstone.gap_to))
            if page.caught_up:
                return gaps
            cursor = page.next_from_seq

    def _take_over_reason(self, topic: str) -> None:
        """Learn whether cap or TTL took it: after a kill both may claim what is over both."""
        oracle = self.oracles[topic]
        oracle.reason = ""
        if oracle.evict_floor > 1:
            tombstone = self.log.diff(topic, from_seq=0).tombstone
            assert tombstone is not None
            assert tombstone.reason in ("cap", "ttl", "mixed")
            oracle.reason = tombstone.reason

    def _note_class(self, topic: str) -> None:
        kept = self.oracles[topic].config.survives
        (self.ever_kept if kept else self.ever_volatile).add(topic)

    def _check_refused(self, error: RequestError | None, code: str) -> None:
        assert error is not None, f"must be refused as {code}"
        assert error.code == code

    def _try_append(
        self, topic: str, records: list[OracleRecord], node: str | None, once: Once
    ) -> tuple[Appended | None, RequestError | None]:
        producer_id, producer_seq = once.producer or (None, None)
        try:
            return self.log.append(
                topic,
                [wire_record(record) for record in records],
                node=node,
                idempotency_key=once.key,
                producer_id=producer_id,
                producer_seq=producer_seq,
            ), None
        except RequestError as error:
            return None, error


def _with_node(record: OracleRecord, node: str | None) -> OracleRecord:
    if record.node is not None or node is None:
        return record
    return OracleRecord(record.data, record.tag, node, record.meta)


def _as_read(record: OracleRecord) -> OracleRecord:
    return OracleRecord(
        record.data, record.tag, record.node, record.meta, seq=record.seq, ts=record.ts
    )


def _gap(page: Page) -> Gap:
    assert page.tombstone is not None
    return Gap(page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason)
