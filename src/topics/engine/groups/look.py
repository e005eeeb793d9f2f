"""What a group shows of itself; the lock is held."""

from topics.engine.groups.assign import Partition
from topics.engine.groups.group import Group
from topics.engine.groups.membership import by_topic
from topics.engine.groups.step import Step
from topics.model.groups import GroupMember, GroupPartition, GroupState, ListedGroup


def look(step: Step) -> GroupState:
    """Return a settled group with its members and its progress."""
    group, now = step.group, step.group.membership
    partitions = partitions_of(group)
    return GroupState(
        group=group.name,
        generation=now.generation,
        assignor=now.assignor,
        state=now.condition,
        members=[
            GroupMember(
                member=name,
                topics=list(member.topics),
                session_ms=member.session_ms,
                expires_in_ms=max(
                    0, round((group.session(name, step.now_s).ends_s - step.now_s) * 1000)
                ),
                assigned=by_topic(group.kept_by(name)),
                release=by_topic(group.leaving(name)),
            )
            for name, member in sorted(now.members.items())
        ],
        partitions=partitions,
        lag_total=sum(partition.lag for partition in partitions),
    )


def list_one(group: Group) -> ListedGroup:
    return ListedGroup(
        group=group.name,
        generation=group.generation,
        state=group.membership.condition,
        members=len(group.membership.members),
        topics=sorted(group.topics),
    )


def partitions_of(group: Group) -> list[GroupPartition]:
    """Return how far a group has come in everything it has to do with."""
    subscribed = {
        Partition(topic, number)
        for topic in group.membership.partitions
        for number in range(len(group.seen.get(topic, ())))
    }
    shown = []
    for partition in sorted(subscribed | set(group.committed)):
        topic = group.topic_of(partition)
        if topic is None:
            continue  # it is gone, and its progress with it
        committed, head_seq = group.committed_seq(partition), topic.head_seq
        start = topic.floors.earliest_seq - 1 if committed is None else committed
        shown.append(
            GroupPartition(
                topic=partition.topic,
                partition=partition.number,
                owner=group.membership.owners.get(partition),
                committed=committed,
                head_seq=head_seq,
                lag=max(0, head_seq - start),
            )
        )
    return shown
