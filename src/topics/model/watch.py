"""What a watch asks for."""

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from topics.limits import DEFAULT_LIMIT
from topics.model.diff import Match, Seq, Ts, check_seq, check_window
from topics.model.performance import Performance

HEARTBEAT_MS = (1_000, 60_000)
WATCH_HEARTBEAT_MS = 15_000
WATCH_BATCH_BYTES = 256 * 1024
WILDCARD = "*"
NAME_OR_PATTERN = r"^([A-Za-z0-9][A-Za-z0-9._:-]{0,254}\*?|\*)$"


class Window(NamedTuple):
    """The times between which records are shown, the last one excluded; 0: none."""

    from_ts: int = 0
    until_ts: int = 0


class WatchStart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where to begin and to end in one topic, or in every topic of a pattern."""

    from_seq: Seq = 0
    tail: Annotated[bool, Meta(description="begin behind the newest record; wins")] = False
    from_ts: Ts = 0
    until_ts: Ts = 0

    @property
    def window(self) -> Window:
        return Window(self.from_ts, self.until_ts)

    def __post_init__(self) -> None:
        check_seq("from_seq", self.from_seq)
        check_window(self.from_ts, self.until_ts)


class WatchOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of the records is shown, and how much at a time."""

    node: str | list[str] | None = None
    match: Match | None = None
    limit: Annotated[int, Meta(ge=0, description="records of a frame")] = DEFAULT_LIMIT
    max_batch_bytes: Annotated[int, Meta(ge=0, description="bytes of a frame")] = WATCH_BATCH_BYTES
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"


class WatchBody(WatchOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a watch."""

    topics: Annotated[
        dict[str, WatchStart],
        Meta(
            min_length=1,
            description="where to begin, by name or pattern (prefix*)",
            extra_json_schema={"maxProperties": 256, "propertyNames": {"pattern": NAME_OR_PATTERN}},
        ),
    ]
    heartbeat_ms: Annotated[int, Meta(ge=0, description="clamped to 1000..60000")] = (
        WATCH_HEARTBEAT_MS
    )


class WatchedTopic(Struct, frozen=True, kw_only=True):
    """Where a watch stands in one topic, and how far that goes."""

    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchReply(Struct, frozen=True, kw_only=True):
    """The body of the answer: `stream_url` is good for whoever asked, until it is left alone."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchedTopic]
    performance: Performance
