"""Partitioned topics in process: where keys go, what repeats find, what a failure leaves."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.place import Place

import topics
from topics.aio import AsyncLog
from topics.engine.partitions import Spread
from topics.engine.topics.partitioned import parse_partition_name
from topics.errors import (
    DiskFailed,
    LimitReached,
    PartlyWritten,
    RequestError,
    StorageError,
    TopicExistsIncompatible,
    TopicNotFound,
    TopicPartitioned,
)
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan

KEYS = [f"key-{i}" for i in range(40)]
VECTORS = [
    *KEYS[:12], "user1", "user2", "", "a", "Z", " ", "0", "é", "ß", "漢字", "🙂", "\x00", "a\nb",
    "x" * 256,
]  # fmt: skip


def fnv1a(key: str) -> int:
    """FNV-1a, 32 bits, from its definition."""
    digest = 2166136261
    for octet in key.encode("utf-8"):
        digest = ((digest ^ octet) * 16777619) & 0xFFFFFFFF
    return digest


def keyed(*keys: str) -> list[dict[str, Any]]:
    return [{"data": key, "key": key} for key in keys]


def data_of(log: topics.Log, parent: str = "orders") -> list[object]:
    found = log.engine.partitions_of(parent)
    return [r.data for t in found for r in log.diff(t.name, limit=1000).records]


@pytest.mark.parametrize("partitions", [1, 3, 8, 1000])
def test_a_key_goes_to_its_fnv1a_modulo_the_partitions(place: Place, partitions: int) -> None:
    place.log.create("orders", partitions=partitions)
    placed = place.log.append("orders", keyed(*VECTORS)).placed
    assert [partition for partition, _ in placed] == [fnv1a(key) % partitions for key in VECTORS]


def test_the_vectors_of_the_contract(place: Place) -> None:
    place.log.create("orders", partitions=3)
    appended = place.log.append("orders", keyed("user1", "user2"))
    assert appended.placed == [(2, 1), (2, 2)]
    assert fnv1a("") == 2166136261
    assert fnv1a("foobar") == 0xBF9CF968  # from the page of its authors


def test_many_partitions_cost_few_syncs(place: Place) -> None:
    place.stop(wal_shards=2)
    before = place.disk.calls_made
    place.log.create("orders", partitions=1024)
    calls = place.disk.calls[-(place.disk.calls_made - before) :]
    syncs = [path for operation, path in calls if operation == "sync_data" and "wal-" in path]
    assert len(syncs) <= 20
    assert len(place.log.state("orders").partitions or []) == 1024


def test_partitions_count_as_topics(place: Place) -> None:
    place.stop(max_topics=4)
    place.log.create("a", partitions=3)
    with pytest.raises(LimitReached):
        place.log.create("b", partitions=2)
    with pytest.raises(LimitReached):
        place.log.create("a", partitions=5)
    place.log.create("a", partitions=4)
    with pytest.raises(LimitReached):
        place.log.create("c")


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b-12", ("a-b", 12)),
        ("orders-01", None),
        ("orders-", None),
        ("orders", None),
        ("-1", None),
        ("orders--1", ("orders-", 1)),
        ("orders-¹", None),
    ],
)
def test_a_name_says_which_partition_it_would_be(name: str, parsed: tuple[str, int] | None) -> None:
    assert parse_partition_name(name) == parsed


def test_a_dead_letter_topic_is_not_the_topic_itself_nor_a_partition_of_it(place: Place) -> None:
    for dead_letter in ("jobs", "jobs-1"):
        with pytest.raises(RequestError):
            place.log.create("jobs", type="queue", partitions=2, dead_letter=dead_letter)
    place.log.create("jobs", type="queue", partitions=2, dead_letter="dead")
    with pytest.raises(TopicExistsIncompatible):
        place.log.create("jobs", type="log")


def test_what_speaks_of_seqs_names_the_partitions(place: Place) -> None:
    place.log.create("orders", partitions=2)
    with pytest.raises(TopicPartitioned) as refused:
        place.log.diff("orders")
    assert refused.value.detail == {"topic": "orders", "partitions": ["orders-0", "orders-1"]}
    assert "group" in str(refused.value)


# Safety.


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_an_answer_comes_when_every_part_is_as_safe_as_promised(
    place: Place, durability: str
) -> None:
    """Partitions of one shard: some wait for a sync where the last one does not."""
    log = place.log
    log.create("orders", partitions=2, durability=durability)
    zero, one = (next(k for k in KEYS if fnv1a(k) % 2 == n) for n in (0, 1))
    for n in range(200):
        log.append("orders", keyed(one), idempotency_key=str(n))
        appended = log.append("orders", keyed(*[zero] * 7, one), idempotency_key=str(n))
        assert [p.count for p in appended.placements] == [7, 1]
        assert appended.placements[0].last_seq == log.state("orders-0").head_seq == 7 * (n + 1)


# Repeats.


def test_a_write_that_is_long_forgotten_is_no_new_one_after_growth(place: Place) -> None:
    log = place.log
    log.create("orders", partitions=2)
    for seq in range(100):
        log.append("orders", keyed(*KEYS[:8]), producer_id="p", producer_seq=seq)
    log.create("orders", partitions=16)
    assert log.append("orders", keyed(*KEYS[:8]), producer_id="p", producer_seq=0).deduped
    assert len(data_of(log)) == 800


def test_a_producer_repeats_across_growth_without_writing_twice(place: Place) -> None:
    log = place.log
    log.create("orders", partitions=3)
    told = []
    for seq in range(100):
        if seq in (40, 80):
            log.create("orders", partitions=seq // 10)
        records = keyed(*(f"{seq}/{i}" for i in range(3)))
        told.append(log.append("orders", records, producer_id="p", producer_seq=seq))
    place.kill()
    for seq in range(100):  # newest and forgotten alike
        records = keyed(*(f"{seq}/{i}" for i in range(3)))
        again = place.log.append("orders", records, producer_id="p", producer_seq=seq)
        assert again.deduped
        if seq > 95:
            assert again.placed == told[seq].placed
    assert len(data_of(place.log)) == 300


def test_a_repeat_without_keys_finds_its_partition(place: Place) -> None:
    place.log.create("orders", partitions=5)
    records = [{"data": 1}, {"data": 2}]
    first = place.log.append("orders", records, idempotency_key="once")
    place.log.append("orders", records)  # it is another one's turn
    place.log.create("orders", partitions=9)
    again = place.log.append("orders", records, idempotency_key="once")
    assert (again.deduped, again.placed) == (True, first.placed)


def test_a_key_that_is_too_old_is_placed_anew(place: Place) -> None:
    place.log.create("orders", partitions=2, idempotency_window_ms=1000)
    place.log.append("orders", keyed(*KEYS), idempotency_key="once")
    place.log.create("orders", partitions=7)
    place.clock.advance_ms(2000)
    appended = place.log.append("orders", keyed(*KEYS), idempotency_key="once")
    assert not appended.deduped
    assert [partition for partition, _ in appended.placed] == [fnv1a(key) % 7 for key in KEYS]


def test_a_repeat_after_a_partial_failure_and_growth_writes_the_rest(place: Place) -> None:
    log = place.log
    log.create("orders", partitions=3, cap_records=20, discard="reject")
    full = [key for key in KEYS if fnv1a(key) % 3 == 1][:5]
    log.append("orders", keyed(*(full * 4)))
    mixed = [full[0], *[key for key in KEYS if fnv1a(key) % 3 != 1]]
    with pytest.raises(PartlyWritten) as told:
        log.append("orders", keyed(*mixed), idempotency_key="once")
    assert told.value.failed == [1]
    assert [p["partition"] for p in told.value.placements] == [0, 2]
    assert told.value.placed[0] == (1, 0)
    assert [place for place, _ in told.value.placed] == [fnv1a(key) % 3 for key in mixed]
    assert all(seq for _, seq in told.value.placed[1:])
    log.create("orders", cap_records=100)
    log.create("orders", partitions=8)
    whole = log.append("orders", keyed(*mixed), idempotency_key="once")
    assert not whole.deduped
    assert [partition for partition, _ in whole.placed] == [fnv1a(key) % 3 for key in mixed]
    assert sorted(map(str, data_of(log))) == sorted([*mixed, *full * 4])
    assert log.append("orders", keyed(*mixed), idempotency_key="once").deduped


# Failures.


def test_a_shard_that_fails_keeps_its_partitions_from_the_write_and_no_others(place: Place) -> None:
    place.stop(wal_shards=2)
    place.log.create("orders", partitions=4, durability="fsync")
    place.disk.arm(FaultPlan().fail(operation="sync_data", path="wal/shard-01/*", forever=True))
    with pytest.raises(PartlyWritten) as told:
        place.log.append("orders", keyed(*KEYS), idempotency_key="once")
    assert isinstance(told.value.cause, DiskFailed)
    bad = {t.partition for t in place.log.engine.partitions_of("orders") if t.id % 2}
    assert set(told.value.failed) == bad
    place.disk.arm(NO_FAULTS)
    place.cut()
    assert len(data_of(place.log)) < len(KEYS)
    assert not place.log.append("orders", keyed(*KEYS), idempotency_key="once").deduped
    assert sorted(map(str, data_of(place.log))) == sorted(KEYS)


def test_partitions_that_could_not_be_made_are_made_by_the_next_start(place: Place) -> None:
    place.stop(wal_shards=2)  # the parent is topic 1, on shard 1
    place.disk.arm(FaultPlan().fail(operation="sync_data", path="wal/shard-00/*", forever=True))
    with pytest.raises(StorageError):
        place.log.create("orders", partitions=4)
    with pytest.raises(StorageError):
        place.log.append("orders", keyed("a"))
    with pytest.raises(TopicExistsIncompatible):
        place.log.create("orders-1")
    place.disk.arm(NO_FAULTS)
    place.kill()
    assert len(place.log.state("orders").partitions or []) == 4
    assert place.log.append("orders", keyed(*KEYS)).count == len(KEYS)


def test_a_delete_that_fails_leaves_the_topic_as_it_was(place: Place) -> None:
    place.stop(wal_shards=2)
    place.log.create("orders", partitions=4)
    place.log.append("orders", keyed(*KEYS))
    place.disk.arm(FaultPlan().fail(operation="write_at", path="wal/shard-01/*", forever=True))
    with pytest.raises(StorageError):
        place.log.drop("orders")
    assert len(data_of(place.log)) == len(KEYS)
    place.disk.arm(NO_FAULTS)
    place.kill()
    assert len(data_of(place.log)) == len(KEYS)


# At once.


def test_writes_that_race_with_growth_are_all_there(tmp_path: Path) -> None:
    written: list[str] = []
    with topics.open(str(tmp_path)) as log:
        log.create("orders", partitions=1)
        grown = threading.Event()

        def write(number: int) -> None:
            for i in range(1_000_000):
                keys = [f"{number}/{i}/{j}" for j in range(5)]
                log.append("orders", keyed(*keys), idempotency_key=f"{number}/{i}")
                written.extend(keys)
                if grown.is_set():
                    return

        threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for partitions in (2, 5, 9, 17):
            log.create("orders", partitions=partitions)
        grown.set()
        for thread in threads:
            thread.join(30)
        assert log.state("orders").count == len(written)
    with topics.open(str(tmp_path)) as log:
        assert log.state("orders").count == len(written)


def test_writes_that_race_with_a_delete_are_refused_or_gone(tmp_path: Path) -> None:
    with topics.open(str(tmp_path)) as log:
        log.create("orders", partitions=4)
        started, ended = threading.Event(), []

        def write() -> None:
            try:
                while True:
                    log.append("orders", keyed(*KEYS), create=False)
                    started.set()
            except (TopicNotFound, PartlyWritten) as error:
                ended.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        assert started.wait(30)
        log.drop("orders")
        thread.join(30)
        assert len(ended) == 1
        assert log.topics() == []
        log.create("orders", partitions=2)
        assert log.state("orders").count == 0


# With asyncio.


def test_an_async_log_answers_when_all_parts_are_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await AsyncLog.open(str(tmp_path), wal_shards=2) as log:
            await log.create("orders", partitions=4, durability="fsync")
            written = [log.append("orders", keyed(*KEYS)) for _ in range(20)]
            answers = await asyncio.gather(*written)
            seen = {pair for answer in answers for pair in answer.placed}
            assert len(seen) == 20 * len(KEYS), "no seq was given twice"
            first = await log.append("orders", keyed(*KEYS), idempotency_key="once")
            again = await log.append("orders", keyed(*KEYS), idempotency_key="once")
            assert (again.deduped, again.placed) == (True, first.placed)
            for answer in answers[:3]:
                for (partition, seq), key in zip(answer.placed, KEYS, strict=True):
                    page = await log.diff(f"orders-{partition}", from_seq=seq - 1, limit=1)
                    assert [record.data for record in page.records] == [key]
            with pytest.raises(TopicPartitioned):
                await log.diff("orders")

    asyncio.run(scenario())


@pytest.mark.parametrize("partitions", [1, 3, 16, 17])  # from 17 on each write is split by itself
def test_a_body_is_dealt_as_a_write_of_the_same_records_is_split(
    tmp_path: Path, partitions: int
) -> None:
    async def scenario() -> None:
        async with await AsyncLog.open(str(tmp_path), wal_shards=2) as log:
            await log.create("orders", partitions=partitions, durability="disk")
            body = msgspec.json.encode({"records": keyed(*VECTORS)})
            answers = await asyncio.gather(*[log.append_json("orders", body) for _ in range(5)])
            wanted = [fnv1a(key) % partitions for key in VECTORS]
            for answer in answers:
                assert [partition for partition, _ in answer.placed] == wanted
            seen = [pair for answer in answers for pair in answer.placed]
            assert len(set(seen)) == len(seen), "no seq was given twice"
            for (partition, seq), key in zip(answers[-1].placed, VECTORS, strict=True):
                page = await log.diff(f"orders-{partition}", from_seq=seq - 1, limit=1)
                assert [record.data for record in page.records] == [key]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"data":1}]}',
        b'{"records":[{"data":"%b"}]}' % (b"x" * 70_000),  # larger than what is gathered
        b'{"records":[{"data":1}],"create":false}',
    ],
    ids=["small", "large", "more"],
)
def test_writes_without_keys_take_turns(tmp_path: Path, body: bytes) -> None:
    async def scenario() -> None:
        async with await AsyncLog.open(str(tmp_path)) as log:
            await log.create("orders", partitions=2)
            answers = [await log.append_json("orders", body) for _ in range(6)]
            assert [answer.placed[0][0] for answer in answers] == [0, 1] * 3

    asyncio.run(scenario())


def test_writes_to_a_topic_and_to_its_partition_keep_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await AsyncLog.open(str(tmp_path), wal_shards=1) as log:
            await log.create("orders", partitions=2)
            here = [key for key in KEYS if fnv1a(key) % 2 == 0]
            body = msgspec.json.encode({"records": keyed(KEYS[0], KEYS[1], here[0])})
            to_partition = log.append_json("orders-0", b'{"records":[{"data":"between"}]}')
            await asyncio.gather(
                log.append_json("orders", body), to_partition, log.append_json("orders", body)
            )
            found = [record.data for record in (await log.diff("orders-0")).records]
            half = [key for key in (KEYS[0], KEYS[1], here[0]) if fnv1a(key) % 2 == 0]
            assert found == [*half, "between", *half]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [b'{"records":[{"data":1,"key":7}]}', b'{"records":[]}', b'{"records":[{"data":1}],"node":2}'],
)
def test_a_body_that_is_wrong_is_dealt_to_no_partition(tmp_path: Path, body: bytes) -> None:
    async def scenario() -> None:
        async with await AsyncLog.open(str(tmp_path)) as log:
            await log.create("orders", partitions=2)
            with pytest.raises(RequestError):
                await log.append_json("orders", body)
            assert (await log.state("orders")).count == 0

    asyncio.run(scenario())


def test_a_write_that_does_not_fit_in_full_is_refused_before_its_first_part(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with await AsyncLog.open(str(tmp_path), max_total_bytes=2000) as log:
            await log.create("orders", partitions=2)
            records = [{"data": "x" * 1200, "key": key} for key in KEYS[:2]]
            assert {fnv1a(key) % 2 for key in KEYS[:2]} == {0, 1}
            with pytest.raises(LimitReached):
                await log.append("orders", records)
            await log.sync()
            assert (await log.state("orders")).count == 0

    asyncio.run(scenario())


def test_a_write_leaves_nothing_to_the_garbage_collector(place: Place, tmp_path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        place.log.create("orders", partitions=3)
        place.log.append("orders", keyed(*KEYS))

        async def scenario() -> None:
            async with await AsyncLog.open(str(tmp_path)) as log:
                await log.create("orders", partitions=3)
                await log.append("orders", keyed(*KEYS))

        asyncio.run(scenario())
        assert [found for found in gc.get_objects() if isinstance(found, Spread)] == []
    finally:
        gc.enable()
