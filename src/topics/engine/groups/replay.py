"""Groups on the log and in snapshots: what a start reads is what was written.

A frame says what is so from here on, so that a replay may meet it twice. `state` is the whole
membership of a group, `commit` some positions with the topic ids they belong to, `delete` the end
of a group and the generation it had: a group of that name begins above it.
Byte reference: docs/internals/formats/wal.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from topics.engine.groups.assign import Assignment, Owners, Partition
from topics.engine.groups.group import Group, Place
from topics.engine.groups.membership import Membership, Subscription, by_topic
from topics.errors import CorruptData, UnknownFormat
from topics.storage.snapshots.snapshot import GroupSnapshot, GroupsSnapshot
from topics.storage.wal import frame

T = TypeVar("T")
Row = tuple[str, int, int, int]
"""Topic, partition, topic id, seq."""


class StateFields(Struct, frozen=True, kw_only=True):
    """The fields of a `state` frame."""

    generation: int
    assignor: str
    members: dict[str, tuple[list[str], int]]
    """Member → topics and session_ms."""
    partitions: dict[str, list[int]]
    owners: dict[str, dict[str, list[int]]]
    """Member → topic → partitions."""
    target: dict[str, dict[str, list[int]]]


class CommitFields(Struct, frozen=True, kw_only=True):
    """The fields of a `commit` frame."""

    positions: list[Row]
    generation: int = 0
    """Of a group that begins with this frame."""


class DeleteFields(Struct, frozen=True, kw_only=True):
    """The fields of a `delete` frame."""

    generation: int = 0


def state_frame(group: Group) -> bytes:
    return _encode(group.name, "state", _save_membership(group.membership))


def commit_frame(group: Group, changed: Mapping[Partition, Place]) -> bytes:
    fields = CommitFields(positions=_rows(changed), generation=group.generation)
    return _encode(group.name, "commit", fields)


def delete_frame(group: Group) -> bytes:
    return _encode(group.name, "delete", DeleteFields(generation=group.generation))


class GroupTable:
    """All groups of one engine, and the generation that a new one starts above."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.floor = 0
        """No deleted group had a higher generation."""
        self.awaiting_sync: Counter[str] = Counter()
        """Per group how many of its frames are on their way."""

    def group(self, name: str) -> Group:
        """Return a group, making it where there is none."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(name)
            group.membership = Membership(generation=self.floor)
        return group

    def apply(self, body: frame.Group) -> None:
        """Take in one frame of the log."""
        if body.event == "state":
            self.group(body.group).change(_load_membership(_fields(body, StateFields)))
        elif body.event == "commit":
            self._apply_commit(body.group, _fields(body, CommitFields))
        elif body.event == "delete":
            self.floor = max(self.floor, _fields(body, DeleteFields).generation)
            self.groups.pop(body.group, None)
        else:
            raise UnknownFormat(
                f"the WAL has a Group frame {body.event!r}, which this version cannot apply: "
                "use a newer topics"
            )

    def _apply_commit(self, name: str, fields: CommitFields) -> None:
        is_new = name not in self.groups
        group = self.group(name)
        if is_new:
            group.change(Membership(generation=fields.generation))
        group.move(_places(fields.positions))

    def save(self) -> GroupsSnapshot:
        return GroupsSnapshot(
            floor=self.floor,
            groups=[
                GroupSnapshot(
                    group.name,
                    msgspec.to_builtins(_save_membership(group.membership)),
                    _rows(group.committed),
                )
                for group in sorted(self.groups.values(), key=lambda group: group.name)
            ],
        )

    def load(self, saved: GroupsSnapshot) -> None:
        self.floor = saved.floor
        for found in saved.groups:
            group = self.group(found.name)
            group.change(_load_membership(msgspec.convert(found.membership, StateFields)))
            group.move(_places(found.committed))


def _fields(body: frame.Group, kind: type[T]) -> T:
    try:
        return msgspec.convert(body.fields, kind)
    except msgspec.ValidationError as error:
        raise CorruptData(
            f"the WAL has a frame {body.event!r} of group {body.group!r} that cannot be read "
            f"({error}): run topics repair"
        ) from None


def _encode(name: str, event: str, fields: Struct) -> bytes:
    return frame.encode_control(frame.Group(name, event, msgspec.to_builtins(fields)))


def _save_membership(membership: Membership) -> StateFields:
    return StateFields(
        generation=membership.generation,
        assignor=membership.assignor,
        members={
            name: (list(member.topics), member.session_ms)
            for name, member in membership.members.items()
        },
        partitions={topic: list(ids) for topic, ids in membership.partitions.items()},
        owners=_by_member(membership.owners),
        target=_by_member(membership.target),
    )


def _load_membership(fields: StateFields) -> Membership:
    return Membership(
        generation=fields.generation,
        assignor=fields.assignor,
        members={
            name: Subscription(tuple(topics), session_ms)
            for name, (topics, session_ms) in fields.members.items()
        },
        partitions={topic: tuple(ids) for topic, ids in fields.partitions.items()},
        owners=_by_partition(fields.owners),
        target=_by_partition(fields.target),
    )


def _by_member(owners: Owners) -> dict[str, dict[str, list[int]]]:
    held: dict[str, list[Partition]] = {}
    for partition, owner in owners.items():
        held.setdefault(owner, []).append(partition)
    return {member: by_topic(held[member]) for member in sorted(held)}


def _by_partition(held: Mapping[str, Mapping[str, Iterable[int]]]) -> Assignment:
    return {
        Partition(topic, number): member
        for member, topics in held.items()
        for topic, numbers in topics.items()
        for number in numbers
    }


def _rows(places: Mapping[Partition, Place]) -> list[Row]:
    return [(p.topic, p.number, place.topic_id, place.seq) for p, place in sorted(places.items())]


def _places(rows: Iterable[Row]) -> dict[Partition, Place]:
    return {Partition(topic, n): Place(topic_id, seq) for topic, n, topic_id, seq in rows}
