"""The asyncio face: the same answers as the plain one, with many writers sharing one sync."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topics import aio
from topics.aio import AsyncLog
from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine.topics.topic import Topic
from topics.errors import (
    Closed,
    DiskFailed,
    GenerationMismatch,
    LimitReached,
    RequestError,
    ShardReadOnly,
    Throttled,
    TopicNotFound,
)
from topics.model.append import Appended
from topics.model.diff import Page
from topics.model.queues import Claimed, ClaimRequest
from topics.storage.disk.local_disk import LocalDisk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan

ONE = b'{"records":[{"data":{"n":1}}]}'


def run_with_log(path: Path, scenario: object) -> None:
    async def main() -> None:
        async with await AsyncLog.open(str(path)) as log:
            await scenario(log)  # type: ignore[operator] # a coroutine function

    asyncio.run(main())


def test_writes_of_every_class_are_answered_and_read_back(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        for durability in ("ephemeral", "memory", "disk", "fsync"):
            await log.create(durability, durability=durability)
            appended = await log.append(durability, [{"data": 1}, {"data": 2, "tag": "t"}])
            assert (appended.first_seq, appended.last_seq) == (1, 2)
            page = await log.diff(durability)
            assert [record.data for record in page.records] == [1, 2]

    run_with_log(tmp_path, scenario)


def test_a_backup_is_made_beside_the_event_loop(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.append("t", [{"data": 1}])
        done = await log.backup(str(tmp_path / "backup"))
        assert done.topics == 1

    run_with_log(tmp_path / "data", scenario)
    with Log(ServerConfig(data_dir=str(tmp_path / "backup"))) as restored:
        assert restored.diff("t").records[0].data == 1


def test_a_write_creates_its_topic_once(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        answers = await asyncio.gather(*[log.append_json("new", ONE) for _ in range(20)])
        assert sum(answer.created for answer in answers) == 1
        assert sorted(answer.first_seq for answer in answers) == list(range(1, 21))
        with pytest.raises(TopicNotFound):
            await log.append_json("absent", b'{"records":[{"data":1}],"create":false}')

    run_with_log(tmp_path, scenario)


def test_many_writers_share_syncs_and_keep_their_own_order(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("many", durability="fsync")

        async def write(writer: int) -> list[int]:
            seqs = []
            for turn in range(20):
                done = await log.append("many", [{"data": turn}], node=str(writer))
                seqs.append(done.first_seq)
            return seqs

        seqs = await asyncio.gather(*[write(number) for number in range(32)])
        assert all(mine == sorted(mine) for mine in seqs)
        assert sorted(seq for mine in seqs for seq in mine) == list(range(1, 641))
        syncs = sum(shard.commit.log.counters.fsyncs for shard in log.log.engine.shards)
        assert syncs < 320

    run_with_log(tmp_path, scenario)


def test_a_delete_is_awaited_and_visible(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.append("d", [{"data": n, "tag": f"t{n}"} for n in range(5)])
        deleted = await log.delete("d", match=["tag", "Glob", "t*"], before_seq=3)
        assert deleted.deleted == 2
        assert [r.seq for r in (await log.diff("d")).records] == [3, 4, 5]

    run_with_log(tmp_path, scenario)


def test_an_awaited_delete_tells_a_given_0_from_none(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.append("d", [{"data": n, "tag": "t"} for n in range(3)])
        assert (await log.delete("d", before_seq=0)).deleted == 0
        assert (await log.delete("d", before_seq=0, match="t")).deleted == 0
        with pytest.raises(RequestError, match="needs before_seq, match, or both"):
            await log.delete("d")
        assert (await log.delete("d", match="t")).deleted == 3

    run_with_log(tmp_path, scenario)


def test_a_read_between_two_times_is_that_of_the_plain_face(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.append("a", [{"data": 1}])
        (record,) = (await log.diff("a")).records
        page = await log.diff("a", from_ts=record.ts, until_ts=record.ts + 1)
        assert [found.seq for found in page.records] == [1]
        page = await log.diff("a", from_ts=record.ts + 1)
        assert (page.records, page.next_from_seq, page.until_reached) == ([], 1, None)
        page = await log.diff("a", until_ts=record.ts)
        assert (page.records, page.next_from_seq, page.until_reached) == ([], 0, True)

    run_with_log(tmp_path, scenario)


def test_a_repeated_key_in_the_same_turn_is_answered_with_the_first_seqs(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("keyed", durability="fsync")
        body = b'{"records":[{"data":1}],"idempotency_key":"k"}'
        first, second = await asyncio.gather(
            log.append_json("keyed", body), log.append_json("keyed", body)
        )
        assert (first.first_seq, first.deduped) == (1, False)
        assert (second.first_seq, second.deduped) == (1, True)
        assert (await log.state("keyed")).head_seq == 1

    run_with_log(tmp_path, scenario)


def test_bad_requests_raise_before_anything_is_queued(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("t")
        with pytest.raises(RequestError):
            await log.append_json("t", b'{"records":[]}')
        with pytest.raises(RequestError):
            await log.delete("t")
        assert (await log.state("t")).head_seq == 0

    run_with_log(tmp_path, scenario)


def test_a_failed_sync_reaches_every_waiting_writer() -> None:
    async def main() -> None:
        disk = HostileDisk()
        log = AsyncLog(Log(ServerConfig(wal_file_bytes=65_536, wal_shards=1), disk=disk))
        await log.create("f", durability="fsync")
        disk.arm(FaultPlan().fail(operation="sync_data", path="wal/*", forever=True))
        answers = await asyncio.gather(
            *[log.append_json("f", ONE) for _ in range(8)], return_exceptions=True
        )
        assert all(isinstance(answer, DiskFailed | ShardReadOnly) for answer in answers)
        assert (await log.diff("f")).count == 0
        with pytest.raises(ShardReadOnly):
            await log.append_json("f", ONE)

    asyncio.run(main())


def test_too_long_a_tail_is_refused_for_now(tmp_path: Path) -> None:
    async def main() -> None:
        config = ServerConfig(data_dir=str(tmp_path), tail_cache_bytes=1 << 20, wal_shards=1)
        log = AsyncLog(Log(config, disk=LocalDisk(str(tmp_path)), background=False))
        await log.create("t")
        body = b'{"records":[{"data":"' + b"x" * 200_000 + b'"}]}'
        for _ in range(6):
            await log.append_json("t", body)
        with pytest.raises(Throttled):
            await log.append_json("t", body)
        log.log.checkpoint()
        assert (await log.append_json("t", body)).count == 1
        await log.close()

    asyncio.run(main())


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        log = await AsyncLog.open(str(tmp_path), config=msgspec.structs.replace(ServerConfig()))
        await log.create("t")
        await log.close()
        with pytest.raises(Closed):
            await log.append_json("t", ONE)

    asyncio.run(main())


def test_cold_records_are_read_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        config = ServerConfig(
            data_dir=str(tmp_path / "hot"),
            cold_dir=str(tmp_path / "cold"),
            segment_max_events=10,
            hot_retain_segments=1,
        )
        log = AsyncLog(Log(config, background=False))
        for n in range(100):
            await log.append("c", [{"data": n}])
        log.log.checkpoint()
        assert log.log.engine.relocate() == 9
        threads: list[str] = []
        read = log.log.diff

        def read_and_note(*args: Any, **fields: Any) -> Page:  # noqa: ANN401 - passed through
            threads.append(threading.current_thread().name)
            return read(*args, **fields)

        monkeypatch.setattr(log.log, "diff", read_and_note)
        page = await log.diff("c", limit=100)
        await log.diff("c", from_seq=95)
        assert threads[0].startswith("topics-cold-read")
        assert threads[1] == threading.current_thread().name
        assert [record.data for record in page.records] == list(range(100))
        assert page.cold_segments_read == 9
        await log.close()

    asyncio.run(main())


def test_writes_of_one_turn_keep_their_order_and_their_own_seqs(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("t", durability="fsync")
        sizes = [1, 3, 2, 1]
        bodies = [
            msgspec.json.encode({"records": [{"data": [n, k]} for k in range(size)]})
            for n, size in enumerate(sizes)
        ]
        answers = await asyncio.gather(*[log.append_json("t", body) for body in bodies])
        assert [(a.first_seq, a.last_seq, a.count) for a in answers] == [
            (1, 1, 1), (2, 4, 3), (5, 6, 2), (7, 7, 1),
        ]  # fmt: skip
        page = await log.diff("t")
        expected = [[n, k] for n, size in enumerate(sizes) for k in range(size)]
        assert [record.data for record in page.records] == expected

    run_with_log(tmp_path, scenario)


def test_a_write_with_a_key_comes_after_the_plain_ones_before_it(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("t")
        keyed = b'{"records":[{"data":"keyed"}],"idempotency_key":"k"}'
        answers = await asyncio.gather(
            log.append_json("t", ONE), log.append_json("t", keyed), log.append_json("t", ONE)
        )
        assert [answer.first_seq for answer in answers] == [1, 2, 3]

    run_with_log(tmp_path, scenario)


def test_every_write_of_a_turn_hears_that_its_topic_is_gone(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("t")
        topic = log.log.engine.topic("t")
        writes = [asyncio.ensure_future(log.append_json("t", ONE)) for _ in range(3)]
        topic.deleted = True  # between the turn's writes and their flush
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(answer) for answer in answers] == [TopicNotFound] * 3
        topic.deleted = False

    run_with_log(tmp_path, scenario)


def test_workers_claim_ack_nack_and_extend(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("jobs", type="queue", durability="fsync", leases_durable=True)
        await log.append("jobs", [{"data": i} for i in range(4)])
        first, second = await asyncio.gather(
            log.claim("jobs", node="w1", max=2), log.claim("jobs", node="w2", max=1)
        )
        assert [job.data for job in first.jobs] == [0, 1]
        assert [lease.seq for lease in second.leases] == [3]
        extended = await log.extend("jobs", [1], node="w1", lease_ms=60_000)
        assert list(extended.deadlines) == [1]
        nacked = await log.nack("jobs", [2, 3], node="w1")
        assert (nacked.nacked, nacked.skipped, nacked.ready) == (1, [3], 2)
        lease_ids = [first.leases[0].lease_id]
        acked = await log.ack("jobs", [1], node="w1", lease_ids=lease_ids)
        assert (acked.acked, acked.ready, acked.in_flight) == (1, 2, 1)
        with pytest.raises(RequestError):
            await log.claim("jobs", node="")

    run_with_log(tmp_path, scenario)


def test_claimers_of_one_window_share_the_jobs_and_their_errors(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("jobs", type="queue", claim_jitter_ms=20)
        await log.append("jobs", [{"data": i} for i in range(6)])
        claims = [log.claim("jobs", node=f"w{i}", max=10) for i in range(3)]
        gone = asyncio.ensure_future(log.claim("jobs", node="gone", max=10))
        bad = log.claim("jobs", node="", max=10)
        await asyncio.sleep(0)
        gone.cancel()
        answers = await asyncio.gather(*claims, bad, return_exceptions=True)
        assert isinstance(answers.pop(), RequestError)
        assert [answer.count for answer in answers if isinstance(answer, Claimed)] == [2, 2, 2]
        late = asyncio.ensure_future(log.claim("jobs", node="w1"))
        await asyncio.sleep(0)
        await log.drop("jobs")
        with pytest.raises(TopicNotFound):
            await late

    run_with_log(tmp_path, scenario)


def test_claimers_of_one_turn_are_served_in_their_order(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("jobs", type="queue")
        await log.append("jobs", [{"data": i} for i in range(6)])
        gone = asyncio.ensure_future(log.claim("jobs", node="gone", max=10))
        claims = [asyncio.ensure_future(log.claim("jobs", node=f"w{i}", max=4)) for i in range(3)]
        await asyncio.sleep(0)  # they have asked
        gone.cancel()
        answers = await asyncio.gather(*claims)
        assert [answer.count for answer in answers] == [4, 2, 0]

    run_with_log(tmp_path, scenario)


def test_a_failure_to_claim_is_told_to_all_claimers_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("jobs", type="queue")

        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(log.log.engine, "submit_each_claim", fail)
        claims = [log.claim("jobs", node=f"w{i}") for i in range(3)]
        answers = await asyncio.gather(*claims, return_exceptions=True)
        assert [type(answer) for answer in answers] == [ZeroDivisionError] * 3

    run_with_log(tmp_path, scenario)


@pytest.mark.parametrize("jitter_ms", [0, 1])
@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_claim_answers_when_the_letters_it_makes_can_be_read(
    tmp_path: Path, durability: str, jitter_ms: int
) -> None:
    async def scenario(log: AsyncLog) -> None:
        config = {"max_deliveries": 1, "dead_letter": "dead", "claim_jitter_ms": jitter_ms}
        await log.create("jobs", type="queue", durability=durability, **config)
        await log.append("jobs", [{"data": "poison"}, {"data": "too"}])
        for seq in (1, 2):
            await log.claim("jobs", node="w")
            await log.nack("jobs", [seq], node="w")
        claims = [log.claim("jobs", node=f"w{n}") for n in range(3)]
        assert [claimed.count for claimed in await asyncio.gather(*claims)] == [0, 0, 0]
        letters = (await log.diff("dead")).records
        assert [record.data for record in letters] == ["poison", "too"]
        state = await log.state("jobs")
        assert state.queue is not None
        assert (state.queue.ready, state.queue.dead_lettered, state.count) == (0, 2, 0)

    run_with_log(tmp_path, scenario)


def test_a_claim_answers_although_the_dead_letters_take_nothing(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("dead", cap_records=1, discard="reject")
        await log.append("dead", [{"data": "first"}])
        await log.create("jobs", type="queue", max_deliveries=1, dead_letter="dead")
        await log.append("jobs", [{"data": "poison"}])
        await log.claim("jobs", node="w")
        await log.nack("jobs", [1], node="w")
        assert (await log.claim("jobs", node="w")).count == 0
        assert (await log.state("dead")).count == 1
        await log.delete("dead", before_seq=2)
        await log.append("jobs", [{"data": "more"}])
        assert (await log.claim("jobs", node="w")).count == 1
        await log.run(log.log.engine.move_dead_letters)
        assert [record.data for record in (await log.diff("dead")).records] == ["poison"]

    run_with_log(tmp_path, scenario)


def test_every_claimer_of_a_crowded_window_is_answered(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.create("q", type="queue", claim_jitter_ms=20)
        await log.append("q", [{"data": n} for n in range(60)])
        claims = [log.claim("q", node=f"w{n}") for n in range(60)]
        claimed = await asyncio.wait_for(asyncio.gather(*claims), timeout=10)
        assert sorted(lease.seq for one in claimed for lease in one.leases) == list(range(1, 61))

    run_with_log(tmp_path, scenario)


def test_groups_are_awaited_like_everything_else(tmp_path: Path) -> None:
    async def scenario(log: AsyncLog) -> None:
        await log.append("a", [{"data": n} for n in range(5)])
        joined = await log.join("g", member="m", topics=["a"])
        generation = joined.generation
        polled = await log.poll("g", member="m", generation=generation, limit=3)
        assert polled.positions == {"a": {0: 3}}
        commits = [
            log.commit("g", {"a": {0: seq}}, member="m", generation=generation) for seq in (1, 2, 3)
        ]
        done = await asyncio.gather(*commits)
        assert [commit.committed["a"][0] for commit in done] == [1, 2, 3]
        rest = await log.poll("g", member="m", generation=generation, wait_ms=10_000)
        assert [record.seq for batch in rest.batches for record in batch.records] == [4, 5]
        waiting = asyncio.create_task(
            log.poll("g", member="m", generation=generation, wait_ms=10_000)
        )
        await log.append("a", [{"data": "news"}])
        assert (await waiting).count == 1
        beat = await log.heartbeat("g", member="m", generation=generation)
        assert beat.assigned == {"a": [0]}
        assert (await log.group_state("g")).lag_total == 3
        with pytest.raises(GenerationMismatch):
            await log.commit("g", {"a": {0: 6}})
        assert await log.leave("g", member="m")
        assert not await log.leave("g", member="m")
        sought = await log.seek("g", to="latest")
        assert [move.to for move in sought.moves] == [6]
        assert await log.groups() == ["g"]
        assert await log.drop_group("g")
        assert not await log.drop_group("g")

    run_with_log(tmp_path, scenario)


def test_writes_of_a_turn_fill_a_log_up_to_its_limit(tmp_path: Path) -> None:
    body = b'{"records":[{"data":"%b"}]}' % (b"x" * 10_000)

    async def scenario() -> None:
        config = ServerConfig(data_dir=str(tmp_path), max_total_bytes=100_000)
        async with await AsyncLog.open(config=config) as log:
            await log.create("t", durability="disk")
            writing = [log.append_json("t", body) for _ in range(20)]
            done = await asyncio.gather(*writing, return_exceptions=True)
            written = [one for one in done if isinstance(one, Appended)]
            assert len(written) == 9
            assert all(isinstance(one, Appended | LimitReached) for one in done)
            assert (await log.state("t")).count == 9

    asyncio.run(scenario())


@pytest.mark.parametrize("config", [{}, {"partitions": 2}], ids=["plain", "partitioned"])
def test_a_turn_with_more_than_one_gathering_takes_keeps_its_order(
    tmp_path: Path, config: dict[str, int]
) -> None:
    bodies = [
        b'{"records":[{"data":"%d %b","key":"k"}]}' % (number, b"x" * 60_000)
        for number in range(100)
    ]

    async def scenario(log: AsyncLog) -> None:
        await log.create("t", durability="disk", **config)
        await asyncio.gather(*[log.append_json("t", body) for body in bodies])
        topics = log.log.engine.partitions_of("t")
        (name,) = [topic.name for topic in topics if topic.head_seq]
        pages = [await log.diff(name, from_seq=seq, limit=10) for seq in range(0, 100, 10)]
        found = [record.data.split()[0] for page in pages for record in page.records]
        assert found == [str(number) for number in range(100)]

    run_with_log(tmp_path, scenario)


def test_claims_of_many_jobs_are_served_in_turns_and_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "CLAIMED_A_TURN", 5)
    served: list[int] = []

    async def scenario(log: AsyncLog) -> None:
        await log.create("jobs", type="queue")
        await log.append("jobs", [{"data": n} for n in range(12)])
        submit = log.log.engine.submit_each_claim

        def note(topic: Topic, requests: Sequence[ClaimRequest], **rest: Any) -> Any:  # noqa: ANN401 - handed on
            served.append(len(requests))
            return submit(topic, requests, **rest)

        monkeypatch.setattr(log.log.engine, "submit_each_claim", note)
        wanted = [2, 3, 1, 9, 4]
        claims = [log.claim("jobs", node=f"w{n}", max=n) for n in wanted]
        answers = await asyncio.gather(*claims)
        assert [answer.count for answer in answers] == [2, 3, 1, 6, 0]
        seqs = [lease.seq for answer in answers for lease in answer.leases]
        assert seqs == list(range(1, 13))

    run_with_log(tmp_path, scenario)
    assert served == [2, 1, 1, 1]
