"""A queue through a restart: what a snapshot keeps of it, and what each frame makes of it.

A frame says what is so from there on, and a replay begins before its snapshot: so each is applied
as it stands, however much of it is known already, and the last one of a seq wins.
"""

from collections.abc import Iterator

from topics.engine.queues.events import has_durable_leases
from topics.engine.queues.read import is_live
from topics.engine.queues.table import LeaseTable, Move
from topics.engine.topics.topic import Topic
from topics.errors import UnknownFormat
from topics.storage.snapshots.snapshot import JobSnapshot, MoveSnapshot, QueueSnapshot
from topics.storage.wal import frame

REMOVALS = ("ack", "dead_done")
EVENTS = (*REMOVALS, "dead", "claim", "extend", "nack", "release")


def save_queue(topic: Topic) -> QueueSnapshot | None:
    """Return what a start has to know of a queue; the shard's lock is held."""
    table = topic.queue
    return None if table is None else save_table(table, durable_leases=has_durable_leases(topic))


def save_table(table: LeaseTable, *, durable_leases: bool) -> QueueSnapshot:
    jobs = []
    for job in table.jobs.values() if durable_leases else ():
        if job.state in {"leased", "acking"}:  # an ack that counts is a deleted record
            jobs.append(JobSnapshot(job.seq, job.node, job.lease_id, job.until, job.deliveries))
        elif job.state != "moving":
            jobs.append(JobSnapshot(job.seq, "", "", job.until, job.deliveries))
    return QueueSnapshot(
        fresh_seq=table.fresh_seq if durable_leases else 1,
        next_move=table.next_move,
        dead_lettered=table.dead_lettered,
        jobs=jobs,
        moves=[
            MoveSnapshot(number, move.seq, move.dead_letter, move.deliveries)
            for number, move in sorted(table.moves.items())
            if move.logged
        ],
    )


def load_table(table: LeaseTable, saved: QueueSnapshot) -> None:
    table.fresh_seq = saved.fresh_seq
    table.next_move = saved.next_move
    table.dead_lettered = saved.dead_lettered
    for saved_job in saved.jobs:
        _set_job(table, *_fields_of(saved_job))
    for move in saved.moves:
        table.moves[move.number] = Move(move.seq, move.dead_letter, move.deliveries, logged=True)


def apply_lease(table: LeaseTable, body: frame.Lease) -> list[int]:
    """Take in one event of the log; return the seqs that are deleted from here on."""
    match body.event:
        case "ack":
            table.forget(body.seqs)
            return body.seqs
        case "dead_done":
            _apply_dead_done(table, body)
            return body.seqs
        case "dead":
            _apply_dead(table, body)
        case "claim" | "extend":
            table.fresh_seq = max([table.fresh_seq, *(seq + 1 for seq in body.seqs)])
            for seq, lease_id, deliveries in _each(body):
                _set_job(table, seq, body.node, lease_id, body.deadline, deliveries)
        case "nack" | "release":
            _drop_moves(table, body)
            for seq, _, deliveries in _each(body):
                _set_job(table, seq, "", "", body.deadline, deliveries)
        case _:
            raise UnknownFormat(
                f"the WAL has a lease event {body.event!r}, which this version cannot apply: "
                "use a newer topics"
            )
    return []


def settle_queue(topic: Topic) -> None:
    """Bring the table in line with the records, once all of them are known."""
    table = topic.queue
    if table is None:
        return
    if not has_durable_leases(topic):
        table.forget(list(table.jobs))
        table.fresh_seq = 1
    table.forget([seq for seq in table.jobs if not is_live(topic, seq)])
    for move in table.moves.values():
        if is_live(topic, move.seq):
            table.begin_move(table.track(move.seq))
    # A job whose claim was never on the log, because leases were not durable yet, is ready again.
    if topic.floors.earliest_seq >= table.fresh_seq:
        return
    seq = topic.first_live_from(topic.floors.earliest_seq)
    while seq < table.fresh_seq and seq <= topic.head_seq:
        if seq not in table.jobs:
            table.give_back(table.track(seq))
        seq = topic.first_live_from(seq + 1)


def _apply_dead(table: LeaseTable, body: frame.Lease) -> None:
    for i, (seq, deliveries) in enumerate(zip(body.seqs, body.deliveries, strict=True)):
        table.moves[body.number + i] = Move(seq, body.node, deliveries, logged=True)
    table.next_move = max(table.next_move, body.number + len(body.seqs))


def _apply_dead_done(table: LeaseTable, body: frame.Lease) -> None:
    _drop_moves(table, body)
    table.forget(body.seqs)
    table.dead_lettered = max(table.dead_lettered, body.number)


def _drop_moves(table: LeaseTable, body: frame.Lease) -> None:
    """End the moves of jobs: done, or given up where the job is ready again."""
    if table.moves:
        gone = set(body.seqs)
        table.moves = {n: move for n, move in table.moves.items() if move.seq not in gone}


def _each(body: frame.Lease) -> Iterator[tuple[int, str, int]]:
    return zip(body.seqs, body.lease_ids, body.deliveries, strict=True)


def _fields_of(job: JobSnapshot) -> tuple[int, str, str, int, int]:
    return job.seq, job.node, job.lease_id, job.until, job.deliveries


def _set_job(
    table: LeaseTable, seq: int, node: str, lease_id: str, until: int, deliveries: int
) -> None:
    """Put a job where an event says it is: leased, or ready from a time on."""
    job = table.track(seq)
    if lease_id:
        table.lease(job, node=node, lease_id=lease_id, deadline=until, deliveries=deliveries)
    else:
        job.deliveries = deliveries
        table.give_back(job, ready_at=until)
