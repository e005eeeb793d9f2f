"""What a group promises its members, step by step."""

import threading
from typing import cast

import pytest
from tests.unit.engine.place import Place

from topics.embedded import Log
from topics.engine.groups.poll import PollPlan
from topics.errors import (
    DiskFailed,
    GenerationMismatch,
    GroupNotEmpty,
    LimitReached,
    RequestError,
    ShardReadOnly,
    TopicsError,
)
from topics.limits import MIB
from topics.model.groups import CommitRequest, JoinRequest, PollRequest, SeekPoint
from topics.storage.wal.group_commit import Commitment
from topics.storage.wal.log import SyncPoint
from topics.testing.hostile_faults import FaultPlan

SESSION_MS = 1_000


def join(log: Log, member: str, *topics: str) -> int:
    """Join and return the generation."""
    return log.join("g", member=member, topics=topics, session_ms=SESSION_MS).generation


def seqs(log: Log, generation: int, **fields: object) -> list[int]:
    polled = log.poll("g", member="m", generation=generation, **fields)  # type: ignore[arg-type]  # fields of one poll
    return [record.seq for batch in polled.batches for record in batch.records]


@pytest.fixture
def log(place: Place) -> Log:
    for topic in ("a", "b"):
        place.fill(topic, 5)
    return place.log


# Sessions.


