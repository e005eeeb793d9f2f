"""One read over all partitions of a member, instead of one a partition.

    plan (under the lock): what the member owns, where it is in each
    read (no lock): each partition its share of the limit, beginning with another one every time;
        between two times every partition is looked at, because its end is to be told
    finish (under the lock): where the member is now

Keeps: a member is given a record again until it says, by `positions` or a commit, that it has it,
or goes on polling without a word: then the server's memory of it counts.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from topics.engine.diff import DiffRequest
from topics.engine.groups.assign import Partition
from topics.engine.groups.group import Group, Place, Session
from topics.engine.groups.step import Step
from topics.engine.groups.words import as_positions, check_current
from topics.engine.topics.topic import Topic
from topics.model.diff import Page
from topics.model.groups import Polled, PolledBatch, PollRequest, WirePositions

Read = Callable[[Topic, DiffRequest], Page]
MustForward = Callable[[Topic], bool]


class Turn(NamedTuple):
    """One partition to look at."""

    partition: Partition
    topic: Topic
    place: Place

    @property
    def is_recreated(self) -> bool:
        """Tell whether the member was in an earlier life of the topic."""
        return self.place.topic_id != self.topic.id

    @property
    def has_news(self) -> bool:
        return self.is_recreated or self.place.seq != self.topic.head_seq


class PollPlan(Struct, frozen=True, kw_only=True):
    """What a poll reads; the group may go on meanwhile."""

    group: Group
    member: str
    session: Session
    generation: int
    request: DiffRequest
    """With the limit and the byte budget of all partitions together."""
    turns: list[Turn]

    def has_news(self, must_forward: MustForward) -> bool:
        """Tell whether there is something to read or to be told; takes no lock."""
        return self.group.generation != self.generation or any(
            turn.has_news or must_forward(turn.topic) for turn in self.turns
        )

    def is_over(self, now_ms: int) -> bool:
        """Tell whether the window has ended by the clock: a look may tell so."""
        return bool(self.turns) and 0 < self.request.until_ts <= now_ms

    def without_ended(self, batches: list[PolledBatch]) -> "PollPlan":
        """Return what is left to wait for: not what was read to the end of the window."""
        ended = _ended(batches)
        if not ended:
            return self
        return replace(self, turns=[turn for turn in self.turns if turn.partition not in ended])


def plan_poll(step: Step, request: PollRequest, read_request: DiffRequest) -> PollPlan:
    """Say where a member is in each of its partitions, in the order of this poll."""
    group = check_current(step, request.member, request.generation)
    session = group.session(request.member, step.now_s)
    owned = group.owned_by(request.member)
    first = session.turn % len(owned) if owned else 0
    positions = request.positions or {}
    turns = []
    for partition in [*owned[first:], *owned[:first]]:
        topic = group.topic_of(partition)
        if topic is not None:
            place = _place(group, session, partition, topic, positions)
            turns.append(Turn(partition, topic, place))
    return PollPlan(
        group=group,
        member=request.member,
        session=session,
        generation=group.generation,
        request=read_request,
        turns=turns,
    )


def _place(
    group: Group, session: Session, partition: Partition, topic: Topic, positions: WirePositions
) -> Place:
    known = session.reading.get(partition) or group.committed.get(partition) or Place(topic.id, 0)
    seq = positions.get(partition.topic, {}).get(partition.number)
    if seq is None:
        return known
    if seq != known.seq and session.buried.get(partition) == seq:
        return Place(0, seq)  # it was told that this life is over, and did not hear it
    done = group.committed.get(partition)
    given = max(known.seq, done.seq if done and done.topic_id == known.topic_id else 0)
    # Back only: nothing is passed over that this member was not given, or did not commit.
    return Place(known.topic_id, min(seq, given))


def read_turns(plan: PollPlan, read: Read, must_forward: MustForward) -> list[PolledBatch]:
    """Read what there is; a partition with nothing to say is left out."""
    is_timed = plan.request.until_ts > 0
    due = [turn for turn in plan.turns if is_timed or turn.has_news or must_forward(turn.topic)]
    limit, budget = plan.request.limit, plan.request.max_batch_bytes
    batches: list[PolledBatch] = []
    for left, turn in zip(range(len(due), 0, -1), due, strict=True):
        if limit <= 0 or budget <= 0:
            break
        share = replace(
            plan.request,
            from_seq=turn.place.seq,
            life=turn.place.topic_id,
            limit=max(1, limit // left),
            max_batch_bytes=max(1, budget // left),
        )
        if turn.is_recreated:
            # The tombstone alone, so that nobody can miss it with what follows.
            share = replace(share, limit=0)
        page = read(turn.topic, share)
        limit -= page.count
        budget -= len(page.records_json)
        topic, number = turn.partition
        moved = page.count or page.tombstone or page.next_from_seq != turn.place.seq
        if moved or page.until_reached:
            batches.append(PolledBatch(topic=topic, partition=number, page=page))
    return batches


def finish_poll(plan: PollPlan, batches: list[PolledBatch]) -> Polled:
    """Note how far the member has come; the lock is held."""
    places = {turn.partition: turn.place for turn in plan.turns}
    topics = {turn.partition: turn.topic for turn in plan.turns}
    read = [Partition(batch.topic, batch.partition) for batch in batches]
    for partition, batch in zip(read, batches, strict=True):
        places[partition] = Place(topics[partition].id, batch.page.next_from_seq)
    group, session = plan.group, plan.session
    # Who has joined anew, or may have lost a partition, starts at what is committed.
    if group.sessions.get(plan.member) is session and group.generation == plan.generation:
        session.reading = places
        session.buried = {
            turn.partition: turn.place.seq
            for turn in plan.turns
            if turn.is_recreated and turn.partition in read
        }
        if read:
            session.turn = group.owned_by(plan.member).index(read[-1]) + 1
    return Polled(
        generation=plan.generation,
        batches=batches,
        positions=as_positions(places),
        until_reached=_is_all_read(plan, batches) if plan.request.until_ts else None,
    )


def _is_all_read(plan: PollPlan, batches: list[PolledBatch]) -> bool:
    """Tell whether a member has read its window; one without partitions may still get some."""
    return bool(plan.turns) and not plan.without_ended(batches).turns


def _ended(batches: list[PolledBatch]) -> set[Partition]:
    """Return the partitions that were read to the end of the window."""
    return {Partition(b.topic, b.partition) for b in batches if b.page.until_reached}
