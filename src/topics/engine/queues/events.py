"""The frames of a queue on the log: each says what is so from here on."""

from collections.abc import Sequence

from topics.engine.queues.table import TrackedJob
from topics.engine.topics.topic import Topic
from topics.storage.wal import frame


def has_durable_leases(topic: Topic) -> bool:
    return topic.config.leases_durable and topic.config.persists


def has_durable_records(topic: Topic) -> bool:
    """Tell whether a restart may find records, also from before a change to `ephemeral`."""
    return (
        topic.config.persists
        or topic.absorbed_seq > 0
        or any(chunk.durable for chunk in topic.chunks())
    )


def lease_frame(
    topic: Topic, event: str, jobs: Sequence[TrackedJob], *, node: str, deadline: int = 0
) -> bytes:
    body = frame.Lease(
        event=event,
        node=node,
        seqs=[job.seq for job in jobs],
        lease_ids=[job.lease_id for job in jobs],
        deadline=deadline,
        deliveries=[job.deliveries for job in jobs],
    )
    return frame.encode_control(body, topic_id=topic.id)


def ack_frame(topic: Topic, seqs: list[int], *, node: str) -> bytes:
    body = frame.Lease(event="ack", node=node, seqs=seqs, lease_ids=[], deadline=0)
    return frame.encode_control(body, topic_id=topic.id)


def dead_frame(
    topic: Topic, jobs: Sequence[TrackedJob], *, dead_letter: str, first_move: int
) -> bytes:
    """Encode that jobs are on their way, the first of them as move `first_move`."""
    body = frame.Lease(
        event="dead",
        node=dead_letter,
        seqs=[job.seq for job in jobs],
        lease_ids=[],
        deadline=0,
        deliveries=[job.deliveries for job in jobs],
        number=first_move,
    )
    return frame.encode_control(body, topic_id=topic.id)


def dead_done_frame(topic: Topic, seqs: list[int], *, dead_lettered: int) -> bytes:
    """Encode that jobs have left, and how many ever did."""
    body = frame.Lease(
        event="dead_done", node="", seqs=seqs, lease_ids=[], deadline=0, number=dead_lettered
    )
    return frame.encode_control(body, topic_id=topic.id)