def test_a_member_that_says_something_stays(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    for _ in range(5):
        place.clock.advance_ms(SESSION_MS - 1)
        log.poll("g", member="m", generation=generation)
        place.clock.advance_ms(SESSION_MS - 1)
        log.commit("g", {"a": {0: 1}}, member="m", generation=generation)
        place.clock.advance_ms(SESSION_MS - 1)
        log.heartbeat("g", member="m", generation=generation)
    assert log.group_state("g").generation == generation


def test_a_silent_member_is_gone_to_the_millisecond(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    place.clock.advance_ms(SESSION_MS - 1)
    assert log.group_state("g").state == "stable"
    place.clock.advance_ms(1)
    assert log.group_state("g").state == "empty"
    with pytest.raises(GenerationMismatch) as error:
        log.commit("g", {"a": {0: 1}}, member="m", generation=generation)
    assert error.value.generation == generation + 1


def test_the_sweep_finds_silent_members(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    place.clock.advance_ms(SESSION_MS)
    log.engine.sweep()
    assert log.engine.groups.listed("g").members == 0  # type: ignore[union-attr]  # it is there
    log.sync()
    assert place.cut().group_state("g").generation == generation + 1


def test_a_step_of_the_wall_clock_ends_no_session(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    place.clock.set_ms(place.clock.now_ms() + 10**9)
    assert log.heartbeat("g", member="m", generation=generation).generation == generation


def test_a_restart_begins_every_session_anew(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    place.clock.advance_ms(SESSION_MS - 1)
    log = place.cut()
    place.clock.advance_ms(SESSION_MS - 1)
    beat = log.heartbeat("g", member="m", generation=generation)
    assert (beat.generation, beat.assigned) == (generation, {"a": [0]})


# Generations.


def test_coming_again_changes_nothing(log: Log) -> None:
    generation = join(log, "m", "a")
    assert join(log, "m", "a") == generation
    again = log.join("g", member="m", topics=["a"], session_ms=2 * SESSION_MS)
    assert (again.generation, again.heartbeat_ms) == (generation, 2 * SESSION_MS // 3)
    assert log.group_state("g").members[0].session_ms == 2 * SESSION_MS
    assert join(log, "m", "a", "b") == generation + 1


def test_fewer_topics_give_the_others_up_at_once(log: Log) -> None:
    join(log, "m", "a", "b")
    join(log, "n", "b")
    generation = join(log, "m", "a")
    assert log.heartbeat("g", member="n", generation=generation).assigned == {"b": [0]}


def test_a_group_that_begins_again_begins_above(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    log.leave("g", member="m")
    assert log.drop_group("g")
    assert not log.drop_group("g")
    log = place.cut()
    log.checkpoint()
    log = place.stop()
    assert join(log, "m", "a") > generation + 1
    assert log.group_state("g").partitions[0].committed is None


def test_another_count_of_shards_keeps_groups(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    log.commit("g", {"a": {0: 3}}, member="m", generation=generation)
    for shards in (3, 2, 1):
        log = place.kill(wal_shards=shards)
        assert log.heartbeat("g", member="m", generation=0).committed == {"a": {0: 3}}


def test_a_topic_that_is_gone_is_nobodys(place: Place, log: Log) -> None:
    generation = join(log, "m", "a", "b")
    log.commit("g", {"a": {0: 3}}, member="m", generation=generation)
    log.drop("a")
    beat = log.heartbeat("g", member="m", generation=generation)
    assert beat.assigned == {"b": [0]}
    assert beat.generation == generation + 1
    assert [p.topic for p in log.group_state("g").partitions] == ["b"]
    place.fill("a", 2)
    beat = log.heartbeat("g", member="m", generation=generation)
    assert (beat.assigned, beat.committed["a"]) == ({"a": [0], "b": [0]}, {0: 0})


def test_whoever_only_counts_hides_nothing_from_the_members(place: Place, log: Log) -> None:
    generation = join(log, "m", "a", "b")
    log.drop("a")
    assert [p.topic for p in log.engine.groups.progress("g")] == ["b"]
    assert log.heartbeat("g", member="m", generation=0).generation == generation + 1
    place.kill()
    log = place.log
    place.fill("a", 1)
    assert [p.topic for p in log.engine.groups.progress("g")] == ["a", "b"]
    assert log.heartbeat("g", member="m", generation=0).generation == generation + 2


def test_a_change_that_could_not_be_written_is_tried_again(log: Log) -> None:
    generation = join(log, "m", "a", "b")
    log.drop("a")
    before = log.engine.groups.progress("g")
    groups, shard = log.engine.groups, log.engine.shards[0]
    _, word = groups.submit_look("g")
    with shard.lock:
        word.abort()
        word.done = True
    assert log.engine.groups.progress("g") == before
    assert log.heartbeat("g", member="m", generation=0).generation == generation + 1


def test_the_sweep_queues_nothing_where_nothing_is_new(log: Log) -> None:
    join(log, "m", "a")
    log.engine.groups.sweep()
    assert log.engine.shards[0].commit.queue_depth == 0


def test_topics_that_nobody_wants_any_more_are_forgotten(log: Log) -> None:
    generation = join(log, "m", "a", "b")
    log.commit("g", {"b": {0: 1}}, member="m", generation=generation)
    join(log, "m", "a")
    assert log.engine.groups.topics_of("g") == ["a", "b"]
    log.join("h", member="m", topics=["a", "b"])
    log.join("h", member="m", topics=["a"])
    assert log.engine.groups.topics_of("h") == ["a"]


def test_a_topic_that_became_a_queue_is_nobodys(log: Log) -> None:
    generation = join(log, "m", "a", "b")
    log.drop("a")
    log.create("a", type="queue")
    assert log.heartbeat("g", member="m", generation=generation).assigned == {"b": [0]}


# Handing over.


def test_a_partition_stays_with_its_owner_until_it_is_given_up(log: Log) -> None:
    join(log, "m", "a", "b")
    generation = join(log, "n", "a", "b")
    kept = log.heartbeat("g", member="m", generation=generation)
    assert log.heartbeat("g", member="n", generation=generation).assigned == {}
    ((topic, _),) = kept.release.items()
    log.commit("g", {topic: {0: 3}}, member="m", generation=generation)
    log.heartbeat("g", member="m", generation=generation, released={"a": [0], "b": [0], "c": [9]})
    moved = log.heartbeat("g", member="n", generation=generation)
    assert (moved.assigned, moved.committed) == (kept.release, {topic: {0: 3}})
    assert moved.generation == generation + 1


def test_a_late_release_takes_nothing_that_came_back_since(log: Log) -> None:
    join(log, "m", "a", "b")
    early = log.heartbeat("g", member="m", generation=join(log, "n", "a", "b"))
    for _ in range(2):  # the second one is a repeat that was long on its way
        log.heartbeat("g", member="m", generation=early.generation, released=early.release)
        log.leave("g", member="n")  # so that all is with `m` again
        join(log, "n", "a", "b")
    told = log.heartbeat("g", member="m", generation=early.generation)
    assert (told.assigned | told.release).keys() == {"a", "b"}
    log.heartbeat("g", member="m", generation=early.generation, released=told.release)
    assert log.heartbeat("g", member="n", generation=1).assigned == {}
    log.heartbeat("g", member="m", generation=told.generation, released=told.release)
    assert log.heartbeat("g", member="n", generation=1).assigned == told.release


# Commits.


def test_a_late_commit_moves_nothing(log: Log) -> None:
    generation = join(log, "m", "a")
    for seq, wanted in ((3, 3), (2, 3), (3, 3), (4, 4), (0, 4)):
        done = log.commit("g", {"a": {0: seq}}, member="m", generation=generation)
        assert done.committed == {"a": {0: wanted}}


def test_a_commit_of_an_earlier_life_moves_nothing(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    assert seqs(log, generation) == [1, 2, 3, 4, 5]
    log.drop("a")
    place.fill("a", 9)
    generation = log.heartbeat("g", member="m", generation=0).generation
    done = log.commit("g", {"a": {0: 5}}, member="m", generation=generation)
    assert done.committed == {"a": {0: 0}}
    polled = log.poll("g", member="m", generation=generation)
    (batch,) = polled.batches
    assert batch.tombstone is not None
    assert (batch.tombstone.reason, batch.records) == ("recreated", [])
    assert seqs(log, generation) == list(range(1, 10))
    done = log.commit("g", {"a": {0: 5}}, member="m", generation=generation)
    assert done.committed == {"a": {0: 5}}


def test_a_commit_that_could_not_be_synced_never_was(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    log.commit("g", {"a": {0: 2}}, member="m", generation=generation)
    place.disk.arm(FaultPlan().fail(operation="sync_data", forever=True))
    with pytest.raises(DiskFailed):
        log.commit("g", {"a": {0: 4}}, member="m", generation=generation)
    assert log.engine.groups.progress("g")[0].committed == 2
    with pytest.raises(TopicsError):
        join(log, "n", "a")
    assert log.engine.groups.listed("g").members == 1  # type: ignore[union-attr]  # it is there
    assert log.engine.groups.topics_of("new") == []


def test_what_came_during_a_sync_that_failed_is_undone_before_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = join(log, "m", "a", "b")
    commit, groups = log.engine.shards[0].commit, log.engine.groups
    point = commit.log.begin_sync()
    later: list[Commitment] = []

    def done(seq: int) -> CommitRequest:
        return CommitRequest(offsets={"a": {0: seq}}, member="m", generation=generation)

    def fail(_: SyncPoint) -> None:
        later.append(groups.submit_commit("g", done(2))[1])
        later.append(groups.submit_join("g", JoinRequest(member="n", topics=["a"]))[1])
        raise DiskFailed("a test")

    monkeypatch.setattr(type(point), "sync", fail)
    with pytest.raises(DiskFailed):
        groups.commit("g", done(1))
    with pytest.raises(TopicsError):
        join(log, "n", "a")
    state = log.group_state("g")
    assert all(word.done and word.error is not None for word in later)
    assert (state.generation, [m.member for m in state.members]) == (generation, ["m"])
    assert [p.committed for p in state.partitions] == [None, None]


def test_reads_go_on_when_the_log_takes_no_more_writes(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    log.commit("g", {"a": {0: 2}}, member="m", generation=generation)
    place.disk.arm(FaultPlan().fail(operation="sync_data", forever=True))
    with pytest.raises(DiskFailed):
        log.commit("g", {"a": {0: 4}}, member="m", generation=generation)
    place.clock.advance_ms(SESSION_MS)  # it cannot be let go: that would have to be written
    state = log.group_state("g")
    assert (state.generation, state.partitions[0].committed, state.lag_total) == (generation, 2, 3)
    assert seqs(log, generation) == [3, 4, 5]
    with pytest.raises(ShardReadOnly):
        join(log, "n", "a")
    with pytest.raises(ShardReadOnly):
        log.leave("g", member="m")


def test_commits_that_wait_together_share_a_sync(log: Log) -> None:
    generation = join(log, "m", "a", "b")
    shard = log.engine.shards[0]
    before = shard.commit.log.counters.fsyncs
    words = [
        log.engine.groups.submit_commit(
            "g", CommitRequest(offsets={topic: {0: seq}}, member="m", generation=generation)
        )[1]
        for topic in ("a", "b")
        for seq in range(1, 6)
    ]
    shard.commit.sync_once()
    assert all(word.done and word.error is None for word in words)
    assert shard.commit.log.counters.fsyncs == before + 1


def test_whoever_asks_waits_for_what_is_on_its_way(log: Log) -> None:
    generation = join(log, "m", "a")
    groups, shard = log.engine.groups, log.engine.shards[0]
    request = CommitRequest(offsets={"a": {0: 3}}, member="m", generation=generation)
    groups.submit_commit("g", request)
    _, word = groups.submit_look("g")
    _, stale = groups.submit_commit(
        "g", CommitRequest(offsets={"a": {0: 3}}, member="x", generation=generation)
    )
    with shard.lock:
        finished = shard.commit.flush()
    assert word.needs_sync
    assert stale.needs_sync
    assert not finished
    shard.commit.sync_once()
    assert word.done
    assert isinstance(stale.error, GenerationMismatch)


def test_an_operator_and_members_exclude_each_other(log: Log) -> None:
    log.commit("g", {"a": {0: 5}})
    log.commit("g", {"a": {0: 1}})
    join(log, "m", "a")
    with pytest.raises(GenerationMismatch):
        log.commit("g", {"a": {0: 5}})
    with pytest.raises(GroupNotEmpty):
        log.seek("g", to="latest")
    log.leave("g", member="m")
    assert [move.to for move in log.seek("g", to=SeekPoint(seq=4)).moves] == [4]
    assert log.group_state("g").lag_total == 1


# Polls.


def test_a_poll_goes_on_where_the_last_one_ended(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    assert seqs(log, generation, limit=2) == [1, 2]
    assert seqs(log, generation, limit=2) == [3, 4]
    log.commit("g", {"a": {0: 2}}, member="m", generation=generation)
    log = place.kill()
    assert seqs(log, generation, limit=2) == [3, 4]
    join(log, "m", "a")
    assert seqs(log, generation, limit=2) == [3, 4]


def test_a_partition_that_comes_back_starts_at_what_is_committed(log: Log) -> None:
    generation = join(log, "m", "a", "b")
    assert len(seqs(log, generation)) == 10
    generation = join(log, "n", "a", "b")
    release = log.heartbeat("g", member="m", generation=generation).release
    log.heartbeat("g", member="m", generation=generation, released=release)
    log.leave("g", member="n")
    generation = log.heartbeat("g", member="m", generation=0).generation
    polled = log.poll("g", member="m", generation=generation)
    assert {b.topic: [0] for b in polled.batches} == release
    assert polled.count == 5


def test_a_poll_that_answers_after_a_new_join_is_forgotten(log: Log) -> None:
    """The records went to the process that was there before."""
    generation = join(log, "m", "a")
    groups = log.engine.groups
    _, word = groups.submit_poll("g", PollRequest(member="m", generation=generation))
    log.engine.shards[0].commit.sync_once()
    plan = word.answer
    join(log, "m", "a")
    groups.finish_poll(plan, groups.read_plan(plan))  # type: ignore[arg-type]  # a plan, as told
    assert seqs(log, generation) == [1, 2, 3, 4, 5]


def test_a_poll_that_answers_after_its_generation_counts_for_nothing(log: Log) -> None:
    generation = join(log, "m", "a", "b")
    groups = log.engine.groups
    _, word = groups.submit_poll("g", PollRequest(member="m", generation=generation))
    log.engine.shards[0].commit.commit(word)
    plan = cast("PollPlan", word.answer)
    batches = groups.read_plan(plan)
    generation = join(log, "n", "a", "b")
    release = log.heartbeat("g", member="m", generation=generation).release
    log.heartbeat("g", member="m", generation=generation, released=release)
    assert groups.finish_poll(plan, batches).count == 10
    log.leave("g", member="n")
    generation = log.heartbeat("g", member="m", generation=generation).generation
    assert len(seqs(log, generation)) == 10  # from what is committed


def test_a_poll_between_two_times_stops_at_the_end_and_tells_so(place: Place) -> None:
    log, clock = place.log, place.clock
    for topic in ("a", "b"):
        place.fill(topic, 2)
    clock.advance_ms(1000)
    middle_ms = clock.now_ms()
    place.fill("a", 2)
    generation = join(log, "m", "a", "b")
    early = log.poll("g", member="m", generation=generation, until_ts=middle_ms, limit=2)
    assert early.count == 2
    assert early.until_reached is False  # there is more before the end
    early = log.poll("g", member="m", generation=generation, until_ts=middle_ms)
    assert (early.count, early.until_reached) == (2, True)
    assert early.positions == {"a": {0: 2}, "b": {0: 2}}
    again = log.poll("g", member="m", generation=generation, until_ts=middle_ms, wait_ms=30_000)
    assert (again.count, again.until_reached) == (0, True)
    late = log.poll("g", member="m", generation=generation, from_ts=middle_ms)
    assert [record.seq for batch in late.batches for record in batch.records] == [3, 4]
    assert late.until_reached is None


def test_a_poll_that_waits_ends_with_its_window(place: Place) -> None:
    log, clock = place.log, place.clock
    for topic in ("a", "b"):
        place.fill(topic, 2)
    generation = join(log, "m", "a", "b")
    start_s = clock.monotonic_s()
    until_ts = clock.now_ms() + 500
    assert seqs(log, generation, until_ts=until_ts, wait_ms=900) == [1, 2, 1, 2]
    polled = log.poll("g", member="m", generation=generation, until_ts=until_ts, wait_ms=900)
    assert (polled.count, polled.until_reached) == (0, True)
    assert 0.5 <= clock.monotonic_s() - start_s < 0.6


def test_a_member_without_partitions_has_not_read_its_window(log: Log) -> None:
    join(log, "m", "a")
    generation = join(log, "n", "a")
    assert log.poll("g", member="n", generation=generation, until_ts=1).until_reached is False


def test_a_poll_that_waits_reads_over_what_was_deleted_once(log: Log) -> None:
    log.delete("a", before_seq=6)
    generation = join(log, "m", "a")
    asked = {"generation": generation, "positions": {"a": {0: 0}}, "wait_ms": 50}
    assert log.poll("g", member="m", **asked).positions == {"a": {0: 5}}  # type: ignore[arg-type]  # of one poll


def test_a_poll_stays_within_its_bytes(log: Log) -> None:
    for topic in ("a", "b"):
        log.append(topic, [{"data": "x" * (MIB // 2)} for _ in range(4)])
    generation = join(log, "m", "a", "b")
    while (polled := log.poll("g", member="m", generation=generation)).batches:
        assert sum(len(batch.page.records_json) for batch in polled.batches) < 2 * MIB


def test_a_thread_that_polls_is_told_of_records_and_of_the_end_of_its_generation(
    place: Place,
) -> None:
    log = place.log
    log.create("a")
    generation = join(log, "m", "a")
    begun = threading.Event()
    sleep = place.clock.sleep

    def note(seconds: float) -> None:
        begun.set()
        if seconds < 0.01:
            sleep(seconds)

    place.clock.sleep = note  # type: ignore[method-assign]  # to know that it waits
    got: list[object] = []

    def wait() -> None:
        try:
            got.append(log.poll("g", member="m", generation=generation, wait_ms=30_000).count)
        except GenerationMismatch as error:
            got.append(error.generation)

    for change, wanted in (
        (lambda: log.append("a", [{"data": 1}]), 1),
        (lambda: join(log, "n", "a"), generation + 1),
    ):
        begun.clear()
        thread = threading.Thread(target=wait)
        thread.start()
        assert begun.wait(10)
        change()
        thread.join(10)
        assert got.pop() == wanted


# Limits.


def test_members_and_groups_are_limited(place: Place, log: Log) -> None:
    place.log.close()
    log = place.open(max_groups=1, max_group_members=2)
    join(log, "m", "a")
    join(log, "n", "a")
    join(log, "n", "b")
    with pytest.raises(LimitReached) as error:
        join(log, "o", "a")
    assert error.value.limit == "max_group_members"
    with pytest.raises(LimitReached) as error:
        log.commit("other", {"a": {0: 1}})
    assert error.value.limit == "max_groups"
    assert log.groups() == ["g"]


def test_what_cannot_be_asked_is_refused(log: Log) -> None:
    for topics in ([], ["a"] * 257, ["-"]):
        with pytest.raises(RequestError):
            log.join("g", member="m", topics=topics)
    for session_ms in (999, 300_001):
        with pytest.raises(RequestError):
            log.join("g", member="m", topics=["a"], session_ms=session_ms)
    with pytest.raises(RequestError):
        log.commit("g", {"a": {0: -1}})
    with pytest.raises(RequestError):
        log.commit("g", {"a": {0: 1}}, member="m")
    with pytest.raises(RequestError):
        log.commit("-", {"a": {0: 1}})
    assert log.groups() == []


def test_positions_turn_a_member_back_and_never_past_what_it_was_given(
    place: Place, log: Log
) -> None:
    generation = join(log, "m", "a")
    assert seqs(log, generation, positions={"a": {0: 4}}) == [1, 2, 3, 4, 5]
    assert seqs(log, generation, positions={"a": {0: 3}}) == [4, 5]
    place.kill()
    assert seqs(place.log, generation, positions={"a": {0: 5}}) == [1, 2, 3, 4, 5]


def test_positions_of_a_topic_that_is_gone_pass_nothing_over(place: Place, log: Log) -> None:
    generation = join(log, "m", "a")
    assert seqs(log, generation) == [1, 2, 3, 4, 5]
    log.drop("a")
    place.fill("a", 9)
    place.kill()
    generation = place.log.heartbeat("g", member="m", generation=generation).generation
    assert seqs(place.log, generation, positions={"a": {0: 5}}) == list(range(1, 10))


def test_a_commit_ahead_of_the_reading_may_be_read_on_from(log: Log) -> None:
    generation = join(log, "m", "a")
    assert seqs(log, generation, limit=1) == [1]
    log.commit("g", {"a": {0: 3}}, member="m", generation=generation)
    assert seqs(log, generation, positions={"a": {0: 3}}) == [4, 5]
