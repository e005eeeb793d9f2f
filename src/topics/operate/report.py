"""The values that verify, inspect and repair give back; as JSON they are what `--json` prints."""

from typing import Any, Final, Literal

from msgspec import Struct

Verdict = Literal["ok", "torn", "stray", "damaged", "missing"]
"""`torn` and `stray` are what a crash leaves and the next start clears away: not damage."""
Kind = Literal["format", "snapshot", "wal", "current", "segment", "index", "tags", "topic"]
Tier = Literal["hot", "cold"]

FINDINGS_MAX: Final = 20
"""So many findings of one file are spelled out, the rest is counted."""
BAD: Final[frozenset[Verdict]] = frozenset({"damaged", "missing"})


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was found at one place of a file."""

    message: str
    offset: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None


class FileVerdict(Struct, frozen=True, kw_only=True):
    """What is to be said of one file. `items` are its frames or entries."""

    path: str
    kind: Kind
    verdict: Verdict = "ok"
    tier: Tier = "hot"
    bytes: int = 0
    items: int = 0
    findings: list[Finding] = []

    @property
    def is_bad(self) -> bool:
        return self.verdict in BAD


class TopicVerdict(Struct, frozen=True, kw_only=True):
    """Whether every seq from the live floor to the head is somewhere."""

    topic_id: int
    name: str | None
    verdict: Verdict
    earliest_seq: int
    head_seq: int
    uncovered: list[tuple[int, int]] = []
    findings: list[Finding] = []


class VerifyReport(Struct, frozen=True, kw_only=True):
    """The verdict on a whole directory, file by file."""

    healthy: bool
    files: list[FileVerdict]
    topics: list[TopicVerdict]
    notes: list[str]
    bytes_checked: int
    wal_frames: int
    segment_records: int


class SnapshotInfo(Struct, frozen=True, kw_only=True):
    """One snapshot file."""

    path: str
    bytes: int
    readable: bool
    in_use: bool = False
    clean: bool | None = None
    topics: int | None = None
    next_topic_id: int | None = None
    places: dict[str, tuple[int, int]] = {}


class WalFileInfo(Struct, frozen=True, kw_only=True):
    """One file of a log."""

    path: str
    bytes: int
    used_bytes: int
    frames: int


class ShardInfo(Struct, frozen=True, kw_only=True):
    """One log. Places are (file number, offset)."""

    directory: str
    in_use: bool
    files: list[WalFileInfo]
    frames_by_type: dict[str, int]
    replay_from: tuple[int, int]
    end: tuple[int, int]
    synced: tuple[int, int]
    at_risk_bytes: int
    """Written, but neither SyncMark nor snapshot proves that it was synced."""
    findings: list[Finding]


class SegmentInfo(Struct, frozen=True, kw_only=True):
    """One segment, as its index tells."""

    first_seq: int
    last_seq: int
    tier: Tier
    bytes: int
    live_records: int
    tagged_records: int
    dead_share: float
    readable: bool


class TopicInfo(Struct, frozen=True, kw_only=True):
    """One topic as the next start would find it."""

    topic_id: int
    name: str | None
    config: dict[str, Any]
    created_ts: int
    head_seq: int
    earliest_seq: int
    evict_floor: int
    evict_reason: str
    reserved_seq: int
    absorbed_seq: int
    records: int
    wal_records: int
    pending_deletes: int
    """Deletes that the next start applies; `records` still counts what they name."""
    segments: list[SegmentInfo]
    holes: list[tuple[int, int, str]]
    tag_runs: list[tuple[int, int]]
    idempotency_keys: int
    producers: int
    parent_id: int | None = None
    """The partitioned topic that this is partition number `partition` of."""
    partition: int | None = None


class PartitionedInfo(Struct, frozen=True, kw_only=True):
    """One partitioned topic; its partitions are among the topics."""

    topic_id: int
    name: str
    config: dict[str, Any]
    created_ts: int
    counts: list[int]
    """Every number of partitions it ever had, oldest first."""
    found: int
    """How many of them are there; the next start makes the others."""


class GroupInfo(Struct, frozen=True, kw_only=True):
    """What the directory says of one consumer group."""

    group: str
    generation: int
    assignor: str
    members: list[str]
    committed: list[tuple[str, int, int, int]]
    """Topic, partition, topic id, seq."""


class InspectReport(Struct, frozen=True, kw_only=True):
    """What is where in a directory."""

    format: str | None
    in_use_by_a_process: bool
    stopped_cleanly: bool
    next_topic_id: int
    snapshots: list[SnapshotInfo]
    shards: list[ShardInfo]
    topics: list[TopicInfo]
    groups: list[GroupInfo]
    unknown_topic_ids: list[int]
    notes: list[str]
    partitioned: list[PartitionedInfo] = []


class FrameInfo(Struct, frozen=True, kw_only=True):
    """One frame of a WAL file, or bytes that are none (`type` is `damaged`)."""

    offset: int
    bytes: int
    type: str
    topic_id: int = 0
    seq: int = 0
    ts: int = 0
    flags: list[str] = []
    body: dict[str, Any] = {}


class WalListing(Struct, frozen=True, kw_only=True):
    """The frames of one WAL file from an offset on, and where the next ones are."""

    path: str
    frames: list[FrameInfo]
    next_offset: int | None


class LostRange(Struct, frozen=True, kw_only=True):
    """Seqs that nothing readable holds, and why; readers get a tombstone for them."""

    first_seq: int
    last_seq: int
    count: int
    why: str


class RepairedTopic(Struct, frozen=True, kw_only=True):
    """What became of one topic."""

    topic_id: int
    name: str
    name_is_known: bool
    earliest_seq: int
    head_seq: int
    records_kept: int
    segments: int
    lost_records: int
    lost: list[LostRange]
    set_aside: list[LostRange]
    """Seqs behind the last readable record that may have been handed out: never given out again."""


class RepairReport(Struct, frozen=True, kw_only=True):
    """What was saved and what was lost."""

    into: str | None
    """None for a dry run."""
    snapshot: str | None
    damage: list[Finding]
    topics: list[RepairedTopic]
    notes: list[str]
    records_kept: int
    records_lost: int
    seqs_set_aside: int
    verified: bool


def shorten(findings: list[Finding]) -> list[Finding]:
    """Keep the first findings and say how many more there are."""
    rest = len(findings) - FINDINGS_MAX
    if rest <= 0:
        return findings
    return [*findings[:FINDINGS_MAX], Finding(message=f"and {rest} more of the kind")]
