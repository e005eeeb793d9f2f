"""Writes to a partitioned topic: where each record goes, and one answer for all of it.

    keys → hashes (kernel) → places → one batch a partition → `submit_append`, each by itself
    → when all are done: one answer, or what went well and why the rest did not

Keeps: a key is always in the same partition while their number stays; a repeat of a write finds
the partitions of the first one, also after they grew. Atomic a partition, not across them.
Reference: docs/reference/partitions.md.
"""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct

import msgspec

from topics.clock import Clock
from topics.engine.append import Append, Repeat, submit_append
from topics.engine.request import Write
from topics.engine.shard import Shard
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import PartlyWritten, ShardReadOnly, Throttled, TopicsError
from topics.kernel import Batch, fnv1a_32, format_places, place_batch, split_batch
from topics.model.append import Appended, WriteOptions
from topics.model.partitions import PartitionState, Placement
from topics.model.topics import TopicState
from topics.storage.wal.group_commit import Commitment, Waiter

PLACE = Struct("<H")
UNSPLIT = Batch(bytearray(), bytearray(), 0, 0, {})


class Part:
    """What one partition gets of a write, and what became of it."""

    __slots__ = (
        "batch", "count", "deduped", "error", "first_seq", "shard", "spread", "ticket", "topic",
    )  # fmt: skip

    def __init__(
        self, spread: "Spread", topic: Topic, shard: Shard, batch: Batch = UNSPLIT
    ) -> None:
        self.spread = spread
        self.topic = topic
        self.shard = shard
        self.batch = batch
        """Of a part that was gathered, empty until it has to be tried by itself."""
        self.ticket: Append | Repeat | None = None
        self.error: TopicsError | None = None
        self.first_seq = 0
        self.count = 0
        self.deduped = False

    def take(self, ticket: Commitment) -> None:
        """Take over what a ticket of this part alone has come to."""
        self.error, self.ticket = ticket.error, None
        appended = ticket.answer
        if self.error is None and isinstance(appended, Appended):
            self.settle(appended.first_seq, appended.count, deduped=appended.deduped)

    def settle(self, first_seq: int, count: int, *, deduped: bool = False) -> None:
        self.first_seq, self.count, self.deduped = first_seq, count, deduped

    @property
    def placement(self) -> Placement:
        return Placement(
            partition=self.topic.partition,
            topic=self.topic.name,
            first_seq=self.first_seq,
            last_seq=self.first_seq + self.count - 1 if self.count else 0,
            count=self.count,
        )


class Spread:
    """One write, dealt to partitions."""

    __slots__ = ("left", "on_done", "options", "parent", "parts", "places")

    def __init__(self, parent: Partitioned, options: WriteOptions, places: bytes) -> None:
        self.parent = parent
        self.options = options
        """What each partition is told: the key of a repeat names the number of partitions, too."""
        self.places = places
        self.parts: list[Part] = []
        self.left = 0
        """Parts under way."""
        self.on_done: Callable[[Spread], None] = _ignore

    def finish_one(self) -> None:
        self.left -= 1
        if not self.left:
            self.on_done(self)

    def end(self) -> None:
        """Let go of the parts, which hold the spread: else only the garbage collector ends both."""
        self.parts = []

    @property
    def throttled(self) -> list[Part]:
        """Return the parts that found no room, of a write that may be tried once more."""
        return [part for part in self.parts if isinstance(part.error, Throttled)]

    @property
    def deduped(self) -> bool:
        return all(part.deduped for part in self.parts)

    @property
    def count(self) -> int:
        return sum([part.count for part in self.parts])

    def check(self) -> None:
        """Raise what went wrong, with what went well."""
        failed = [part for part in self.parts if part.error is not None]
        if not failed:
            return
        cause = failed[0].error
        assert cause is not None
        written = [part.placement for part in self.parts if part.error is None]
        if not written:
            raise cause
        raise PartlyWritten(
            cause,
            [msgspec.structs.asdict(placement) for placement in written],
            [part.topic.partition for part in failed],
            msgspec.json.decode(self.format_seqs(), type=list[tuple[int, int]]),
        ) from cause

    def format_seqs(self) -> bytes:
        """Return partition and seq of each record as JSON, in the order of the request."""
        parts = self.parts
        first_seqs = {part.topic.partition: part.first_seq for part in parts}
        return format_places(
            self.places, first_seqs, {part.topic.partition: part.count for part in parts}
        )

    def answer(self) -> Appended:
        self.check()
        return Appended(
            topic=self.parent.name,
            first_seq=0,
            last_seq=0,
            head_seq=0,
            count=self.count,
            deduped=self.deduped,
            placements=tuple(part.placement for part in self.parts),
            places=self.places,
        )


