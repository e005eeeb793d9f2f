"""What an append takes besides records, and what it answers."""

from msgspec import Struct


class Appended(Struct, frozen=True, kw_only=True):
    """The seqs that one write got."""

    topic: str
    first_seq: int
    last_seq: int
    count: int
    head_seq: int
    created: bool = False
    deduped: bool = False

    @property
    def seqs(self) -> list[int]:
        return list(range(self.first_seq, self.last_seq + 1)) if self.count else []


class WriteOptions(Struct, frozen=True, kw_only=True):
    """How a write wants to be treated."""

    idempotency_key: str | None = None
    producer_id: str | None = None
    producer_seq: int | None = None
    create: bool = True

    @property
    def repeatable(self) -> bool:
        """Tell whether the same write may come again and must not happen twice."""
        return self.idempotency_key is not None or self.producer_id is not None
