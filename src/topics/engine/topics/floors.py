"""The two floors of a topic: what was lost, and what was removed on purpose."""

from typing import NamedTuple


class Floors(NamedTuple):
    """`evict_floor <= earliest_seq`, and neither ever goes back during one life of a topic."""

    evict_floor: int = 1
    """Moved only by involuntary loss of live records: a cursor below it gets a tombstone."""
    earliest_seq: int = 1
    """The first live record, or head + 1."""
    reason: str = "cap"

    def evicted(self, *, evict_floor: int, earliest_seq: int, reason: str) -> "Floors":
        """Move both floors up because live records were lost."""
        moved_before = self.evict_floor > 1
        if evict_floor <= self.evict_floor:
            return self.advanced(earliest_seq)
        told = reason if not moved_before or self.reason == reason else "mixed"
        return Floors(evict_floor, max(self.earliest_seq, earliest_seq, evict_floor), told)

    def advanced(self, earliest_seq: int) -> "Floors":
        """Move only the live floor up: somebody asked for it."""
        return self._replace(earliest_seq=max(self.earliest_seq, earliest_seq))


class Hole(NamedTuple):
    """Seqs that no file holds: lost by a crash (announced) or all deleted (silent)."""

    first_seq: int
    last_seq: int
    reason: str

    @property
    def announced(self) -> bool:
        return self.reason != "deleted"


def with_hole(holes: tuple[Hole, ...], hole: Hole) -> tuple[Hole, ...]:
    """Add a hole, joined with a neighbour of the same reason; adding it twice changes nothing."""
    joined = hole
    kept = []
    for old in holes:
        touches = old.first_seq <= joined.last_seq + 1 and joined.first_seq <= old.last_seq + 1
        if old.reason == joined.reason and touches:
            first, last = min(old.first_seq, joined.first_seq), max(old.last_seq, joined.last_seq)
            joined = Hole(first, last, joined.reason)
        else:
            kept.append(old)
    return tuple(sorted([*kept, joined]))
