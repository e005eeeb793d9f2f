"""One topic in memory: where its records are, what is live, what comes next.

Owns the runs (segments, then chunks), the floors and the sums of one topic. Everything that
changes it happens under the lock of the topic's shard; readers take no lock: they read `head_seq`
first, then `floors`, `holes` and `runs`, each replaced whole.
Keeps: `evict_floor <= earliest_seq <= head_seq + 1`; `live_records` and `live_bytes` are exact.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from topics.engine.queues.table import LeaseTable
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.floors import Floors, Hole, with_hole
from topics.engine.topics.idempotency import Idempotency
from topics.engine.topics.retention import fits, plan_cap, ttl_cutoff
from topics.kernel import IDX_ENTRY_BYTES, Batch, bisect_ts, count_live, evict_prefix, first_live
from topics.model.topic_config import TopicConfig
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import Segment
from topics.storage.segments.tag_runs import TagRuns

if TYPE_CHECKING:
    from topics.engine.pins import Pin
    from topics.engine.routers.link import Link
    from topics.engine.topics.partitioned import Partitioned

Run = Segment | Chunk
FIRST_LOOKAHEAD = 1024


class Topic:
    """The state of one topic."""

    # There may be very many topics: measured, a dict for each takes three times the room.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "absorbed_seq",
        "awaiting_sync",
        "cold_strays",
        "config",
        "created_ts",
        "delete_below",
        "deleted",
        "evicted_records",
        "flagged",
        "floors",
        "head_seq",
        "holes",
        "id",
        "idempotency",
        "inflight_bytes",
        "inflight_records",
        "last_read_ts",
        "last_ts",
        "live_bytes",
        "live_records",
        "lookahead",
        "lookahead_ts",
        "name",
        "next_seq",
        "oldest_ts",
        "queue",
        "replayed_deletes",
        "replaying",
        "reserved_seq",
        "reserving_seq",
        "runs",
        "tag_pending",
        "tags",
        "watchers",
    )

    # Few topics have routers: these are the others' values, and no slots of theirs.
    link: "Link | None" = None
    """The routers that copy into this topic."""
    links: tuple["Link", ...] = ()
    """The routers that copy from it."""
    routed = False
    """There are such routers: they want to hear of every write."""
    hops: tuple[tuple[int, int, int], ...] = ()
    """How often the records of a range were copied, where routers go round in a circle."""
    # Nor did its name have another life before, most often.
    former_seq = 0
    """The highest seq that one may have handed out."""
    # Nor is it a partition.
    parent: "Partitioned | None" = None
    partition = 0

    pins: tuple["Pin", ...] = ()
    """What readers of the files themselves hold: changed by `Pins` alone."""

    def __init__(  # noqa: PLR0915 - the fields of a topic, one line each
        self, topic_id: int, name: str, *, config: TopicConfig, created_ts: int, tags: TagRuns
    ) -> None:
        self.id = topic_id
        self.name = name
        self.config = config
        self.created_ts = created_ts
        self.deleted = False
        self.replaying = False
        """Only a part of the records is known: floors move as told, and are settled at the end."""
        # Read side.
        self.head_seq = 0
        self.floors = Floors()
        self.holes: tuple[Hole, ...] = ()
        self.runs: list[Run] = []
        self.oldest_ts = 0
        """`$ts` of the earliest live record: a TTL looks no further."""
        self.live_records = 0
        self.live_bytes = 0
        self.evicted_records = 0
        """Lost to a cap or a TTL since this process began."""
        self.last_read_ts: int | None = None
        self.watchers = 0
        """How many wait for news of this topic; the shard tells of it only if there are any."""
        # Write side.
        self.next_seq = 1
        self.last_ts = 0
        self.awaiting_sync = 0
        """Tickets that are published only after a sync: later writes wait behind them."""
        self.inflight_records = 0
        self.inflight_bytes = 0
        self.reserved_seq = 0
        self.reserving_seq = 0
        self.lookahead = FIRST_LOOKAHEAD
        self.lookahead_ts = 0
        self.idempotency = Idempotency()
        self.delete_below = 1
        # Storage.
        self.absorbed_seq = 0
        self.tags = tags
        self.flagged: set[Segment] = set()
        """Segments with delete flags that are not synced yet."""
        self.cold_strays = True
        """The cold tier may hold segments that are no longer this topic's."""
        self.tag_pending: list[Segment] = []
        """Sealed segments whose tags are in no run yet."""
        # Queues.
        self.queue = LeaseTable() if config.type == "queue" else None
        self.replayed_deletes: list[int] = []
        """Seqs that the log calls done, until a start has deleted them."""

    # Looking.

    def runs_from(self, seq: int) -> Iterator[tuple[Run, int]]:
        """Yield each run that reaches `seq` or beyond, with the index where to start in it."""
        for run, start, _ in self.stretches_from(seq):
            yield run, start

    def stretches_from(self, seq: int) -> Iterator[tuple[Run, int, int]]:
        """Yield run, start and stop of every entry from `seq` on, each once.

        For readers without the lock: the open segment may grow while it is read, and what it takes
        over is still in the chunk behind it.
        """
        runs = self.runs
        place = bisect_right(runs, seq, key=_first_seq) - 1
        for index in range(max(place, 0), len(runs)):
            run = runs[index]
            start, stop = max(0, seq - run.first_seq), run.count
            if start < stop:
                yield run, start, stop
                seq = run.first_seq + stop

    def first_live_from(self, seq: int) -> int:
        """Return the first live seq at or after `seq`, head + 1 where there is none."""
        for run, start in self.runs_from(seq):
            if isinstance(run, Segment) and run.live_records == 0:
                continue
            found = first_live(run.idx(), start, run.count)
            if found < run.count:
                return run.first_seq + found
        return self.head_seq + 1

    def segments(self) -> list[Segment]:
        return [run for run in self.runs if isinstance(run, Segment)]

    def chunks(self) -> list[Chunk]:
        return [run for run in self.runs if isinstance(run, Chunk)]

    @property
    def pinned_from(self) -> int:
        """Return the first seq whose bytes must stay, live or not: copies are made of them."""
        return min([link.pinned_from for link in self.links], default=2**64)

    def is_pinned(self, segment: Segment) -> bool:
        """Tell whether a reader was promised that the files of a segment stay as they are."""
        return any(pin.holds(segment.first_seq, segment.last_seq) for pin in self.pins)

    # Growing.

    def publish(self, batch: Batch, first_seq: int, *, frames: Buffer, durable: bool) -> None:
        """Make a stamped batch visible: all its records are live and follow the head."""
        if self.live_records == 0:
            self.floors = self.floors.advanced(first_seq)
            self.oldest_ts = int.from_bytes(batch.idx[8:16], "little")
        runs = self.runs
        last = runs[-1] if runs else None
        if not (isinstance(last, Chunk) and last.grow(batch, first_seq, durable=durable)):
            runs.append(
                Chunk(
                    first_seq,
                    count=batch.count,
                    frames=frames,
                    idx=batch.idx,
                    durable=durable,
                )
            )
        self.live_records += batch.count
        self.live_bytes += batch.payload_bytes
        self.head_seq = first_seq + batch.count - 1
        if self.queue is not None:
            self.queue.notify()

    # Shrinking.

    def is_over_limits(self, now_ms: int) -> bool:
        """Tell whether `expire` or `enforce_caps` has something to do; takes no lock."""
        config, records = self.config, self.live_records
        return records > 0 and (
            self.oldest_ts < ttl_cutoff(config, now_ms=now_ms)
            or not fits(config, records=records, size=self.live_bytes)
        )

    def expire(self, now_ms: int) -> bool:
        """Evict what is older than the TTL; tell whether a floor moved."""
        cutoff = ttl_cutoff(self.config, now_ms=now_ms)
        if self.live_records == 0 or self.oldest_ts >= cutoff:
            return False
        expired = 0
        for run, start in self.runs_from(self.floors.earliest_seq):
            is_whole = run.last_ts < cutoff
            stop = run.count if is_whole else bisect_ts(run.idx(), start, run.count, cutoff)
            expired += _live_in(run, start, stop)[0]
            if stop < run.count:
                break
        return self._evict(expired, 0, "ttl")

    def enforce_caps(self) -> bool:
        """Evict what is over the caps; tell whether a floor moved."""
        config = self.config
        if not config.cap_records and not config.cap_bytes:
            return False
        over = plan_cap(config, records=self.live_records, size=self.live_bytes)
        return over != (0, 0) and self._evict(*over, "cap")

    def apply_eviction(self, *, evict_floor: int, earliest_seq: int, reason: str) -> None:
        """Move the floors as the WAL says; sums are counted anew after a replay."""
        self.floors = self.floors.evicted(
            evict_floor=evict_floor, earliest_seq=earliest_seq, reason=reason
        )

    def apply_hole(self, hole: Hole) -> None:
        self.holes = with_hole(self.holes, hole)

    def apply_delete_below(self, before_seq: int) -> int:
        """Remove every live record below a seq; return how many there were."""
        deleted = 0
        for run, start in self.runs_from(self.floors.earliest_seq):
            stop = min(run.count, before_seq - run.first_seq)
            if stop <= start:
                break
            records, size = _live_in(run, start, stop)
            self.live_records -= records
            self.live_bytes -= size
            deleted += records
        self.delete_below = max(self.delete_below, before_seq)
        self.settle_earliest(before_seq)
        return deleted

    def apply_delete_seqs(self, which: Sequence[int]) -> int:
        """Set the delete flag of live records; the seqs ascend. Return how many were live."""
        seqs = which if isinstance(which, array) else array("Q", which)
        deleted, earliest = 0, self.floors.earliest_seq
        at = bisect_left(seqs, earliest)
        is_earliest = at < len(seqs) and seqs[at] == earliest
        while at < len(seqs):
            run = next((run for run, _ in self.runs_from(seqs[at])), None)
            if run is None:
                break
            stop = bisect_right(seqs, run.last_seq)
            first = max(at, bisect_left(seqs, run.first_seq))
            records, size = run.mark_deleted(seqs[first:stop]) if first < stop else (0, 0)
            self.live_records -= records
            self.live_bytes -= size
            deleted += records
            at = max(stop, at + 1)
            if records and isinstance(run, Segment):
                self.flagged.add(run)
        if self.queue is not None:
            self.queue.forget(seqs)
        if is_earliest:
            self.settle_earliest(earliest)
        return deleted

    def settle_earliest(self, seq: int) -> None:
        """Move the live floor to the first live record at or after `seq`."""
        if self.replaying:
            self.floors = self.floors.advanced(seq)
            return
        earliest = self.first_live_from(max(seq, self.floors.earliest_seq))
        self.floors = self.floors.advanced(earliest)
        self.oldest_ts = self._ts_of(earliest)

    def recount(self) -> None:
        """Count the live records and bytes from the indexes: exact after a replay."""
        self.live_records = self.live_bytes = 0
        for run, start in self.runs_from(self.floors.earliest_seq):
            records, size = _live_in(run, start, run.count)
            self.live_records += records
            self.live_bytes += size

    def _evict(self, need_records: int, need_bytes: int, reason: str) -> bool:
        floor = 0
        whole: Segment | None = None
        for run, start in self.runs_from(self.floors.earliest_seq):
            if start == 0 and isinstance(run, Segment) and run.live_records <= need_records:
                records, size = run.live_records, run.live_bytes
                whole = run if records else whole
            else:
                stop, records, size = evict_prefix(
                    run.idx(), start, run.count, need_records, need_bytes
                )
                if records:
                    floor, whole = run.first_seq + stop, None
            need_records -= records
            need_bytes -= size
            self.live_records -= records
            self.live_bytes -= size
            self.evicted_records += records
            if need_records <= 0 and need_bytes <= 0:
                break
        if whole is not None:
            stop, _, _ = evict_prefix(whole.idx(), 0, whole.count, whole.live_records, 0)
            floor = whole.first_seq + stop
        if floor == 0:
            return False
        earliest = self.first_live_from(floor)
        self.floors = self.floors.evicted(evict_floor=floor, earliest_seq=earliest, reason=reason)
        self.oldest_ts = self._ts_of(earliest)
        return True

    def _ts_of(self, seq: int) -> int:
        for run, start in self.runs_from(seq):
            if run.first_seq + start == seq:
                return _entry_ts(run, start)
        return self.last_ts


_first_seq = attrgetter("first_seq")


def _live_in(run: Run, start: int, stop: int) -> tuple[int, int]:
    """Return records and bytes that are live in a part of a run; of a whole segment it is known."""
    if start == 0 and stop == run.count and isinstance(run, Segment):
        return run.live_records, run.live_bytes
    return count_live(run.idx(), start, stop)


def _entry_ts(run: Run, index: int) -> int:
    at = index * IDX_ENTRY_BYTES + 8
    return int.from_bytes(run.idx()[at : at + 8], "little")
