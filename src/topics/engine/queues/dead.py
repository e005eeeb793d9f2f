"""Two steps of a dead letter in its queue: set aside, and gone. The copy between them is next door.

    claim → `dead` on the log, synced → copy to the dead-letter topic, synced → `dead_done`: deleted

Keeps: a job that was set aside is neither ready nor in flight until it is gone.
"""

from collections.abc import Sequence

from topics.engine.queues.events import (
    dead_done_frame,
    dead_frame,
    has_durable_records,
    lease_frame,
)
from topics.engine.queues.removal import Removal
from topics.engine.queues.table import LeaseTable, Move, TrackedJob
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.storage.wal.group_commit import Ticket


def submit_dead(
    shard: Shard, topic: Topic, table: LeaseTable, jobs: Sequence[TrackedJob]
) -> Ticket:
    """Set jobs aside. Synced whatever the class: a number that was used must not be used again."""
    dead_letter = topic.config.dead_letter
    assert dead_letter is not None
    first_move = table.next_move
    table.next_move += len(jobs)
    logged = topic.config.persists
    moves = {
        first_move + i: Move(job.seq, dead_letter, job.deliveries, logged)
        for i, job in enumerate(jobs)
    }
    for job in jobs:
        table.begin_move(job)
    table.unsynced_moves += len(moves)
    shard.moves_due.add(topic)

    def publish() -> None:
        table.unsynced_moves -= len(moves)
        table.moves.update(moves)

    def abort() -> None:
        table.unsynced_moves -= len(moves)
        for job in jobs:
            if job.state == "moving" and table.has(job):
                table.give_back(job)

    frames = []
    if logged:
        frames = [dead_frame(topic, jobs, dead_letter=dead_letter, first_move=first_move)]
    ticket = Ticket(frames, frames=len(frames), needs_sync=logged, publish=publish, abort=abort)
    shard.commit.submit(ticket)
    return ticket


def submit_drop(
    shard: Shard, topic: Topic, table: LeaseTable, *, number: int, move: Move
) -> Ticket:
    """End a move that can never be made: the job is ready again, with its deliveries.

    Synced like the move: where it came back after a later one, it would be taken for a repeat.
    """
    job = TrackedJob(move.seq)
    job.deliveries = move.deliveries

    def publish() -> None:
        table.moves.pop(number, None)
        tracked = table.jobs.get(move.seq)
        if tracked is not None and tracked.state == "moving":
            tracked.deliveries = move.deliveries
            table.give_back(tracked)  # tells nobody: the next claim only sets it aside again

    frames = [lease_frame(topic, "release", [job], node="", deadline=0)] if move.logged else []
    ticket = Ticket(frames, frames=len(frames), needs_sync=move.logged, publish=publish)
    shard.commit.submit(ticket)
    return ticket


class DeadDone(Removal):
    """Moves that are over: the jobs leave the queue."""

    __slots__ = ("_dead_lettered", "_numbers", "_table")

    def __init__(
        self, shard: Shard, topic: Topic, table: LeaseTable, *, numbers: list[int], moved: int
    ) -> None:
        seqs = sorted(table.moves[number].seq for number in numbers)
        self._table = table
        self._numbers = numbers
        self._dead_lettered = table.dead_lettered + moved
        frames = []
        if has_durable_records(topic):
            frames = [dead_done_frame(topic, seqs, dead_lettered=self._dead_lettered)]
        super().__init__(shard, topic, seqs, frames=frames, waiter=None)

    def publish(self) -> None:
        super().publish()
        self._table.dead_lettered = self._dead_lettered
        for number in self._numbers:
            self._table.moves.pop(number, None)
