"""The pure rules of the engine, each against the plainest way to say it."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.config import ServerConfig
from topics.engine.diff import kernel_match
from topics.engine.maintenance import plan_relocation
from topics.engine.request import build_diff_request, check_options, encode_write, read_write
from topics.engine.topics.floors import Floors, Hole, with_hole
from topics.engine.topics.idempotency import PRODUCER_HISTORY, Idempotency
from topics.engine.topics.retention import fits, plan_cap, ttl_cutoff
from topics.engine.topics.topic import Topic
from topics.errors import RequestError
from topics.limits import DEFAULT_BATCH_BYTES, DEFAULT_LIMIT, MAX_BATCH_BYTES, Limits
from topics.model.append import WriteOptions
from topics.model.topic_config import TopicConfig
from topics.storage.snapshots.snapshot import DedupeEntry
from topics.storage.wal.frame import Dedupe
from topics.storage.wal.group_commit import PRESSURE_WIDENS_ABOVE, plan_commit_window_us

SEQS = st.integers(1, 50)
REASONS = st.sampled_from(("cap", "ttl"))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("evict"), SEQS, st.integers(0, 5), REASONS),
        st.tuples(st.just("delete"), SEQS, st.just(0), st.just("")),
    ),
    max_size=12,
)


# Floors.


@given(moves=MOVES)
def test_floors_never_go_back_and_a_delete_never_moves_the_evict_floor(
    moves: list[tuple[str, int, int, str]],
) -> None:
    floors = Floors()
    told: set[str] = set()
    for kind, seq, more, reason in moves:
        before = floors
        if kind == "evict":
            if seq > floors.evict_floor:
                told.add(reason)
            floors = floors.evicted(evict_floor=seq, earliest_seq=seq + more, reason=reason)
            assert floors.evict_floor == max(before.evict_floor, seq)
        else:
            floors = floors.advanced(seq)
            assert floors.evict_floor == before.evict_floor
            assert floors.reason == before.reason
        assert floors.earliest_seq >= before.earliest_seq
        assert floors.evict_floor <= floors.earliest_seq
        if told:
            assert floors.reason == ("mixed" if len(told) == 2 else next(iter(told)))


@given(moves=MOVES)
def test_telling_floors_twice_changes_nothing(moves: list[tuple[str, int, int, str]]) -> None:
    floors = Floors()
    for kind, seq, more, reason in moves:
        if kind == "evict":
            floors = floors.evicted(evict_floor=seq, earliest_seq=seq + more, reason=reason)
    again = floors.evicted(
        evict_floor=floors.evict_floor, earliest_seq=floors.earliest_seq, reason=floors.reason
    )
    assert again == floors


# Holes.


@given(
    ranges=st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 8), st.sampled_from(("crash", "deleted"))),
        max_size=10,
    )
)
def test_holes_cover_what_was_added_and_nothing_else(ranges: list[tuple[int, int, str]]) -> None:
    holes: tuple[Hole, ...] = ()
    told: dict[str, set[int]] = {"crash": set(), "deleted": set()}
    for first, more, reason in ranges:
        hole = Hole(first, first + more, reason)
        holes = with_hole(holes, hole)
        assert with_hole(holes, hole) == holes, "telling it again changes nothing"
        told[reason].update(range(first, first + more + 1))
    for reason, seqs in told.items():
        ours = [hole for hole in holes if hole.reason == reason]
        assert seqs == {s for hole in ours for s in range(hole.first_seq, hole.last_seq + 1)}
        for one, following in pairwise(ours):
            assert one.last_seq + 1 < following.first_seq, "neighbours are joined"
    assert holes == tuple(sorted(holes))


# Retention.


@given(
    cap_records=st.integers(0, 10),
    cap_bytes=st.integers(0, 100),
    records=st.integers(0, 30),
    size=st.integers(0, 300),
)
def test_what_is_over_a_cap_is_what_must_go(
    cap_records: int, cap_bytes: int, records: int, size: int
) -> None:
    config = TopicConfig(cap_records=cap_records, cap_bytes=cap_bytes)
    over_records, over_bytes = plan_cap(config, records=records, size=size)
    assert over_records == (max(0, records - cap_records) if cap_records else 0)
    assert over_bytes == (max(0, size - cap_bytes) if cap_bytes else 0)
    assert fits(config, records=records - over_records, size=size - over_bytes)
    assert fits(config, records=records, size=size) == ((over_records, over_bytes) == (0, 0))


@given(ttl_ms=st.integers(0, 100), now_ms=st.integers(0, 300), ts=st.integers(0, 300))
def test_a_record_is_expired_when_it_is_older_than_the_ttl(
    ttl_ms: int, now_ms: int, ts: int
) -> None:
    cutoff = ttl_cutoff(TopicConfig(ttl_ms=ttl_ms), now_ms=now_ms)
    assert (ts < cutoff) == (ttl_ms > 0 and now_ms - ts > ttl_ms)


# Keys and producers.


@given(
    writes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), min_size=1, max_size=30),
    window_ms=st.integers(0, 100),
)
def test_a_key_is_known_for_its_window(writes: list[tuple[str, int]], window_ms: int) -> None:
    memory = Idempotency()
    known: dict[str, DedupeEntry] = {}
    now_ms = 0
    for seq, (key, wait_ms) in enumerate(writes, start=1):
        now_ms += wait_ms
        found = memory.find(WriteOptions(idempotency_key=key), now_ms=now_ms, window_ms=window_ms)
        expected = known.get(key)
        if expected is not None and now_ms - expected.ts > window_ms:
            expected = None
        assert found == expected
        if found is None:
            memory.remember(Dedupe(key, None, 0, seq, 1), ts=now_ms, window_ms=window_ms)
            known[key] = DedupeEntry(seq, 1, now_ms)
    memory.forget_old(now_ms=now_ms, window_ms=window_ms)
    keys, _ = memory.save()
    assert all(now_ms - entry.ts <= window_ms for entry in keys.values())


@given(producer_seqs=st.lists(st.integers(0, 300), min_size=1, max_size=150))
def test_a_producer_writes_each_seq_once_and_only_upwards(producer_seqs: list[int]) -> None:
    memory = Idempotency()
    accepted: list[tuple[int, int]] = []
    for seq, producer_seq in enumerate(producer_seqs, start=1):
        options = WriteOptions(producer_id="p", producer_seq=producer_seq)
        found = memory.find(options, now_ms=seq, window_ms=0)
        if not accepted or producer_seq > accepted[-1][0]:
            assert found is None
            memory.remember(Dedupe(None, "p", producer_seq, seq, 2), ts=seq, window_ms=0)
            accepted.append((producer_seq, seq))
            continue
        assert found is not None
        first_seq = dict(accepted[-PRODUCER_HISTORY:]).get(producer_seq, 0)
        assert (found.first_seq, found.count) == (first_seq, 2 if first_seq else 0)


@given(
    writes=st.lists(
        st.tuples(st.none() | st.sampled_from("ab"), st.none() | st.sampled_from("pq")),
        max_size=12,
    )
)
def test_what_is_remembered_survives_saving_loading_and_being_told_twice(
    writes: list[tuple[str | None, str | None]],
) -> None:
    memory = Idempotency()
    told = [
        Dedupe(key, producer, seq, seq, 1) for seq, (key, producer) in enumerate(writes, start=1)
    ]
    for dedupe in told:
        memory.remember(dedupe, ts=dedupe.first_seq, window_ms=1_000)
    loaded = Idempotency()
    loaded.load(*memory.save())
    assert loaded.save() == memory.save()
    for dedupe in told:
        loaded.remember(dedupe, ts=dedupe.first_seq, window_ms=1_000)
    assert loaded.save() == memory.save()


def test_a_failed_write_is_forgotten() -> None:
    memory = Idempotency()
    written = Dedupe("k", "p", 1, 1, 1)
    memory.remember(written, ts=0, window_ms=100)
    memory.forget(written)
    options = WriteOptions(idempotency_key="k", producer_id="p", producer_seq=1)
    assert memory.find(options, now_ms=0, window_ms=100) is None


# Plans.


@given(
    waiting=st.integers(0, 100),
    pressure=st.floats(0, 1),
    bounds=st.tuples(st.integers(0, 1_000), st.integers(0, 10_000)),
)
def test_only_writers_in_company_and_under_pressure_wait(
    waiting: int, pressure: float, bounds: tuple[int, int]
) -> None:
    low, high = min(bounds), max(bounds)
    window_us = plan_commit_window_us(waiting=waiting, pressure=pressure, min_us=low, max_us=high)
    if waiting < 2 or pressure <= PRESSURE_WIDENS_ABOVE:
        assert window_us == 0
    else:
        assert low <= window_us <= high
        wider = plan_commit_window_us(waiting=waiting, pressure=1, min_us=low, max_us=high)
        assert window_us <= wider


@given(
    sizes=st.lists(st.integers(1, 100), max_size=12),
    keep=st.integers(0, 5),
    keep_bytes=st.integers(0, 400),
    cold=st.integers(0, 3),
    absorbed=st.integers(0, 12),
    pinned=st.sets(st.integers(0, 12), max_size=3),
)
def test_relocation_moves_the_oldest_and_keeps_what_is_to_stay(
    sizes: list[int], keep: int, keep_bytes: int, cold: int, absorbed: int, pinned: set[int]
) -> None:
    segments = [
        SimpleNamespace(
            sealed=i < len(sizes) - 1,
            tier="cold" if i < cold else "hot",
            first_seq=i,
            last_seq=i,
            data_bytes=size,
        )
        for i, size in enumerate(sizes)
    ]
    config = ServerConfig(hot_retain_segments=keep, hot_retain_bytes=keep_bytes)

    def plan(pins: set[int]) -> list[Any]:
        fake = SimpleNamespace(
            segments=lambda: segments,
            absorbed_seq=absorbed,
            is_pinned=lambda segment: segment.first_seq in pins,
        )
        return cast("list[Any]", plan_relocation(cast("Topic", fake), config=config))

    moved = plan(set())
    assert plan(pinned) == [s for s in moved if s.first_seq not in pinned], "the pinned stay"
    may_move = [s for s in segments if s.sealed and s.tier == "hot" and s.last_seq <= absorbed]
    stay = may_move[len(moved) :]
    assert moved == may_move[: len(moved)], "the oldest go first"
    assert len(stay) <= keep
    if keep_bytes:
        assert sum(s.data_bytes for s in stay) <= keep_bytes
    if moved:
        back = [moved[-1], *stay]
        assert len(back) > keep or 0 < keep_bytes < sum(s.data_bytes for s in back), "no more go"


# Requests.


@given(limit=st.integers(0, 5_000), max_batch_bytes=st.integers(0, 20_000_000))
def test_a_read_is_clamped(limit: int, max_batch_bytes: int) -> None:
    request = build_diff_request(
        TopicConfig(), Limits(), limit=limit, max_batch_bytes=max_batch_bytes
    )
    assert request.limit == min(limit or DEFAULT_LIMIT, 1_000)
    assert request.max_batch_bytes == min(max_batch_bytes or DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES)


@given(nodes=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3))
def test_nodes_are_dropped_where_the_topic_does_not_filter_them(nodes: list[str]) -> None:
    on = build_diff_request(TopicConfig(dedupe_node=True), Limits(), node=nodes)
    assert on.nodes == tuple(node.encode() for node in nodes)
    assert build_diff_request(TopicConfig(dedupe_node=False), Limits(), node=nodes).nodes == ()


@given(key=st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_a_key_has_1_to_256_characters(key: str) -> None:
    options = WriteOptions(idempotency_key=key)
    if 1 <= len(key) <= 256:
        check_options(options)
    else:
        with pytest.raises(RequestError, match="1 to 256 characters"):
            check_options(options)


@given(
    producer_id=st.text(st.characters(exclude_categories=["Cs"]), max_size=140),
    producer_seq=st.integers(-(2**65), 2**65),
)
@example(producer_id="$dead_letter:1", producer_seq=1)
def test_a_producer_has_1_to_128_bytes_and_a_u64(producer_id: str, producer_seq: int) -> None:
    options = WriteOptions(producer_id=producer_id, producer_seq=producer_seq)
    has_size = 1 <= len(producer_id.encode()) <= 128
    if has_size and producer_id[0] != "$" and 0 <= producer_seq < 2**64:
        check_options(options)
    else:
        with pytest.raises(RequestError):
            check_options(options)


@given(count=st.integers(1, 8), allowed=st.integers(1, 8))
def test_a_batch_is_bounded_by_records(count: int, allowed: int) -> None:
    body = encode_write([{"data": i} for i in range(count)])
    limits = Limits(max_batch_records=allowed)
    if count <= allowed:
        assert read_write(body, limits).batch.count == count
    else:
        with pytest.raises(RequestError):
            read_write(body, limits)


def test_the_envelope_of_a_body_becomes_options() -> None:
    write = read_write(
        b'{"idempotency_key":"k","producer_id":"p","producer_seq":7,"create":false,'
        b'"config":{"ttl_ms":5},"unknown":[1],"records":[{"data":1}]}',
        Limits(),
    )
    assert write.options == WriteOptions(
        idempotency_key="k", producer_id="p", producer_seq=7, create=False
    )
    assert write.config == {"ttl_ms": 5}


@pytest.mark.parametrize(
    "field", [b'"idempotency_key":7', b'"create":1', b'"config":[]', b'"producer_seq":"1"']
)
def test_a_bad_envelope_is_refused(field: bytes) -> None:
    with pytest.raises(RequestError, match="append"):
        read_write(b'{"records":[{"data":1}],' + field + b"}", Limits())


@given(
    op=st.sampled_from(("Eq", "Glob")), literal=st.text(st.characters(exclude_categories=["Cs"]))
)
def test_a_match_reaches_the_kernel_as_bytes(op: str, literal: str) -> None:
    found = kernel_match((op, literal))
    assert found is not None
    assert found[1] == literal.encode()
