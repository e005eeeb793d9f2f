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
from topics.errors import LimitReached, RequestError
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

EXPIRY_MS = 100


def remember(
    memory: Idempotency, written: Dedupe, *, ts: int, window_ms: int = 0, expiry_ms: int = 0
) -> None:
    memory.remember(written, ts=ts, window_ms=window_ms, expiry_ms=expiry_ms)


@given(
    writes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), min_size=1, max_size=30),
    window_ms=st.integers(0, 100),
)
def test_a_key_is_known_for_its_window(writes: list[tuple[str, int]], window_ms: int) -> None:
    memory = Idempotency()
    config = TopicConfig(idempotency_window_ms=window_ms)
    known: dict[str, DedupeEntry] = {}
    now_ms = 0
    for seq, (key, wait_ms) in enumerate(writes, start=1):
        now_ms += wait_ms
        options = WriteOptions(idempotency_key=key)
        found = memory.find(options, now_ms=now_ms, config=config)
        expected = known.get(key)
        if expected is not None and now_ms - expected.ts > window_ms:
            expected = None
        assert found == expected
        if found is None:
            remember(memory, Dedupe(key, None, 0, seq, 1), ts=now_ms, window_ms=window_ms)
            known[key] = DedupeEntry(seq, 1, now_ms)
    memory.forget_old(now_ms=now_ms, config=config)
    kept = {key for key, entry in known.items() if now_ms - entry.ts <= window_ms}
    assert memory.save()[0].keys() == kept


@given(producer_seqs=st.lists(st.integers(0, 300), min_size=1, max_size=150))
def test_a_producer_writes_each_seq_once_and_only_upwards(producer_seqs: list[int]) -> None:
    memory = Idempotency()
    accepted: list[tuple[int, int]] = []
    for seq, producer_seq in enumerate(producer_seqs, start=1):
        options = WriteOptions(producer_id="p", producer_seq=producer_seq)
        found = memory.find(options, now_ms=seq, config=TopicConfig())
        if not accepted or producer_seq > accepted[-1][0]:
            assert found is None
            remember(memory, Dedupe(None, "p", producer_seq, seq, 2), ts=seq)
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
        remember(memory, dedupe, ts=dedupe.first_seq, window_ms=1_000)
    loaded = Idempotency()
    loaded.load(*memory.save())
    assert loaded.save() == memory.save()
    for dedupe in told:
        remember(loaded, dedupe, ts=dedupe.first_seq, window_ms=1_000)
    assert loaded.save() == memory.save()


def test_a_failed_write_is_forgotten() -> None:
    memory = Idempotency()
    written = Dedupe("k", "p", 1, 1, 1)
    remember(memory, written, ts=0, window_ms=100)
    memory.forget(written)
    options = WriteOptions(idempotency_key="k", producer_id="p", producer_seq=1)
    assert memory.find(options, now_ms=0, config=TopicConfig()) is None
    assert memory.save() == ({}, {})


@given(
    told=st.lists(
        st.tuples(st.sampled_from("pq"), st.integers(0, 8), st.integers(0, 30)), max_size=40
    ),
    swept=st.sets(st.integers(0, 40)),
    cut=st.integers(0, 40),
)
def test_what_is_known_of_producers_follows_from_the_log_and_not_from_who_sweeps_or_restarts(
    told: list[tuple[str, int, int]], swept: set[int], cut: int
) -> None:
    """One is swept, one never, one is saved and told a part of the log twice."""
    config = TopicConfig(producer_expiry_ms=EXPIRY_MS)
    memory, swept_memory = Idempotency(), Idempotency()
    log: list[tuple[Dedupe, int]] = []
    now_ms = 0
    for step, (producer, producer_seq, wait_ms) in enumerate(told):
        now_ms += wait_ms
        if step in swept:
            swept_memory.forget_old(now_ms=now_ms, config=config)
        options = WriteOptions(producer_id=producer, producer_seq=producer_seq)
        found = memory.find(options, now_ms=now_ms, config=config)
        assert swept_memory.find(options, now_ms=now_ms, config=config) == found
        if found is None:
            written = Dedupe(None, producer, producer_seq, step + 1, 1)
            log.append((written, now_ms))
            for one in (memory, swept_memory):
                remember(one, written, ts=now_ms, expiry_ms=EXPIRY_MS)
    again = Idempotency()
    again.load(*memory.save())
    for written, ts in log[cut:]:
        remember(again, written, ts=ts, expiry_ms=EXPIRY_MS)
    assert again.save() == memory.save()
    replayed = Idempotency()
    for written, ts in log:
        remember(replayed, written, ts=ts, expiry_ms=EXPIRY_MS)
    assert replayed.save() == memory.save()
    memory.forget_old(now_ms=now_ms + EXPIRY_MS + 1, config=config)
    assert memory.save() == ({}, {})


def test_the_servers_own_producers_are_not_forgotten() -> None:
    memory = Idempotency()
    for name, seq in (("$dead_letter:1", 1), ("p", 2)):
        remember(memory, Dedupe(None, name, 1, seq, 1), ts=0, expiry_ms=EXPIRY_MS)
    memory.forget_old(now_ms=1_000, config=TopicConfig(producer_expiry_ms=EXPIRY_MS))
    assert list(memory.save()[1]) == ["$dead_letter:1"]
    loaded = Idempotency()
    loaded.load(*memory.save())
    assert loaded.last_of("$dead_letter:1") == (1, 1)


def test_what_the_first_version_saved_is_read() -> None:
    memory = Idempotency()
    entry = DedupeEntry(7, 2, 50)
    memory.load({"k": entry}, {"p": [(3, DedupeEntry(5, 1, 40)), (4, entry)], "q": []})
    config = TopicConfig()
    for options, found in (
        (WriteOptions(idempotency_key="k"), entry),
        (WriteOptions(producer_id="p", producer_seq=3), DedupeEntry(5, 1, 40)),
        (WriteOptions(producer_id="p", producer_seq=4), entry),
        (WriteOptions(producer_id="p", producer_seq=5), None),
        (WriteOptions(producer_id="q", producer_seq=0), None),
    ):
        assert memory.find(options, now_ms=60, config=config) == found


def test_a_producer_or_a_key_too_many_is_refused_and_none_is_forgotten_for_it() -> None:
    memory = Idempotency()
    config = TopicConfig(idempotency_window_ms=10, producer_expiry_ms=EXPIRY_MS)
    for seq in (1, 2):
        remember(memory, Dedupe(f"k{seq}", f"p{seq}", 1, seq, 1), ts=0, window_ms=10)

    def check(now_ms: int = 5, **options: Any) -> None:  # noqa: ANN401 - fields of a write
        memory.check_room(
            WriteOptions(**options), now_ms=now_ms, config=config, max_keys=2, max_producers=2
        )

    check(idempotency_key="k1", producer_id="p2", producer_seq=2)
    check(producer_id="$dead_letter:1", producer_seq=1)
    with pytest.raises(LimitReached, match="max_idempotency_keys"):
        check(idempotency_key="k3")
    with pytest.raises(LimitReached, match="max_producers"):
        check(producer_id="p3", producer_seq=1)
    assert (memory.keys_known, memory.producers_known) == (2, 2)
    check(now_ms=11, idempotency_key="k3")
    check(now_ms=EXPIRY_MS + 1, producer_id="p3", producer_seq=1)


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
        b'"config":{"ttl_ms":5},"records":[{"data":1}]}',
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
