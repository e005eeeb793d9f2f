"""What consumers ask of a group, and what it answers. Reference: docs/reference/groups.md.

A partition is named by its topic, as the group subscribed to it, and its number; a plain topic is
partition 0 of itself. A position is the last seq that is done: reading goes on behind it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from topics.limits import (
    GROUP_NAME_PATTERN,
    MAX_GROUP_TOPICS,
    MAX_SESSION_MS,
    MIN_SESSION_MS,
    TOPIC_NAME_PATTERN,
)
from topics.model.diff import (
    Page,
    Record,
    Seq,
    ShownRecord,
    Tombstone,
    Ts,
    check_seq,
    check_window,
)
from topics.model.performance import Performance
from topics.model.topic_config import TopicName

DEFAULT_SESSION_MS = 10_000
Assignor = Literal["range", "round_robin", "sticky"]
GroupName = Annotated[str, Meta(pattern=GROUP_NAME_PATTERN)]
MemberName = Annotated[str, Meta(min_length=1, description="the name of one consumer")]
PartitionNumber = Annotated[int, Meta(ge=0)]
Assigned = dict[str, list[int]]
"""Topic → partitions, ascending."""
Positions = dict[str, dict[int, int]]
"""Topic → partition → position."""
_BY_TOPIC = Meta(extra_json_schema={"propertyNames": {"pattern": TOPIC_NAME_PATTERN}})
_BY_NUMBER = Meta(extra_json_schema={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"}})
WirePositions = Annotated[
    Mapping[str, Annotated[Mapping[PartitionNumber, Seq], _BY_NUMBER]], _BY_TOPIC
]
WirePartitions = Annotated[Mapping[str, Sequence[PartitionNumber]], _BY_TOPIC]


class JoinRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer comes, comes again, or wants other topics."""

    member: MemberName
    topics: Annotated[Sequence[TopicName], Meta(min_length=1, max_length=MAX_GROUP_TOPICS)]
    session_ms: Annotated[int, Meta(ge=MIN_SESSION_MS, le=MAX_SESSION_MS)] = DEFAULT_SESSION_MS
    assignor: Assignor = "sticky"


class HeartbeatRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer lives; `released` are partitions that it no longer works on."""

    member: MemberName
    generation: Seq
    released: WirePartitions | None = None


class LeaveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer goes."""

    member: MemberName


class CommitRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Positions up to which everything is done; without member and generation an operator's."""

    offsets: WirePositions
    member: MemberName | None = None
    generation: Seq | None = None

    def __post_init__(self) -> None:
        _check_positions("offsets", self.offsets)
        if (self.member is None) != (self.generation is None):
            raise ValueError("`member` and `generation` go together")


class PollRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer wants records; `positions` says where it is, whatever the server thinks."""

    member: MemberName
    generation: Seq
    limit: Annotated[int, Meta(ge=0, description="0: the default; above the maximum: clamped")] = 0
    wait_ms: Annotated[int, Meta(ge=0, description="long poll; clamped to 30000")] = 0
    positions: WirePositions | None = None
    from_ts: Ts = 0
    until_ts: Ts = 0
    include_tags: bool = False
    include_meta: bool = True
    max_batch_bytes: Annotated[int, Meta(ge=0, description="byte budget; 0: the default")] = 0

    def __post_init__(self) -> None:
        _check_positions("positions", self.positions or {})
        check_window(self.from_ts, self.until_ts)

    def behind(self, positions: WirePositions) -> "PollRequest":
        """Return the question again, without what was skipped; the server remembers by itself."""
        return self if self.positions is None else replace(self, positions=positions)


class SeekPoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place: the position itself, or the moment of the first record that is to be read."""

    seq: Seq | None = None
    ts: Ts | None = None

    def __post_init__(self) -> None:
        if (self.seq is None) == (self.ts is None):
            raise ValueError("`to` names either `seq` or `ts`")
        check_seq("seq", self.seq or 0)
        check_seq("ts", self.ts or 0)


class SeekRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator moves the progress of a group; no topics: all that it has progress in."""

    to: Literal["earliest", "latest"] | SeekPoint
    topics: Annotated[Mapping[str, Sequence[PartitionNumber] | None], _BY_TOPIC] | None = None
    dry_run: bool = False


class Joined(Struct, frozen=True, kw_only=True):
    """What a consumer gets to work on, and how often it has to say that it lives."""

    generation: int
    assigned: Assigned
    committed: Positions
    """Of all that is assigned; 0 where nothing was committed."""
    heartbeat_ms: int


class Heartbeat(Struct, frozen=True, kw_only=True):
    """What a consumer has, and what of it to give up: commit, then name it in `released`."""

    generation: int
    assigned: Assigned
    release: Assigned
    committed: Positions
    """Of all that is assigned or to be released; 0 where nothing was committed."""
    heartbeat_ms: int


class Left(Struct, frozen=True, kw_only=True):
    """Whether there was such a member."""

    left: bool


class Committed(Struct, frozen=True, kw_only=True):
    """What is committed now, of the partitions that were named."""

    generation: int
    committed: Positions


class PolledBatch(Struct, frozen=True, kw_only=True):
    """What one partition had."""

    topic: str
    partition: int
    page: Page

    @property
    def records(self) -> list[Record]:
        return self.page.records

    @property
    def tombstone(self) -> Tombstone | None:
        return self.page.tombstone

    @property
    def next_from_seq(self) -> int:
        return self.page.next_from_seq


class Polled(Struct, frozen=True, kw_only=True):
    """What the partitions of a member had, and where it is in each of them now."""

    generation: int
    batches: list[PolledBatch]
    positions: Positions
    until_reached: bool | None = None
    """Whether all partitions were read to the end of the window; None without `until_ts`."""

    @property
    def is_news(self) -> bool:
        """Tell whether it is worth an answer: records, a loss, more to read, or the end."""
        return self.until_reached is True or any(
            page.count or page.tombstone or not (page.caught_up or page.until_reached)
            for page in (batch.page for batch in self.batches)
        )

    @property
    def count(self) -> int:
        return sum([batch.page.count for batch in self.batches])


class Move(Struct, frozen=True, kw_only=True):
    """One partition whose position a seek changes; `from` is null where there was none."""

    topic: str
    partition: int
    before: int | None = msgspec.field(name="from")
    to: int


class Sought(Struct, frozen=True, kw_only=True):
    """What a seek did, or with `dry_run` would do."""

    group: str
    dry_run: bool
    moves: list[Move]


class GroupMember(Struct, frozen=True, kw_only=True):
    """One consumer as a look shows it."""

    member: str
    topics: list[str]
    session_ms: int
    expires_in_ms: int
    assigned: Assigned
    release: Assigned


class GroupPartition(Struct, frozen=True, kw_only=True):
    """How far a group has come in one partition."""

    topic: str
    partition: int
    owner: str | None
    committed: int | None
    head_seq: int
    lag: int


class GroupState(Struct, frozen=True, kw_only=True):
    """A group at one moment."""

    group: str
    generation: int
    assignor: str
    state: Literal["empty", "stable", "moving"]
    members: list[GroupMember]
    partitions: list[GroupPartition]
    lag_total: int


# As they stand in answers.


class JoinReply(Joined, frozen=True, kw_only=True):
    """The body of the answer to a join."""

    performance: Performance


class HeartbeatReply(Heartbeat, frozen=True, kw_only=True):
    """The body of the answer to a heartbeat."""

    performance: Performance


class LeaveReply(Left, frozen=True, kw_only=True):
    """The body of the answer to a leave."""

    performance: Performance


class CommitReply(Committed, frozen=True, kw_only=True):
    """The body of the answer to a commit."""

    performance: Performance


class ShownBatch(Struct, frozen=True, kw_only=True):
    """What one partition had, as a consumer gets it."""

    topic: str
    partition: int
    records: list[ShownRecord]
    tombstone: Tombstone | None
    next_from_seq: int
    head_seq: int
    caught_up: bool
    lag: int


class PollReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to a poll."""

    generation: int
    batches: list[ShownBatch]
    positions: Positions
    until_reached: Annotated[
        bool | UnsetType, Meta(description="only if `until_ts` was asked for")
    ] = UNSET
    performance: Performance


class SeekReply(Sought, frozen=True, kw_only=True):
    """The body of the answer to a seek."""

    performance: Performance


class GroupReply(GroupState, frozen=True, kw_only=True):
    """The body of the answer to a look at one group."""

    performance: Performance


class ListedGroup(Struct, frozen=True, kw_only=True):
    """One group in a list."""

    group: str
    generation: int
    state: Literal["empty", "stable", "moving"]
    members: int
    topics: list[str]


class GroupListReply(Struct, frozen=True, kw_only=True):
    """One page of a list; `next_cursor` is there while there are more."""

    groups: list[ListedGroup]
    next_cursor: str | UnsetType = UNSET
    performance: Performance


class GroupDeleteReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to the end of a group."""

    group: str
    deleted: bool
    performance: Performance


def _check_positions(name: str, positions: WirePositions) -> None:
    for by_partition in positions.values():
        for seq in by_partition.values():
            check_seq(name, seq)
