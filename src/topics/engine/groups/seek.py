"""An operator moves the progress of a group that has no members."""

from collections.abc import Mapping

from topics.engine.groups.assign import Partition
from topics.engine.groups.group import Group, Place
from topics.engine.groups.step import Step
from topics.engine.groups.words import partition_topic
from topics.engine.topics.topic import Topic
from topics.errors import GroupNotEmpty, RequestError
from topics.model.groups import Move, SeekRequest, Sought

FirstSeqs = Mapping[int, int]
"""Per topic id the first seq at or after the moment that was named: looked up before the lock."""


def seek(step: Step, request: SeekRequest, first_seqs: FirstSeqs) -> Sought:
    """Say which positions change, and change them unless it is a dry run."""
    group = step.group
    if group.membership.members:
        raise GroupNotEmpty(group.name)
    places = {
        partition: _target(partition_topic(group, partition), request, first_seqs)
        for partition in _partitions(group, request)
    }
    moves = [
        Move(
            topic=partition.topic,
            partition=partition.number,
            before=group.committed_seq(partition),
            to=place.seq,
        )
        for partition, place in sorted(places.items())
        if group.committed.get(partition) != place
    ]
    if not request.dry_run:
        step.move({p: place for p, place in places.items() if group.committed.get(p) != place})
    return Sought(group=group.name, dry_run=request.dry_run, moves=moves)


def _partitions(group: Group, request: SeekRequest) -> list[Partition]:
    if request.topics is None:
        return [p for p in sorted(group.committed) if group.topic_of(p) is not None]
    named: list[Partition] = []
    for topic, numbers in request.topics.items():
        chosen = range(max(1, len(group.seen.get(topic, ())))) if numbers is None else numbers
        named += [Partition(topic, number) for number in chosen]
    return named


def _target(topic: Topic, request: SeekRequest, first_seqs: FirstSeqs) -> Place:
    if request.to == "latest":
        return Place(topic.id, topic.head_seq)
    if request.to == "earliest":
        return Place(topic.id, min(topic.floors.earliest_seq - 1, topic.head_seq))
    assert not isinstance(request.to, str)
    if request.to.ts is not None:
        if topic.id not in first_seqs:
            raise RequestError(f"topic {topic.name!r} has just been created: seek again")
        return Place(topic.id, min(first_seqs[topic.id] - 1, topic.head_seq))
    assert request.to.seq is not None  # the request was checked
    if request.to.seq > topic.head_seq:
        raise RequestError(f"{topic.name!r} ends at {topic.head_seq}, before {request.to.seq}")
    return Place(topic.id, request.to.seq)
