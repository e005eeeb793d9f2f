"""How urgent a topic is: what its config says, or how lately it was used."""

from topics.model.topic_config import TopicConfig

RECENCY_MAX = 500
HALF_LIFE_MS = 30_000
FORGOTTEN_MS = 300_000
AGE_BOOST_PER_S = 100
AGE_BOOST_MAX = 1000
BAND_FLOORS = (750, 500, 250, 0)
"""The lowest priority of each band but the last."""


def effective_priority(config: TopicConfig, *, idle_ms: int) -> int:
    """Return the priority of a topic that was last used `idle_ms` ago."""
    if config.priority is not None:
        return config.priority
    if not config.auto_priority or idle_ms >= FORGOTTEN_MS:
        return 0
    recency: float = RECENCY_MAX * 2 ** (-max(0, idle_ms) / HALF_LIFE_MS)
    return round(recency)


def age_boost(*, waited_ms: int) -> int:
    """Return what waiting adds: nothing waits for ever."""
    return min(AGE_BOOST_MAX, waited_ms * AGE_BOOST_PER_S // 1000)


def band_of(priority: int) -> int:
    """Return the band, 0 the most urgent."""
    return next((band for band, low in enumerate(BAND_FLOORS) if priority >= low), len(BAND_FLOORS))
