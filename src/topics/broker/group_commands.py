"""`JOIN`, `SYNC`, `HEARTBEAT`, `LEAVE`, `COMMIT`, `OFFSET`: the groups of the log, line by line.

A line client works on what its last JOIN or SYNC said and on nothing else. So these two give up at
once what the group wants back, and a HEARTBEAT never changes what somebody works on: it says
GENERATION_MISMATCH, and the client asks again by SYNC.
"""

import asyncio

from topics.broker.arguments import (
    Commit,
    Member,
    parse_assignor,
    parse_commit,
    parse_join,
    parse_member,
    parse_progress,
)
from topics.broker.desk import CONSUME, READ, Caller, Desk, authorize
from topics.errors import GenerationMismatch, GroupNotFound, TopicNotFound
from topics.limits import check_group_name
from topics.model.groups import GroupMember, GroupState

SESSION_MS = 10_000
"""A line cannot say how long its sender may be silent."""
_RELEASES = 4
"""A group that moves on while a client gives up comes to rest within so many steps, or later."""
_NOT_JOINED = "no such member of this group and topic: JOIN"


async def join(desk: Desk, caller: Caller, args: str) -> str:
    """Come, or come again; a consumer that joins a second topic keeps the first."""
    wanted = parse_join(args)
    _authorize(desk, caller, wanted.group, wanted.topic)
    group, consumer = wanted.group, wanted.consumer
    member = await _find_member(desk, group, consumer)
    joined = await desk.log.join(
        group,
        member=consumer,
        topics=sorted({wanted.topic, *(member.topics if member else ())}),
        session_ms=SESSION_MS,
        assignor=wanted.assignor,
    )
    return await _take_up(desk, Member(group, wanted.topic, consumer, joined.generation))


async def sync(desk: Desk, caller: Caller, args: str) -> str:
    """Learn the assignment, from whatever generation on."""
    wanted = parse_member(args, "SYNC")
    _authorize(desk, caller, wanted.group, wanted.topic)
    await _member_of(desk, wanted)
    return await _take_up(desk, wanted)


async def heartbeat(desk: Desk, caller: Caller, args: str) -> str:
    wanted = parse_member(args, "HEARTBEAT")
    _authorize(desk, caller, wanted.group, wanted.topic)
    await _member_of(desk, wanted)
    found = await desk.log.heartbeat(
        wanted.group, member=wanted.consumer, generation=wanted.generation
    )
    if found.generation != wanted.generation or found.release:
        raise GenerationMismatch(_mismatch(found.generation), found.generation)
    return "heartbeat=ok"


async def leave(desk: Desk, caller: Caller, args: str) -> str:
    """Go from one topic; a consumer that has joined others stays for them."""
    wanted = parse_member(args, "LEAVE")
    _authorize(desk, caller, wanted.group, wanted.topic)
    state, member = await _member_of(desk, wanted)
    if state.generation != wanted.generation:
        raise GenerationMismatch(_mismatch(state.generation), state.generation)
    others = [topic for topic in member.topics if topic != wanted.topic]
    if others:
        joined = await desk.log.join(
            wanted.group,
            member=wanted.consumer,
            topics=others,
            session_ms=member.session_ms,
            assignor=parse_assignor(state.assignor),
        )
        await _take_up(desk, Member(wanted.group, wanted.topic, wanted.consumer, joined.generation))
    else:
        await desk.log.leave(wanted.group, member=wanted.consumer)
    return "left=true"


def commit(desk: Desk, caller: Caller, args: str) -> asyncio.Future[str]:
    """Commit beside the commits that come behind it: they share a sync."""
    wanted = parse_commit(args)
    _authorize(desk, caller, wanted.group, wanted.topic)
    desk.partition(wanted.topic, wanted.partition)
    return asyncio.get_running_loop().create_task(_commit(desk, wanted))


async def _commit(desk: Desk, wanted: Commit) -> str:
    await desk.log.commit(
        wanted.group,
        {wanted.topic: {wanted.partition: wanted.offset}},
        member=wanted.consumer,
        generation=wanted.generation,
    )
    return "committed=true"


async def offset(desk: Desk, caller: Caller, args: str) -> str:
    wanted = parse_progress(args)
    _authorize(desk, caller, wanted.group, wanted.topic, scopes=READ)
    try:
        desk.partition(wanted.topic, wanted.partition)
        state = await desk.log.group_state(wanted.group)
    except (TopicNotFound, GroupNotFound):
        return "offset=0"  # nothing was committed where nothing is
    for found in state.partitions:
        if (found.topic, found.partition) == (wanted.topic, wanted.partition):
            return f"offset={found.committed or 0}"
    return "offset=0"


def _authorize(
    desk: Desk, caller: Caller, group: str, topic: str, *, scopes: frozenset[str] = CONSUME
) -> None:
    """Refuse a key that may not see the group and every topic that it has to do with."""
    check_group_name(group)
    authorize(caller, scopes, topic)
    for name in (group, *desk.engine.groups.topics_of(group)):
        caller.check_name(name)


async def _take_up(desk: Desk, wanted: Member) -> str:
    """Give up what the group wants back, and tell what is left."""
    found = await desk.log.heartbeat(
        wanted.group, member=wanted.consumer, generation=wanted.generation
    )
    for _ in range(_RELEASES):
        if not found.release:
            break
        found = await desk.log.heartbeat(
            wanted.group,
            member=wanted.consumer,
            generation=found.generation,
            released=found.release,
        )
    numbers = " ".join(map(str, found.assigned.get(wanted.topic, ())))
    return f"generation={found.generation} assigned=[{numbers}]"


async def _find_member(desk: Desk, group: str, consumer: str) -> GroupMember | None:
    try:
        state = await desk.log.group_state(group)
    except GroupNotFound:
        return None
    return next((member for member in state.members if member.member == consumer), None)


async def _member_of(desk: Desk, wanted: Member) -> tuple[GroupState, GroupMember]:
    """Return the group and the member; whoever has not joined the topic is told to."""
    try:
        state = await desk.log.group_state(wanted.group)
    except GroupNotFound:
        raise GenerationMismatch(_NOT_JOINED, 0) from None
    for member in state.members:
        if member.member == wanted.consumer and wanted.topic in member.topics:
            return state, member
    raise GenerationMismatch(_NOT_JOINED, state.generation)


def _mismatch(generation: int) -> str:
    return f"the generation is {generation}: SYNC or JOIN"
