"""What a read gives: records, and exactly what was lost before them."""

from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from topics.errors import RequestError
from topics.model.json_text import decode_text, decode_value
from topics.model.performance import Performance

TombstoneReason = Literal["cap", "ttl", "mixed", "recreated", "beyond_head", "source_trim", "crash"]
MATCH_OPS = ("Eq", "Glob")
MAX_SEQ = 2**64 - 1
Seq = Annotated[  # msgspec compares with 63 bits only: `check_seq` does it
    int,
    Meta(
        description="a seq; 0 is before the first",
        extra_json_schema={"minimum": 0, "maximum": MAX_SEQ},
    ),
]
Ts = Annotated[
    int,
    Meta(
        description="milliseconds since the epoch; 0: none",
        extra_json_schema={"minimum": 0, "maximum": MAX_SEQ},
    ),
]
Match = Annotated[
    str | list[str],
    Meta(title="Match", description='a tag, ["tag","Eq","X"] or ["tag","Glob","X*"]'),
]
NO_META = Raw(b"null")
"""Not None: msgspec takes no union with Raw."""


class Record(Struct, frozen=True, kw_only=True):
    """One record.

    `data` and `meta` are decoded when asked for; `*_json` are the bytes that were sent.
    """

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    node: str | None = field(name="$node", default=None)
    tag: str | None = field(name="$tag", default=None)
    meta_json: Raw = field(name="meta", default=NO_META)
    data_json: Raw = field(name="data")

    @property
    def data(self) -> Any:  # noqa: ANN401 - a payload is any JSON
        return decode_value(self.data_json)

    @property
    def meta(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = decode_value(self.meta_json)
        return found

    def __repr__(self) -> str:
        """Show what it has, with its data as a reader gets it."""
        raw = ("meta_json", "data_json", "value")
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name not in raw}
        shown |= {"meta": self.meta, "data": self.data}
        told = [f"{k}={v!r}" for k, v in shown.items() if v is not None or k == "data"]
        return f"{type(self).__name__}({', '.join(told)})"


def check_seq(name: str, seq: int) -> None:
    """Refuse what is no unsigned 64-bit number; a ValueError, as msgspec wants it."""
    if not 0 <= seq <= MAX_SEQ:
        raise ValueError(f"`{name}` must be a number from 0 to {MAX_SEQ}")


def check_window(from_ts: int, until_ts: int) -> None:
    """Refuse times that are none, or in the wrong order; a ValueError, as msgspec wants it."""
    if not (from_ts or until_ts):
        return
    check_seq("from_ts", from_ts)
    check_seq("until_ts", until_ts)
    if until_ts and until_ts < from_ts:
        raise ValueError("`until_ts` must not be before `from_ts`")


class DiffBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a read."""

    from_seq: Seq = 0
    from_ts: Ts = 0
    until_ts: Ts = 0
    limit: Annotated[int, Meta(ge=0, description="0: the default; above the maximum: clamped")] = 0
    node: str | list[str] | None = None
    match: Match | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Annotated[int, Meta(ge=0, description="long poll; clamped to 30000")] = 0
    max_batch_bytes: Annotated[int, Meta(ge=0, description="byte budget; 0: the default")] = 0

    def __post_init__(self) -> None:
        check_seq("from_seq", self.from_seq)
        check_window(self.from_ts, self.until_ts)


class Tombstone(Struct, frozen=True, kw_only=True):
    """Seqs that this reader will never see, because nobody asked for their loss."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int

    @property
    def behind(self) -> int:
        """Return the seq behind which reading goes on."""
        if self.reason == "recreated":
            return min(self.earliest_seq - 1, self.head_seq)
        return self.head_seq if self.reason == "beyond_head" else self.gap_to


class ShownRecord(Struct, frozen=True, kw_only=True):
    """A record as a reader gets it; what it has not is left out."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    node: str | UnsetType = field(name="$node", default=UNSET)
    tag: str | UnsetType = field(name="$tag", default=UNSET)
    meta: dict[str, Any] | UnsetType = UNSET
    data: Any


class DiffReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to a read."""

    topic: str
    records: list[ShownRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    until_reached: Annotated[
        bool | UnsetType, Meta(description="there if `until_ts` was asked for")
    ] = UNSET
    performance: Performance


class Page:
    """The answer to one read."""

    def __init__(  # noqa: PLR0913 - one argument a field of the contract
        self,
        *,
        topic: str,
        records_json: bytes,
        count: int,
        next_from_seq: int,
        head_seq: int,
        earliest_seq: int,
        tombstone: Tombstone | None,
        records_scanned: int,
        cold_segments_read: int,
        until_reached: bool | None = None,
    ) -> None:
        self.topic = topic
        self.records_json = records_json
        """The records as JSON objects, joined by commas."""
        self.count = count
        self.next_from_seq = next_from_seq
        self.head_seq = head_seq
        self.earliest_seq = earliest_seq
        self.tombstone = tombstone
        self.records_scanned = records_scanned
        self.cold_segments_read = cold_segments_read
        self.until_reached = until_reached
        """Nothing before `until_ts` is left, and nothing will come; None if it was not asked."""

    @cached_property
    def records(self) -> list[Record]:
        return decode_text(b"[" + self.records_json + b"]", list[Record])

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def is_news(self) -> bool:
        """Tell whether a reader that waits should hear of it before its time is over."""
        return bool(
            self.count or self.tombstone is not None or not self.caught_up or self.until_reached
        )

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq

    def __repr__(self) -> str:
        return (
            f"Page(topic={self.topic!r}, count={self.count}, next_from_seq={self.next_from_seq}, "
            f"head_seq={self.head_seq}, tombstone={self.tombstone!r})"
        )


def parse_match(value: object) -> tuple[str, str]:
    """Return (op, literal) of a match: `"X"`, `["tag","Eq","X"]` or `["tag","Glob","X*"]`.

    A Glob is a literal prefix and one trailing star; the literal is returned without the star.
    """
    if isinstance(value, str):
        return "Eq", value
    if not (
        isinstance(value, list | tuple)
        and len(value) == 3
        and all(isinstance(v, str) for v in value)
    ):
        raise RequestError('match must be a tag, ["tag","Eq","X"] or ["tag","Glob","X*"]')
    field_name, op, literal = value
    if field_name != "tag" or op not in MATCH_OPS:
        raise RequestError(
            f'match knows the field "tag" and the ops {MATCH_OPS}, not {field_name!r} {op!r}'
        )
    if op == "Eq":
        return op, literal
    if not literal.endswith("*") or "*" in literal[:-1]:
        raise RequestError(f"a Glob is a literal prefix and one trailing star, not {literal!r}")
    return op, literal[:-1]
