"""What must be true of a consumer group, whatever happens to it (oracle 7).

Committed never goes back or past the head; a generation never goes back and has one owner a
partition.
"""

from collections.abc import Iterable, Mapping

Held = Mapping[str, Iterable[int]]
Partition = tuple[str, int]


class GroupOracle:
    """Everything that members were told."""

    def __init__(self) -> None:
        self.generation = 0
        """The newest that anyone was told of."""
        self.committed: dict[Partition, int] = {}
        self._owners: dict[tuple[int, Partition], str] = {}

    def hear(self, member: str, generation: int, held: Held, *, since: int | None = None) -> None:
        """Take what one member was told; `since`: the newest when it asked, if others speak too."""
        known = self.generation if since is None else since
        assert generation >= known, f"generation {generation} after {known}"
        self.generation = max(self.generation, generation)
        for topic, numbers in held.items():
            for number in numbers:
                owner = self._owners.setdefault((generation, (topic, int(number))), member)
                assert owner == member, (
                    f"{topic}/{number} has two owners in generation {generation}: "
                    f"{owner} and {member}"
                )

    def acknowledged(
        self,
        positions: Mapping[str, Mapping[int, int]],
        *,
        since: Mapping[Partition, int] | None = None,
    ) -> None:
        """Take what the answer to a commit says is committed; `since` as in `hear`."""
        for topic, by_number in positions.items():
            for number, seq in by_number.items():
                partition = topic, int(number)
                self.see(partition, seq, since=since)
                self.committed[partition] = max(seq, self.committed.get(partition, 0))

    def see(
        self,
        partition: Partition,
        seq: int | None,
        *,
        head_seq: int | None = None,
        since: Mapping[Partition, int] | None = None,
    ) -> None:
        """Look at what is committed; `since` is what was told before the question."""
        told = (self.committed if since is None else since).get(partition, 0)
        assert (seq or 0) >= told, f"{partition} went back from {told} to {seq}"
        if head_seq is not None:
            assert (seq or 0) <= head_seq, f"{partition} is at {seq}, past its head {head_seq}"
