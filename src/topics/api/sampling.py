"""The timer of the console's history: reads the server's counters and hands them to the sampler."""

import asyncio
from typing import TYPE_CHECKING

from topics.console.sampler import INTERVAL_S, MAX_SERIES, Counts, Reading, Sampler
from topics.engine.engine import Engine
from topics.engine.measure import WalFigures, measure_wal
from topics.errors import Closed, NotReady
from topics.histogram import LATENCY_US, Histogram

if TYPE_CHECKING:
    from topics.api.app import App

WRITE_LABEL = "POST /v0/topics/:topic"


class Sampling:
    """Keeps: one timer, between `start` and `stop`; readings are taken off the event loop."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.sampler = Sampler()

    def start(self) -> None:
        self._app.spawn(self._sample())

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def _sample(self) -> None:
        try:
            await self.take()
        except (NotReady, Closed):
            return  # the log was closed meanwhile
        if not self._stopped:
            self._timer = self._app.loop.call_later(INTERVAL_S, self.start)

    async def take(self) -> None:
        """Take a reading; what grows with the topics runs beside the event loop."""
        engine, log = self._app.engine, self._app.ready_log
        wal, heads, lags = await log.look(lambda: _read_engine(engine))
        reading = self._reading(wal, heads, lags)
        await log.look(lambda: self.sampler.take(reading))

    def _reading(
        self, wal: WalFigures, heads: dict[str, tuple[int, int]], lags: dict[str, int]
    ) -> Reading:
        app = self._app
        return Reading(
            now_ms=app.clock.now_ms(),
            monotonic_s=app.clock.monotonic_s(),
            counters={
                "appended": wal.records_appended,
                "delivered": app.metrics.records_delivered,
                "requests": sum(h.count for h in app.metrics.latency_us.values()),
                "wal_bytes": wal.bytes_written,
                "fsyncs": wal.fsyncs,
            },
            levels={
                "at_risk": wal.at_risk_records,
                "wal_tail_bytes": wal.tail_bytes,
                "connections": len(app.connections),
            },
            latencies={"write": counts_of(self.write_latency()), "fsync": counts_of(wal.sync_us)},
            heads=heads,
            lags=lags,
        )

    def write_latency(self) -> Histogram:
        """Return how long appends took that went well."""
        found = Histogram(LATENCY_US)
        for (route, status), histogram in list(self._app.metrics.latency_us.items()):
            if route.label == WRITE_LABEL and status < 300:
                found.add(histogram)
        return found


def counts_of(histogram: Histogram) -> Counts:
    return Counts(bounds=histogram.bounds, counts=list(histogram.counts))


def _read_engine(
    engine: Engine,
) -> tuple[WalFigures, dict[str, tuple[int, int]], dict[str, int]]:
    heads = {topic.name: (topic.id, topic.head_seq) for topic in engine.each_topic()}
    lags = {
        name: sum(one.lag for one in engine.groups.progress(name))
        for name in engine.groups.names()[:MAX_SERIES]
    }
    return measure_wal(engine.shards), heads, lags
