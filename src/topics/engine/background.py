"""The engine's own threads: a sync thread a shard, one each for spares, segments, routers, cold.

Each runs steps that are plain calls on the engine, so that a test can make them one by one without
any thread. A step that fails with a storage error makes its shard read-only or is tried again at
its next time; the last error is kept for `Engine` users to show.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from topics.engine.engine import Engine
from topics.engine.shard import Shard
from topics.errors import DiskFailed, TopicsError

CLOSE_TIMEOUT_S = 30.0
SPARE_STEP_MS = 100
SEGMENT_STEP_MS = 100
ROUTER_STEP_MS = 100
BREATH_S = 0.005
"""Between steps that follow each other: whoever waits for a lock of theirs gets it."""


class Loop:
    """A thread that makes a step at a time, or sooner when asked.

    A step that returns True is followed by the next after a breath.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], bool | None],
        *,
        every_ms: int,
        on_bug: Callable[[TopicsError], None],
    ) -> None:
        self._step = step
        self._on_bug = on_bug
        self._every_s = every_ms / 1000
        # A bare lock as a signal: half the latency of an Event, and each synced write waits for it.
        self._rest = threading.Lock()
        self._rest.acquire()
        self._stopping = False
        self.last_error: TopicsError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Make a step now."""
        with suppress(RuntimeError):  # it was asked already
            self._rest.release()

    def stop(self) -> None:
        self._stopping = True
        self.ask()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _wait_for_step(self, rest_s: float) -> bool:
        """Wait for the next time or an `ask`; True when it is over."""
        self._rest.acquire(timeout=rest_s)
        return self._stopping

    def _run(self) -> None:
        rest_s = self._every_s
        while not self._wait_for_step(rest_s):
            rest_s = self._every_s
            try:
                if self._step():
                    rest_s = BREATH_S
                self.last_error = None
            except TopicsError as error:
                self.last_error = error
            except Exception as error:
                self.last_error = TopicsError(f"{self._thread.name} stopped: {error!r}")
                self._on_bug(self.last_error)
                raise


class Background:
    """All loops of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        config = engine.config
        now_s = engine.clock.monotonic_s()
        self._checkpoint_due_s = now_s + config.checkpoint_ms / 1000
        self._snapshot_due_s = now_s + config.snapshot_ms / 1000
        self._sweep_due_s = now_s + config.sweep_ms / 1000
        self._snapshot_bytes = self._wal_bytes()
        self.syncs = [
            self._loop(f"topics-sync-{shard.number}", self._sync_step(shard), config.disk_sync_ms)
            for shard in engine.shards
        ]
        for shard, loop in zip(engine.shards, self.syncs, strict=True):
            shard.commit.on_sync_due = loop.ask
        step_ms = min(SEGMENT_STEP_MS, config.checkpoint_ms)
        self._spares = self._loop("topics-spare", self._spare_step, SPARE_STEP_MS)
        for shard in engine.shards:
            shard.commit.log.on_spare_due = self._spares.ask
        self._segments = self._loop("topics-segments", self._segment_step, step_ms)
        self._cold = self._loop("topics-cold", self._cold_step, config.checkpoint_ms)
        self._routers = self._loop("topics-routers", self._router_step, ROUTER_STEP_MS)
        engine.on_routers_due = self._routers.ask

    @property
    def last_error(self) -> TopicsError | None:
        loops = [*self.syncs, self._spares, self._segments, self._cold, self._routers]
        failed = next((loop.last_error for loop in loops if loop.last_error), None)
        mover = self._engine.queues.dead_letters
        return failed or (mover.last_error if mover.due else None)

    def stop(self) -> None:
        for shard in self._engine.shards:
            shard.commit.on_sync_due = None
        for loop in [self._routers, *self.syncs]:
            loop.stop()
        for shard in self._engine.shards:
            if shard.commit.queue_depth:
                shard.commit.sync_once()  # for whoever asked a thread that had stopped
        for loop in [self._spares, self._segments, self._cold]:
            loop.stop()

    def _loop(self, name: str, step: Callable[[], bool | None], every_ms: int) -> Loop:
        return Loop(name, step, every_ms=every_ms, on_bug=self._stop_writes)

    def _stop_writes(self, error: TopicsError) -> None:
        """Take no more writes: what a dead thread no longer does must not go unnoticed."""
        for shard in self._engine.shards:
            shard.commit.on_sync_due = None
            shard.commit.fail(DiskFailed(str(error)))

    def _sync_step(self, shard: Shard) -> Callable[[], None]:
        def step() -> None:
            if shard.commit.log.needs_sync or shard.commit.queue_depth:
                shard.commit.sync_once()

        return step

    def _spare_step(self) -> None:
        self._engine.prepare_spares()

    def _segment_step(self) -> bool:
        """Make segments and what follows; tell whether so much has come meanwhile to go on."""
        engine, config = self._engine, self._engine.config
        now_s = engine.clock.monotonic_s()
        if now_s >= self._sweep_due_s:
            self._sweep_due_s = now_s + config.sweep_ms / 1000
            engine.sweep()
        engine.move_dead_letters()
        written = self._wal_bytes() - self._snapshot_bytes
        if now_s >= self._snapshot_due_s or written >= config.snapshot_wal_bytes:
            self._snapshot_due_s = now_s + config.snapshot_ms / 1000
            self._checkpoint_due_s = now_s + config.checkpoint_ms / 1000
            if written:
                self._snapshot_bytes = self._wal_bytes()
                engine.snapshot()
                engine.maintain()
        elif (
            now_s >= self._checkpoint_due_s
            or engine.tail_bytes >= config.checkpoint_bytes
            or engine.is_behind
        ):
            self._checkpoint_due_s = now_s + config.checkpoint_ms / 1000
            self._checkpoint_step()
        # Not on a shard that failed, nor while somebody else makes these segments.
        return engine.is_behind and any(
            shard.dirty and shard.commit.log.failed is None for shard in engine.shards
        )

    def _checkpoint_step(self) -> None:
        engine = self._engine
        is_dirty = any(shard.dirty for shard in engine.shards)
        if is_dirty:
            engine.checkpoint()
        if engine.pins.take_released() or is_dirty:
            engine.maintain()

    def _router_step(self) -> bool:
        """Forward; tell whether somebody came between who wanted to read or to change a router."""
        self._engine.forward_once()
        return self._engine.has_due_routers

    def _cold_step(self) -> None:
        if self._engine.stores.cold is not None:
            self._engine.relocate()

    def _wal_bytes(self) -> int:
        return sum(shard.commit.log.counters.bytes_written for shard in self._engine.shards)
