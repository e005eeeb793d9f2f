"""What a backup says of itself: docs/operating/backup.md."""

from msgspec import Struct

from topics.model.performance import Performance


class BackedUp(Struct, frozen=True, kw_only=True):
    """A whole copy of a data directory, at one moment."""

    topics: int
    segments: int
    bytes: int
    """Written, the log included."""
    at_ts: int
    """Everything acknowledged before this moment is in it."""


class BackupReply(BackedUp, frozen=True, kw_only=True):
    """`POST /v0/backups/:backup`."""

    backup: str
    performance: Performance