def plan_spread(
    parent: Partitioned, write: Write, *, shard_of: Callable[[Topic], Shard], clock: Clock
) -> Spread:
    """Decide where the records of a write go; a repeat goes where the first one went."""
    partitions = parent.partitions
    if not partitions:
        raise ShardReadOnly(
            f"the partitions of topic {parent.name!r} could not be made: create it again, or "
            "restart when the disk is well"
        )
    count, options = len(partitions), write.options
    hashes = write.batch.hashes
    if options.repeatable:
        anchor = fnv1a_32(_name_of(options).encode())
        if len(parent.counts) > 1:
            count = _count_of_first(parent, partitions, write, shard_of=shard_of, clock=clock)
        options = _options_for(options, count)
        spare = anchor % count
    else:
        spare = parent.next_turn() % count
    places = place_batch(hashes, partitions=count, spare=spare)
    spread = Spread(parent, options, places)
    one = places[: PLACE.size]
    if places == one * write.batch.count:
        parts = [(PLACE.unpack(one)[0], write.batch)]  # nothing to copy
    else:
        parts = split_batch(write.batch, places)
    for place, batch in parts:
        topic = partitions[place]
        spread.parts.append(Part(spread, topic, shard_of(topic), batch))
    return spread


def submit_parts(
    parts: Iterable[Part], *, clock: Clock, waiter_of: Callable[[Topic], Waiter | None]
) -> None:
    """Queue parts, each by itself; one that is refused keeps no other from being written."""
    by_shard: dict[Shard, list[Part]] = {}
    for part in parts:
        by_shard.setdefault(part.shard, []).append(part)
    for shard, here in by_shard.items():
        with shard.lock:
            for part in here:
                part.error = part.ticket = None
                try:
                    part.ticket = submit_append(
                        shard,
                        part.topic,
                        part.batch,
                        part.spread.options,
                        clock=clock,
                        waiter=waiter_of(part.topic),
                    )
                except TopicsError as error:
                    part.error = error


def parent_state(parent: Partitioned, states: Sequence[TopicState]) -> TopicState:
    """Return the sums; a parent has no seqs of its own, so its floors are 0."""
    head_seq = sum(state.head_seq for state in states)
    return TopicState(
        topic=parent.name,
        type=parent.config.type,
        epoch=parent.id,
        head_seq=head_seq,
        earliest_seq=0,
        evict_floor=0,
        next_seq=head_seq + 1,
        count=sum(state.count for state in states),
        bytes=sum(state.bytes for state in states),
        config=parent.config,
        last_write_ts=max((state.last_write_ts or 0 for state in states), default=0) or None,
        last_read_ts=max((state.last_read_ts or 0 for state in states), default=0) or None,
        segments=sum(state.segments for state in states),
        cold_segments=sum(state.cold_segments for state in states),
        partitions=[
            PartitionState(
                partition=number,
                topic=state.topic,
                head_seq=state.head_seq,
                earliest_seq=state.earliest_seq,
                count=state.count,
                bytes=state.bytes,
            )
            for number, state in enumerate(states)
        ],
    )


def find_holders(
    parent: Partitioned, options: WriteOptions, *, shard_of: Callable[[Topic], Shard]
) -> list[Topic]:
    """Return the partitions that know a write of a producer of the server, or a later one."""
    found: list[Topic] = []
    for count in parent.counts:
        placed = _options_for(options, count)
        for topic in parent.partitions[:count]:
            with shard_of(topic).lock:
                if topic.idempotency.find(placed, now_ms=0, config=topic.config) is not None:
                    found.append(topic)
    return found


def _name_of(options: WriteOptions) -> str:
    """Return what all repeats of a write have in common."""
    return options.idempotency_key or f"{options.producer_id}:{options.producer_seq}"


def _options_for(options: WriteOptions, count: int) -> WriteOptions:
    """Name the number of partitions in what they remember: a repeat is placed by the same one."""
    key, producer_id = options.idempotency_key, options.producer_id
    return WriteOptions(
        idempotency_key=None if key is None else f"{key}\0{count}",
        producer_id=None if producer_id is None else f"{producer_id}\0{count}",
        producer_seq=options.producer_seq,
        create=options.create,
    )


def _count_of_first(
    parent: Partitioned,
    partitions: tuple[Topic, ...],
    write: Write,
    *,
    shard_of: Callable[[Topic], Shard],
    clock: Clock,
) -> int:
    """Return the number of partitions that the first try of a write was placed by.

    One that knows its seqs decides. Of a producer older writes are known to have been, without
    their seqs: its numbers grow, so that the oldest count which is past them is the one.
    """
    stale = 0
    anchor = fnv1a_32(_name_of(write.options).encode())
    for count in reversed([count for count in parent.counts if count <= len(partitions)]):
        options = _options_for(write.options, count)
        places = place_batch(write.batch.hashes, partitions=count, spare=anchor % count)
        for (place,) in set(PLACE.iter_unpack(places)):
            topic = partitions[place]
            with shard_of(topic).lock:
                found = topic.idempotency.find(
                    options,
                    now_ms=clock.now_ms(),
                    config=topic.config,
                )
            if found is not None and found.count:
                return count
            stale = count if found is not None else stale
    return stale or len(partitions)


def _ignore(spread: Spread) -> None:
    """Tell nobody."""
