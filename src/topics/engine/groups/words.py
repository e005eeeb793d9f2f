"""What members say: join, heartbeat, leave, commit; on a settled group, under the lock."""

from collections.abc import Mapping

from msgspec.structs import replace

from topics.engine.groups.assign import Partition
from topics.engine.groups.group import Group, Place
from topics.engine.groups.membership import (
    Membership,
    Subscription,
    by_topic,
    rebalanced,
    released,
)
from topics.engine.groups.step import Step
from topics.engine.topics.topic import Topic
from topics.errors import (
    GenerationMismatch,
    LimitReached,
    RequestError,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.limits import MAX_GROUP_PARTITIONS
from topics.model.groups import (
    CommitRequest,
    Committed,
    Heartbeat,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    LeaveRequest,
    Left,
    Positions,
    WirePositions,
)

HEARTBEATS_A_SESSION = 3


def join(step: Step, request: JoinRequest, *, max_members: int) -> Joined:
    """Let a member in, or in again: it goes on at what is committed."""
    group, member = step.group, request.member
    _check_join(group, request, max_members=max_members)
    now = group.membership
    wanted = Subscription(tuple(sorted(set(request.topics))), request.session_ms)
    if now.members.get(member) != wanted:
        step.change(_with_member(group, now, member, wanted, assignor=request.assignor))
    group.sessions.pop(member, None)
    group.renew(member, step.now_s)
    return Joined(
        generation=group.generation,
        assigned=by_topic(group.owned_by(member)),
        committed=group.positions(group.owned_by(member)),
        heartbeat_ms=_heartbeat_ms(group, member),
    )


def _check_join(group: Group, request: JoinRequest, *, max_members: int) -> None:
    now = group.membership
    if now.members and request.assignor != now.assignor:
        raise TopicExistsIncompatible(
            f"group {group.name!r} assigns by {now.assignor!r} while it has members, "
            f"not by {request.assignor!r}"
        )
    if request.member not in now.members and max_members and len(now.members) >= max_members:
        raise LimitReached("max_group_members", max_members)
    topics = {*now.partitions, *request.topics}
    if sum(len(group.seen.get(topic, ())) for topic in topics) > MAX_GROUP_PARTITIONS:
        raise RequestError(f"the topics of a group may have {MAX_GROUP_PARTITIONS} partitions")


def _with_member(
    group: Group, now: Membership, member: str, wanted: Subscription, *, assignor: str
) -> Membership:
    members = {**now.members, member: wanted}
    known = now.members.get(member)
    if known is not None and known.topics == wanted.topics:
        return replace(now, members=members)
    return rebalanced(now, members=members, partitions=ids_of(group, members), assignor=assignor)


def ids_of(group: Group, members: Mapping[str, Subscription]) -> dict[str, tuple[int, ...]]:
    """Return the ids of the partitions of every topic that somebody subscribes to."""
    topics = sorted({topic for member in members.values() for topic in member.topics})
    return {name: tuple([topic.id for topic in group.seen.get(name, ())]) for name in topics}


def heartbeat(step: Step, request: HeartbeatRequest) -> Heartbeat:
    """Keep a member alive, move what it has given up, tell it what it has."""
    group, member = _alive(step, request.member)
    given_up = [
        Partition(topic, number)
        for topic, numbers in (request.released or {}).items()
        for number in numbers
        # A late one, from before the member had it again, would take away what it works on.
        if request.generation >= group.owned_since(Partition(topic, number))
    ]
    membership = released(group.membership, member, given_up)
    if membership is not group.membership:
        step.change(membership)
    return Heartbeat(
        generation=group.generation,
        assigned=by_topic(group.kept_by(member)),
        release=by_topic(group.leaving(member)),
        committed=group.positions(group.owned_by(member)),
        heartbeat_ms=_heartbeat_ms(group, member),
    )


def leave(step: Step, request: LeaveRequest) -> Left:
    """Let a member go; what it had goes to the others at once."""
    group = step.found
    if group is None or request.member not in group.membership.members:
        return Left(left=False)
    step.change(without(group, {request.member}))
    return Left(left=True)


def without(group: Group, gone: set[str]) -> Membership:
    """Return the membership of a group that has lost members."""
    members = {n: m for n, m in group.membership.members.items() if n not in gone}
    return rebalanced(group.membership, members=members, partitions=ids_of(group, members))


def commit(step: Step, request: CommitRequest) -> Committed:
    """Move positions on; those of an operator move anywhere."""
    if request.member is None:
        _check_unattended(step.group)
        places = _places(step.group, request.offsets)
    else:
        assert request.generation is not None  # the request was checked
        group = check_current(step, request.member, request.generation)
        _check_owned(group, request.member, request.offsets)
        places = _advances(group, request.member, _places(group, request.offsets))
    step.move({p: place for p, place in places.items() if step.group.committed.get(p) != place})
    named = [Partition(topic, n) for topic, by_n in request.offsets.items() for n in by_n]
    return Committed(
        generation=step.group.generation, committed=step.group.positions(sorted(named))
    )


def check_current(step: Step, member: str, generation: int) -> Group:
    """Return the group if this member knows who owns what, and keep it alive."""
    group, _ = _alive(step, member)
    if generation != group.generation:
        raise GenerationMismatch(
            f"group {group.name!r} is at generation {group.generation}, not {generation}: "
            "send a heartbeat",
            group.generation,
        )
    return group


def _alive(step: Step, member: str) -> tuple[Group, str]:
    group = step.found
    if group is None or member not in group.membership.members:
        raise GenerationMismatch(
            f"{member!r} is no member of group {step.name!r}: join again",
            group.generation if group else 0,
        )
    group.renew(member, step.now_s)
    return group, member


def _check_unattended(group: Group) -> None:
    if group.membership.members:
        raise GenerationMismatch(
            f"group {group.name!r} has members: only they commit", group.generation
        )


def _check_owned(group: Group, member: str, offsets: WirePositions) -> None:
    owners = group.membership.owners
    for topic, by_number in offsets.items():
        for number in by_number:
            if owners.get(Partition(topic, number)) != member:
                raise GenerationMismatch(
                    f"{member!r} does not own partition {number} of {topic!r}", group.generation
                )


def _places(group: Group, offsets: WirePositions) -> dict[Partition, Place]:
    """Return where the positions are, or why one of them is nowhere."""
    places: dict[Partition, Place] = {}
    for name, by_number in offsets.items():
        for number, seq in by_number.items():
            topic = partition_topic(group, Partition(name, number))
            if seq > topic.head_seq:
                raise RequestError(
                    f"{name!r} partition {number} ends at {topic.head_seq}: "
                    f"{seq} cannot be committed"
                )
            places[Partition(name, number)] = Place(topic.id, seq)
    return places


def partition_topic(group: Group, partition: Partition) -> Topic:
    """Return the topic that a partition is, or why there is none."""
    topics = group.seen.get(partition.topic)
    if not topics:
        raise TopicNotFound(partition.topic)
    if partition.number >= len(topics):
        raise RequestError(
            f"topic {partition.topic!r} has {len(topics)} partitions: "
            f"there is no partition {partition.number}"
        )
    return topics[partition.number]


def _advances(
    group: Group, member: str, places: Mapping[Partition, Place]
) -> dict[Partition, Place]:
    """Drop what would go back, and what was read in an earlier life of its topic."""
    reading = group.sessions[member].reading
    kept: dict[Partition, Place] = {}
    for partition, place in places.items():
        committed, read = group.committed.get(partition), reading.get(partition)
        goes_back = (
            committed and committed.topic_id == place.topic_id and committed.seq >= place.seq
        )
        if not goes_back and (read is None or read.topic_id == place.topic_id):
            kept[partition] = place
    return kept


def _heartbeat_ms(group: Group, member: str) -> int:
    return group.membership.members[member].session_ms // HEARTBEATS_A_SESSION


def as_positions(places: Mapping[Partition, Place]) -> Positions:
    """Write places as the wire has them."""
    shown: Positions = {}
    for partition, place in sorted(places.items()):
        shown.setdefault(partition.topic, {})[partition.number] = place.seq
    return shown
