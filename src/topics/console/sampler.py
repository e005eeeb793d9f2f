"""The history behind the charts: one reading every few seconds, kept for an hour.

Owns the rings. A `Reading` has counters since the start; the sampler turns two of them into rates.
Keeps: all rings of a tick end at the same tick; the number of series with a name is bounded; a
topic that was deleted, or created again, leaves nothing of its history behind.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from topics.console.ring import Ring, quantile

INTERVAL_S = 5.0
KEPT = 720
MAX_SERIES = 1000
"""Topics, and groups, with a history of their own: the first that had any news."""
RATES = ("appended", "delivered", "requests", "wal_bytes", "fsyncs")
LEVELS = ("at_risk", "wal_tail_bytes", "connections")
LATENCIES = ("write", "fsync")


class Counts(Struct, frozen=True, kw_only=True):
    """A histogram at one moment."""

    bounds: Sequence[int]
    counts: Sequence[int]


class Reading(Struct, frozen=True, kw_only=True):
    """What the server's counters say at one moment."""

    now_ms: int
    monotonic_s: float
    counters: Mapping[str, float]
    levels: Mapping[str, float]
    latencies: Mapping[str, Counts]
    heads: Mapping[str, tuple[int, int]]
    """Topic → its id and newest seq."""
    lags: Mapping[str, int]
    """Group → records behind."""


class Sampler:
    """Turns readings into series."""

    def __init__(self, *, kept: int = KEPT, max_series: int = MAX_SERIES) -> None:
        self._kept = kept
        self._max_series = max_series
        self._last: Reading | None = None
        self._ts = Ring(kept)
        self._series: dict[str, Ring] = {}
        self._topics: dict[str, Ring] = {}
        self._groups: dict[str, Ring] = {}

    def take(self, reading: Reading) -> None:
        """Add one tick; the first reading only says where the counters stand."""
        last, self._last = self._last, reading
        if last is None or reading.monotonic_s <= last.monotonic_s:
            return
        elapsed_s = reading.monotonic_s - last.monotonic_s
        self._ts.add(reading.now_ms)
        for name in RATES:
            self._add(name, (reading.counters[name] - last.counters[name]) / elapsed_s)
        for name in LEVELS:
            self._add(name, reading.levels[name])
        for name in LATENCIES:
            self._add_latency(name, last.latencies[name], reading.latencies[name])
        self._add_topics(last, reading, elapsed_s)
        self._add_groups(reading)

    # Looking.

    def history(self, count: int = KEPT) -> dict[str, list[float]]:
        """Return the series of the whole server, `ts` among them, oldest first."""
        return {
            "ts": self._ts.last(count),
            **{name: ring.last(count) for name, ring in self._series.items()},
        }

    def rate(self, name: str) -> float:
        """Return the newest value of a series of the server; 0 before there is one."""
        ring = self._series.get(name)
        return ring.last(1)[0] if ring else 0.0

    def topic(self, name: str, count: int = KEPT) -> list[float]:
        """Return records a second of one topic; shorter than `ts` where it is younger."""
        ring = self._topics.get(name)
        return ring.last(count) if ring else []

    def group(self, name: str, count: int = KEPT) -> list[float]:
        """Return how far one group was behind."""
        ring = self._groups.get(name)
        return ring.last(count) if ring else []

    # Taking.

    def _add(self, name: str, value: float) -> None:
        self._series.setdefault(name, Ring(self._kept)).add(value)

    def _add_latency(self, name: str, last: Counts, now: Counts) -> None:
        counts = [after - before for before, after in zip(last.counts, now.counts, strict=True)]
        for share, suffix in ((0.5, "p50"), (0.99, "p99")):
            self._add(f"{name}_{suffix}_us", quantile(now.bounds, counts, share))

    def _add_topics(self, last: Reading, reading: Reading, elapsed_s: float) -> None:
        for name in [n for n in self._topics if last.heads.get(n, (0,))[0] != _id(reading, n)]:
            del self._topics[name]
        for name, (topic_id, head_seq) in reading.heads.items():
            last_id, last_head = last.heads.get(name, (topic_id, 0))
            news = head_seq - last_head if last_id == topic_id else head_seq
            if name in self._topics or (news and len(self._topics) < self._max_series):
                self._topics.setdefault(name, Ring(self._kept)).add(news / elapsed_s)

    def _add_groups(self, reading: Reading) -> None:
        for name in [name for name in self._groups if name not in reading.lags]:
            del self._groups[name]
        for name, lag in reading.lags.items():
            if name in self._groups or len(self._groups) < self._max_series:
                self._groups.setdefault(name, Ring(self._kept)).add(lag)


def _id(reading: Reading, name: str) -> int:
    return reading.heads.get(name, (-1, 0))[0]
