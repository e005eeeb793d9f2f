"""Which records a topic no longer keeps: cap and TTL, as arithmetic on plain values."""

from topics.model.topic_config import TopicConfig


def plan_cap(config: TopicConfig, *, records: int, size: int) -> tuple[int, int]:
    """Return how many records and bytes are over the caps."""
    over_records = records - config.cap_records if config.cap_records else 0
    over_bytes = size - config.cap_bytes if config.cap_bytes else 0
    return max(0, over_records), max(0, over_bytes)


def ttl_cutoff(config: TopicConfig, *, now_ms: int) -> int:
    """Return the oldest `$ts` that is still kept, 0 where there is no TTL."""
    return max(0, now_ms - config.ttl_ms) if config.ttl_ms else 0


def fits(config: TopicConfig, *, records: int, size: int) -> bool:
    """Tell whether so much is within the caps."""
    return plan_cap(config, records=records, size=size) == (0, 0)
