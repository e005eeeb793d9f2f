"""What every JSON reply says about its own cost."""

from msgspec import UNSET, Struct, UnsetType


class Performance(Struct, frozen=True, kw_only=True):
    """Times in milliseconds; a field is there where it means something."""

    server_total_ms: float
    wal_append_ms: float | UnsetType = UNSET
    fsync_ms: float | UnsetType = UNSET
    records_scanned: int | UnsetType = UNSET
    cold_segments_read: int | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET
    wait_ms: float | UnsetType = UNSET
