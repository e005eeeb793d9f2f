"""What probes are told."""

from typing import Literal

from msgspec import Struct

from topics.model.performance import Performance


class HealthReply(Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["ok"]
    version: str
    uptime_ms: int
    performance: Performance


class ReadyReply(Struct, frozen=True, kw_only=True):
    """The log is replayed and served."""

    status: Literal["ready"]
    wal_replay_complete: bool
    topics: int
    performance: Performance
