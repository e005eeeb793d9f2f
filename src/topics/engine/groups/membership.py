"""Who is in a group and who owns what: a value, and every step from one to the next.

    rebalanced: members, their topics, or partitions have changed → target → orphans move at once
    released:   an owner gives up what is another's → it moves

Keeps: a partition that has an owner who may keep it stays with that owner until it is released,
whatever the target says; every step has a new generation, so that a generation has one owner map.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from topics.engine.groups.assign import Assignment, Owners, Partition, assign
from topics.model.groups import Assigned

GroupCondition = Literal["empty", "stable", "moving"]


class Subscription(Struct, frozen=True):
    """What one member wants, and how long it may be silent."""

    topics: tuple[str, ...]
    session_ms: int


class Membership(Struct, frozen=True, kw_only=True):
    """The whole membership of a group at one generation."""

    generation: int = 0
    assignor: str = "sticky"
    members: Mapping[str, Subscription] = {}
    partitions: Mapping[str, tuple[int, ...]] = {}
    """Per subscribed topic the ids of its partitions: other ids are another life of it."""
    owners: Owners = {}
    target: Owners = {}

    @property
    def topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in member.topics}

    @property
    def condition(self) -> GroupCondition:
        if not self.members:
            return "empty"
        return "stable" if self.owners == self.target else "moving"


def rebalanced(
    now: Membership,
    *,
    members: Mapping[str, Subscription],
    partitions: Mapping[str, tuple[int, ...]],
    assignor: str | None = None,
) -> Membership:
    """Return the next membership: what lost its owner goes to its target at once."""
    chosen = assignor or now.assignor
    owners: Assignment = {
        partition: owner
        for partition, owner in now.owners.items()
        if owner in members
        and partition.topic in members[owner].topics
        and partition.number < len(partitions.get(partition.topic, ()))
    }
    target = assign(
        chosen,
        {name: member.topics for name, member in members.items()},
        {topic: len(ids) for topic, ids in partitions.items()},
        owners,
    )
    return Membership(
        generation=now.generation + 1,
        assignor=chosen,
        members=members,
        partitions=partitions,
        owners={**target, **owners},
        target=target,
    )


def released(now: Membership, member: str, given_up: Iterable[Partition]) -> Membership:
    """Return the next membership, or the same one where nothing of it was to be given up."""
    moving = {p for p in given_up if now.owners.get(p) == member and now.target.get(p) != member}
    if not moving:
        return now
    owners = {**now.owners, **{partition: now.target[partition] for partition in moving}}
    return replace(now, generation=now.generation + 1, owners=owners)


def by_topic(partitions: Iterable[Partition]) -> Assigned:
    """Write partitions as the wire has them."""
    shown: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        shown[topic].append(number)
    return dict(shown)
