"""What a delete takes and answers."""

from msgspec import Struct

from topics.model.diff import Match, Seq, check_seq
from topics.model.performance import Performance


class DeleteBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a delete: one of the two, or both."""

    before_seq: Seq | None = None
    match: Match | None = None

    def __post_init__(self) -> None:
        if self.before_seq is not None:
            check_seq("before_seq", self.before_seq)


class Deleted(Struct, frozen=True, kw_only=True):
    """How many records went, and the topic after it."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class DeleteReply(Deleted, frozen=True, kw_only=True):
    """The body of the answer."""

    performance: Performance
