"""Consumer groups by hand: the same words and answers on every face."""

import pytest
from tests.client.faces import AnyLog, fresh

from topics.errors import GenerationMismatch, GroupNotEmpty, GroupNotFound, RequestError
from topics.model.groups import SeekPoint


def test_a_member_joins_polls_commits_and_leaves(log: AnyLog) -> None:
    topic, group = fresh(), fresh("g")
    log.append(topic, [{"data": n, "tag": "t"} for n in range(5)])
    joined = log.join(group, member="m", topics=[topic], session_ms=60_000)
    assert joined.assigned == {topic: [0]}
    assert joined.committed == {topic: {0: 0}}
    polled = log.poll(group, member="m", generation=joined.generation, limit=3)
    (batch,) = polled.batches
    assert [(record.seq, record.data, record.tag) for record in batch.records] == [
        (n + 1, n, "t") for n in range(3)
    ]
    assert polled.positions == {topic: {0: 3}}
    again = log.poll(
        group, member="m", generation=joined.generation, positions={topic: {0: 1}}, wait_ms=10
    )
    assert [record.seq for record in again.batches[0].records] == [2, 3, 4, 5]
    done = log.commit(group, {topic: {0: 4}}, member="m", generation=joined.generation)
    assert done.committed == {topic: {0: 4}}
    beat = log.heartbeat(group, member="m", generation=joined.generation)
    assert (beat.assigned, beat.release, beat.committed) == ({topic: [0]}, {}, {topic: {0: 4}})
    state = log.group_state(group)
    assert (state.state, state.lag_total, state.members[0].member) == ("stable", 1, "m")
    assert group in log.groups()
    with pytest.raises(GroupNotEmpty):
        log.drop_group(group)
    assert log.leave(group, member="m")
    assert not log.leave(group, member="m")
    assert log.drop_group(group)
    assert not log.drop_group(group)


def test_a_member_polls_between_two_times(log: AnyLog) -> None:
    topic, group = fresh(), fresh("g")
    log.append(topic, [{"data": 1}])
    (first,) = log.diff(topic).records
    generation = log.join(group, member="m", topics=[topic], session_ms=60_000).generation
    early = log.poll(group, member="m", generation=generation, until_ts=first.ts)
    assert ([len(b.records) for b in early.batches], early.until_reached) in (
        ([], True),
        ([0], True),
    )
    late = log.poll(group, member="m", generation=generation, from_ts=first.ts)
    assert [record.seq for batch in late.batches for record in batch.records] == [1]
    assert late.until_reached is None


def test_an_operator_moves_the_progress_of_a_group(log: AnyLog) -> None:
    topic, group = fresh(), fresh("g")
    log.append(topic, [{"data": n} for n in range(5)])
    log.commit(group, {topic: {0: 5}})
    tried = log.seek(group, to=SeekPoint(seq=2), dry_run=True)
    assert [(move.topic, move.before, move.to) for move in tried.moves] == [(topic, 5, 2)]
    assert log.group_state(group).lag_total == 0
    log.seek(group, to="earliest", topics={topic: None})
    assert log.group_state(group).lag_total == 5


def test_errors_of_groups_are_the_same_everywhere(log: AnyLog) -> None:
    topic, group = fresh(), fresh("g")
    log.create(topic)
    with pytest.raises(GroupNotFound) as missing:
        log.group_state(group)
    assert missing.value.group == group
    joined = log.join(group, member="m", topics=[topic])
    with pytest.raises(GenerationMismatch) as stale:
        log.commit(group, {topic: {0: 0}}, member="m", generation=joined.generation + 7)
    assert stale.value.generation == joined.generation
    with pytest.raises(RequestError):
        log.join(group, member="m", topics=[topic], session_ms=1)
