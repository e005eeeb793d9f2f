"""The engine's own threads: a sync thread a shard, one each for spares, segments, routers, cold.

Each runs steps that are plain calls on the engine, so that a test can make them one by one without
any thread. A step that fails with a storage error makes its shard read-only or is tried again at
its next time; the last error is kept for `Engine` users to show.

A thread with nothing to look after dozes until it is asked or roused: whoever wakes wants the
interpreter, and each time it is handed over costs a busy reader more than the step itself. See
docs/internals/decisions/0040-threads-with-nothing-to-do-doze.md.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from topics.engine.engine import Engine
from topics.errors import DiskFailed, TopicsError
from topics.storage.wal.group_commit import GroupCommit

CLOSE_TIMEOUT_S = 30.0
SPARE_STEP_MS = 1_000
"""A spare that was taken is asked for. This is for one that could not be made, and for the first
files of a log: the blocks of their spares are written once they are in use."""
SEGMENT_STEP_MS = 100
ROUTER_STEP_MS = 100
QUIET_STEPS = 20
"""After so many looks at a log that nobody writes to, its sync thread dozes."""
SHORT_SNAPSHOT_MS = 5_000
"""On a full disk snapshots are taken so often."""
UNTIL_SIGNALLED = -1
BREATH_S = 0.005
"""Between steps that follow each other: whoever waits for a lock of theirs gets it."""


def never(_rouse: Callable[[], None]) -> bool:
    return False


class Loop:
    """A thread that makes a step at a time, or sooner when asked.

    A step that returns True is followed by the next after a breath. After any other, `may_doze` is
    given `rouse` and asked whether there is no time to keep until somebody calls that, or asks.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], bool | None],
        *,
        every_ms: int,
        on_bug: Callable[[TopicsError], None],
        may_doze: Callable[[Callable[[], None]], bool] = never,
    ) -> None:
        self._step = step
        self._on_bug = on_bug
        self._may_doze = may_doze
        self._every_s = every_ms / 1000
        # A bare lock as a signal: half the latency of an Event, and each synced write waits for it.
        self._rest = threading.Lock()
        self._rest.acquire()
        self._asked = self._roused = self._stopping = False
        self.last_error: TopicsError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Make a step now."""
        self._asked = True
        self._signal()

    def rouse(self) -> None:
        """Make a step in its time from now on: there is something to look after again."""
        self._roused = True
        self._signal()

    def stop(self) -> None:
        self._stopping = True
        self.ask()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _signal(self) -> None:
        with suppress(RuntimeError):  # it was signalled already
            self._rest.release()

    def _wait_for_step(self, rest_s: float) -> bool:
        """Wait for the next time or an `ask`; True when it is over."""
        self._rest.acquire(timeout=rest_s)
        if self._roused and not self._asked:
            self._rest.acquire(timeout=self._every_s)
        self._asked = self._roused = False  # before the step: who asks during it gets another one
        return self._stopping

    def _run(self) -> None:
        rest_s = self._every_s
        while not self._wait_for_step(rest_s):
            rest_s = self._every_s
            try:
                if self._step():
                    rest_s = BREATH_S
                elif self._may_doze(self.rouse):
                    rest_s = UNTIL_SIGNALLED
                self.last_error = None
            except TopicsError as error:
                self.last_error = error
            except Exception as error:
                self.last_error = TopicsError(f"{self._thread.name} stopped: {error!r}")
                self._on_bug(self.last_error)
                raise


class SyncDuty:
    """What the sync thread of one shard does."""

    def __init__(self, commit: GroupCommit) -> None:
        self._commit = commit
        self._seen_bytes = -1
        self._quiet_steps = 0

    @property
    def is_due(self) -> bool:
        return self._commit.log.needs_sync or self._commit.queue_depth > 0

    def step(self) -> None:
        self._commit.on_submitted = None
        if self.is_due:
            self._commit.sync_once()

    def may_doze(self, rouse: Callable[[], None]) -> bool:
        """Have the next ticket rouse the thread if nothing was written for a while."""
        written = self._commit.log.counters.bytes_written
        self._quiet_steps = self._quiet_steps + 1 if written == self._seen_bytes else 0
        self._seen_bytes = written
        if self._quiet_steps < QUIET_STEPS:
            return False
        self._commit.on_submitted = rouse
        if self.is_due:  # submitted between the last look and this one
            self._commit.on_submitted = None
            return False
        return True


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
        self._was_short = False
        self.syncs = []
        for shard in engine.shards:
            duty = SyncDuty(shard.commit)
            loop = self._loop(
                f"topics-sync-{shard.number}",
                duty.step,
                config.disk_sync_ms,
                may_doze=duty.may_doze,
            )
            shard.commit.on_sync_due = loop.ask
            self.syncs.append(loop)
        step_ms = min(SEGMENT_STEP_MS, config.checkpoint_ms)
        self._spares = self._loop("topics-spare", self._spare_step, SPARE_STEP_MS)
        for shard in engine.shards:
            shard.commit.log.on_spare_due = self._spares.ask
        self._segments = self._loop("topics-segments", self._segment_step, step_ms)
        self._cold = self._loop(
            "topics-cold", self._cold_step, config.checkpoint_ms, may_doze=self._has_no_cold_tier
        )
        self._routers = self._loop(
            "topics-routers", self._router_step, ROUTER_STEP_MS, may_doze=self._has_no_routers
        )
        engine.on_routers_due = self._routers.ask
        engine.may_write_beside = True

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
        with self._engine.hurried():
            for loop in [self._spares, self._segments, self._cold]:
                loop.stop()

    def _loop(
        self,
        name: str,
        step: Callable[[], bool | None],
        every_ms: int,
        *,
        may_doze: Callable[[Callable[[], None]], bool] = never,
    ) -> Loop:
        return Loop(name, step, every_ms=every_ms, on_bug=self._stop_writes, may_doze=may_doze)

    def _stop_writes(self, error: TopicsError) -> None:
        """Take no more writes: what a dead thread no longer does must not go unnoticed."""
        for shard in self._engine.shards:
            shard.commit.on_sync_due = None
            shard.commit.fail(DiskFailed(str(error)))

    def _spare_step(self) -> None:
        self._engine.prepare_spares()

    def _segment_step(self) -> bool:
        """Make segments and what follows; tell whether so much has come meanwhile to go on."""
        engine, config = self._engine, self._engine.config
        now_s = engine.clock.monotonic_s()
        if now_s >= self._sweep_due_s:
            self._sweep_due_s = now_s + config.sweep_ms / 1000
            engine.sweep()
            self._look_at_room(now_s)
        engine.move_dead_letters()
        written = self._wal_bytes() - self._snapshot_bytes
        if now_s >= self._snapshot_due_s or written >= config.snapshot_wal_bytes:
            self._snapshot_due_s = now_s + config.snapshot_ms / 1000
            self._checkpoint_due_s = now_s + config.checkpoint_ms / 1000
            if engine.reserve.is_short:  # it trims the log, and that gives room
                self._snapshot_due_s = now_s + min(config.snapshot_ms, SHORT_SNAPSHOT_MS) / 1000
            if written:
                self._snapshot_bytes = self._wal_bytes()
                try:
                    engine.snapshot()
                finally:  # it has to make room for the next one, if it can
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

    def _look_at_room(self, now_s: float) -> None:
        was_short, self._was_short = self._was_short, self._engine.reserve.is_short
        if self._was_short:
            self._engine.look_at_room()
            if not was_short:
                self._snapshot_due_s = now_s

    def _checkpoint_step(self) -> None:
        engine = self._engine
        is_dirty = any(shard.dirty for shard in engine.shards)
        try:
            if is_dirty:
                engine.checkpoint()
        finally:
            if engine.pins.take_released() or is_dirty:
                engine.maintain()

    def _router_step(self) -> bool:
        """Forward; tell whether somebody came between who wanted to read or to change a router."""
        self._engine.forward_once()
        return self._engine.has_due_routers

    def _has_no_routers(self, _rouse: Callable[[], None]) -> bool:
        return not self._engine.has_routers  # the first one asks for a step

    def _has_no_cold_tier(self, _rouse: Callable[[], None]) -> bool:
        return self._engine.stores.cold is None

    def _cold_step(self) -> None:
        if self._engine.stores.cold is not None:
            self._engine.relocate()

    def _wal_bytes(self) -> int:
        return sum(shard.commit.log.counters.bytes_written for shard in self._engine.shards)
