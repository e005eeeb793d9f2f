"""A member by itself: answers go in, calls come out. No server, a clock set by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from topics.errors import GenerationMismatch, GroupNotFound, TopicNotFound, TopicsError
from topics.handles.absent import Pause
from topics.handles.membership import Ask, ConsumerSettings, Membership, Steps
from topics.handles.payload import Payload
from topics.model.diff import Page, Tombstone
from topics.model.groups import Committed, Heartbeat, Joined, Polled, PolledBatch
from topics.model.stream import GroupRecord
from topics.testing.manual_clock import ManualClock

Answer = Callable[[dict[str, Any]], object]


class Talk:
    """Plays the server: each word has a list of answers, the last one is kept."""

    def __init__(self, *, until_caught_up: bool = False, **answers: list[object]) -> None:
        self.clock = ManualClock()
        self.stops_at_pause = 0
        settings = ConsumerSettings(
            group="g",
            member="m",
            topics=("t",),
            commit_ms=1_000,
            until_caught_up=until_caught_up,
        )
        self.member: Membership[Any] = Membership(settings, Payload(None), self.clock)
        self.answers = answers
        self.said: list[tuple[str, dict[str, Any]]] = []

    def run(self, steps: Steps[Any]) -> object:
        outcome: object = None
        while True:
            try:
                ask = steps.send(outcome)
            except StopIteration as end:
                result: object = end.value
                return result
            outcome = self._answer(ask)

    def next_seq(self) -> int:
        item = self.run(self.member.next_item())
        assert isinstance(item, GroupRecord)
        return item.seq

    def words(self) -> list[str]:
        return [word for word, _ in self.said]

    def body(self, word: str) -> dict[str, Any]:
        """Return the newest body of a word."""
        return [body for said, body in self.said if said == word][-1]

    def _answer(self, ask: Ask | Pause) -> object:
        if isinstance(ask, Pause):
            self.said.append(("pause", {}))
            return self.words().count("pause") == self.stops_at_pause
        self.said.append((ask.word, ask.fields))
        answers = self.answers[ask.word]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def joined(generation: int = 1, *, numbers: tuple[int, ...] = (0, 1), done: int = 0) -> Joined:
    return Joined(
        generation=generation,
        assigned={"t": list(numbers)},
        committed={"t": dict.fromkeys(numbers, done)},
        heartbeat_ms=3_000,
    )


def beat(generation: int, *, keep: tuple[int, ...], release: tuple[int, ...] = ()) -> Heartbeat:
    return Heartbeat(
        generation=generation,
        assigned={"t": list(keep)},
        release={"t": list(release)} if release else {},
        committed={"t": dict.fromkeys((*keep, *release), 0)},
        heartbeat_ms=3_000,
    )


def polled(partition: int, first: int, last: int, *, lost: Tombstone | None = None) -> Polled:
    records = b",".join(
        b'{"$seq":%d,"$ts":1,"data":%d}' % (seq, seq) for seq in range(first, last + 1)
    )
    page = Page(
        topic="t",
        records_json=records,
        count=last - first + 1,
        next_from_seq=last,
        head_seq=last,
        earliest_seq=1,
        tombstone=lost,
        records_scanned=0,
        cold_segments_read=0,
    )
    batch = PolledBatch(topic="t", partition=partition, page=page)
    return Polled(generation=1, batches=[batch], positions={})


COMMITTED = Committed(generation=1, committed={})
STALE: TopicsError = GenerationMismatch("stale", 2)


def test_a_member_waits_for_topics_that_are_not_there_yet_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing = TopicNotFound("t")
    talk = Talk(join=[missing, missing, missing, joined()], poll=[polled(0, 1, 1)])
    assert talk.next_seq() == 1
    assert talk.words() == [*["join", "pause"] * 3, "join", "poll"]
    assert caplog.messages == ["the topic t is not there yet: waiting for it"]


def test_a_member_that_waits_can_be_stopped() -> None:
    talk = Talk(join=[TopicNotFound("t")])
    talk.stops_at_pause = 2
    assert talk.run(talk.member.next_item()) is None
    assert talk.words() == ["join", "pause", "join", "pause"]


def test_a_member_that_reads_what_is_there_is_told_that_nothing_is() -> None:
    talk = Talk(join=[TopicNotFound("t")], until_caught_up=True)
    with pytest.raises(TopicNotFound):
        talk.run(talk.member.next_item())


def test_positions_go_with_every_poll_and_commits_lag_one_item_behind() -> None:
    talk = Talk(join=[joined()], poll=[polled(0, 1, 3), polled(0, 4, 4)], commit=[COMMITTED])
    assert [talk.next_seq() for _ in range(3)] == [1, 2, 3]
    assert talk.body("poll")["positions"] == {"t": {0: 0, 1: 0}}
    assert "commit" not in talk.words()
    talk.clock.advance_ms(1_001)
    assert talk.next_seq() == 4
    assert talk.body("commit")["offsets"] == {"t": {0: 3}}
    assert talk.body("poll")["positions"] == {"t": {0: 3, 1: 0}}


def test_a_partition_is_committed_and_dropped_before_it_is_given_up() -> None:
    talk = Talk(
        join=[joined()],
        poll=[polled(1, 1, 3), polled(0, 1, 1)],
        commit=[COMMITTED],
        heartbeat=[beat(3, keep=(0,))],
    )
    assert talk.next_seq() == 1
    talk.member.hear(beat(2, keep=(0,), release=(1,)), joins=1)
    assert talk.next_seq() == 1, "of the other partition: what was read ahead is dropped"
    assert talk.words() == ["join", "poll", "commit", "heartbeat", "poll"]
    assert talk.body("commit")["offsets"] == {"t": {1: 1}}
    assert talk.body("heartbeat")["released"] == {"t": [1]}
    assert talk.body("poll")["positions"] == {"t": {0: 0}}
    assert talk.body("poll")["generation"] == 3


def test_a_commit_is_said_again_in_the_new_generation() -> None:
    talk = Talk(
        join=[joined()],
        poll=[polled(0, 1, 2)],
        commit=[STALE, COMMITTED],
        heartbeat=[beat(2, keep=(0, 1))],
    )
    talk.next_seq()
    talk.run(talk.member.commit())
    assert talk.words() == ["join", "poll", "commit", "heartbeat", "commit"]
    assert talk.body("commit")["generation"] == 2


def test_who_was_thrown_out_joins_again_and_begins_at_what_is_committed() -> None:
    talk = Talk(
        join=[joined(), joined(5, done=1)],
        poll=[polled(0, 1, 3), polled(0, 2, 3)],
        commit=[COMMITTED],
        heartbeat=[GroupNotFound("g")],
    )
    assert talk.next_seq() == 1
    talk.member.hear(STALE, joins=1)
    assert talk.next_seq() == 2
    assert talk.body("poll")["positions"] == {"t": {0: 1, 1: 1}}
    assert talk.body("poll")["generation"] == 5


def test_what_is_heard_of_an_earlier_life_does_not_count() -> None:
    talk = Talk(join=[joined(7)], poll=[polled(0, 1, 3)])
    talk.next_seq()
    talk.member.hear(STALE, joins=0)
    talk.member.hear(beat(6, keep=()), joins=1)
    assert talk.next_seq() == 2
    assert talk.words() == ["join", "poll"]


def test_what_was_read_is_not_handed_out_again_by_a_server_that_forgot() -> None:
    talk = Talk(join=[joined()], poll=[polled(0, 1, 3), polled(0, 2, 5)], commit=[COMMITTED])
    assert [talk.next_seq() for _ in range(4)] == [1, 2, 3, 4]
    talk.run(talk.member.commit())
    assert talk.body("commit")["offsets"] == {"t": {0: 4}}, "and nothing is taken back"


def test_a_topic_that_went_back_is_read_again() -> None:
    gap = {"gap_from": 0, "gap_to": 0, "missed_estimate": 0, "earliest_seq": 1, "head_seq": 9}
    lost = Tombstone(**gap, reason="recreated")
    for answer in (polled(0, 1, 2), polled(0, 1, 9, lost=lost)):
        talk = Talk(join=[joined()], poll=[polled(0, 1, 3), answer], commit=[COMMITTED])
        assert [talk.next_seq() for _ in range(3)] == [1, 2, 3]
        if answer.batches[0].tombstone is not None:
            assert isinstance(talk.run(talk.member.next_item()), Tombstone)
        assert talk.next_seq() == 1
