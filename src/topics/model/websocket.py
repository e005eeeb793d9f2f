"""What a client says on a WebSocket."""

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from topics.model.diff import Seq, Ts, check_seq, check_window
from topics.model.watch import WatchOptions, WatchStart

RequestId = Annotated[str, Meta(max_length=256)] | int | None


class Asked(Struct, frozen=True, kw_only=True):
    """What is wanted of a message whose other fields make no sense."""

    op: Raw = Raw(b'""')
    request_id: RequestId = None


class PublishOp(Struct, frozen=True, kw_only=True):
    """What `publish` says besides the fields of a write."""

    op: str = ""
    request_id: RequestId = None
    topic: str | None = None
    config: Raw = Raw(b"null")


class ClientOp(WatchOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message: an `op`, and the fields of that op."""

    op: str = ""
    request_id: RequestId = None
    topic: str | None = None
    topics: dict[str, WatchStart] | list[str] = field(default_factory=list)
    from_seq: Seq = 0
    tail: bool = False
    from_ts: Ts = 0
    until_ts: Ts = 0
    lenient: bool = False
    heartbeat_ms: Annotated[int, Meta(ge=0, description="ignored: ping instead")] = 0

    @property
    def names(self) -> list[str]:
        """Return what is named, by `topics` or `topic`."""
        return [*self.topics, *([] if self.topic is None else [self.topic])]

    def starts(self) -> dict[str, WatchStart]:
        """Return where to begin in what is named; a list, like `topic`, has those of the op."""
        given = WatchStart(
            from_seq=self.from_seq, tail=self.tail, from_ts=self.from_ts, until_ts=self.until_ts
        )
        return {
            name: self.topics[name]
            if isinstance(self.topics, dict) and name in self.topics
            else given
            for name in self.names
        }

    def __post_init__(self) -> None:
        check_seq("from_seq", self.from_seq)
        check_window(self.from_ts, self.until_ts)
