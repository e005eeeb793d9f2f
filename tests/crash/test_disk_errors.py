"""A disk that fails, once or for ever, at every call: no ack after a failed sync (oracle 12).

While the disk fails: what is visible is exactly what was acknowledged, and reads go on. After a
restart, by kill or power cut: acknowledged ⊆ readable ⊆ submitted.
"""

import threading
import typing
from typing import Final, Literal, NamedTuple

import pytest
from tests.crash.scenarios import BY_NAME, tiny

from topics.engine.request import encode_write, read_write
from topics.errors import DiskFailed, DiskFull, ShardReadOnly, StorageError, TooManyFiles
from topics.testing.crash_history import History
from topics.testing.crash_recorder import Disks
from topics.testing.crash_run import CrashRun
from topics.testing.crash_sweep import KILL, check_afterlife, start, told
from topics.testing.crash_validate import Crash, check_live, resolve
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan, Operation
from topics.testing.manual_clock import ManualClock
from topics.testing.workload import Append, Configure, Work
from topics.testing.workload import Operation as Step

CONFIG = tiny(2)
NAMES = [
    "append in every durability class",
    "group commit",
    "rotation, with and without a spare",
    "checkpoint and seal",
    "snapshot and trim",
    "delete by tag and by seq",
    "tag index, rewrite and reclaim",
    "relocation",
]
STRIDE = 7
DEADLINE_S = 10.0
Broken = Literal["sync_data", "write_at"]


class Failure(NamedTuple):
    """One way to fail the n-th call."""

    name: str
    forever: bool
    error: type[DiskFailed]
    short_bytes: int | None = None

    def plan(self, call: int) -> FaultPlan:
        if self.short_bytes is not None:
            return FaultPlan().write_short(
                at_call=call, operation=None, written_bytes=self.short_bytes, error=self.error
            )
        return FaultPlan().fail(at_call=call, error=self.error, forever=self.forever)


FAILURES = [
    Failure("EIO once", forever=False, error=DiskFailed),
    Failure("EIO for ever", forever=True, error=DiskFailed),
    Failure("ENOSPC once", forever=False, error=DiskFull),
    Failure("ENOSPC for ever", forever=True, error=DiskFull),
    Failure("short write", forever=False, error=DiskFull, short_bytes=70),
]


def calls_of(operations: list[Step]) -> range:
    """Return the calls of a whole run, from the one after the start."""
    run = CrashRun(CONFIG)
    first = run.disks.hot.calls_made
    run.run(operations)
    return range(0, run.disks.hot.calls_made - first, STRIDE)


def run_with(plan: FaultPlan, operations: list[Step]) -> CrashRun:
    run = CrashRun(CONFIG, disks=Disks(HostileDisk(), HostileDisk()))
    run.disks.hot.arm(plan)
    for operation in operations:
        run.apply_or_fail(operation)
    run.disks.hot.arm(NO_FAULTS)
    return run


def check_restarts(run: CrashRun) -> None:
    now_ms = run.clock.now_ms()
    trusted = not run.is_read_only
    for seed in (0, 3):
        after = start(CONFIG, run.disks.copy().power_cut(seed), now_ms)
        resolve(after.log, run.history, crash="power", now_ms=now_ms)
    after = start(CONFIG, run.disks.copy(), now_ms)
    crash: Crash = "kill" if trusted else "untrusted kill"
    after.history = resolve(after.log, run.history, crash=crash, now_ms=now_ms)
    check_afterlife(after, run.history, KILL)
    check_what_a_start_believed(run)


def check_what_a_start_believed(run: CrashRun) -> None:
    """Cut the power after the restart: what it could read it must have written once more."""
    now_ms = run.clock.now_ms()
    after = start(CONFIG, run.disks.kill(), now_ms)
    crash: Crash = "untrusted kill" if run.is_read_only else "kill"
    after.history = resolve(after.log, run.history, crash=crash, now_ms=now_ms)
    after.run([Work("snapshot"), Work("maintain"), Work("snapshot")])
    again = start(CONFIG, after.disks.power_cut(0), now_ms)
    resolve(again.log, after.history, crash="power", now_ms=now_ms)


@pytest.mark.crash
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_a_failing_call_takes_nothing_that_was_promised(name: str, failure: Failure) -> None:
    operations = BY_NAME[name].operations
    calls = calls_of(operations)
    assert len(calls) >= 3, "the sweep has shrunk"
    for call in calls:
        with told(f"{failure.name} at call {call} of {name}"):
            check_restarts(run_with(failure.plan(call), operations))


OPENING: Final = ("create", "list", "make_dir", "open", "sync_dir")
"""Calls that need a descriptor; for what they do with it they do not fail."""


@pytest.mark.crash
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("opening", OPENING)
def test_a_file_that_cannot_be_opened_now_is_opened_later(name: str, opening: Operation) -> None:
    """Nothing was done to it: no shard goes out of service, and what was refused works again."""
    operations = BY_NAME[name].operations
    for call in range(0, 15, 3):
        with told(f"no descriptor for {opening} {call} of {name}"):
            plan = FaultPlan().fail(operation=opening, at_call=call, error=TooManyFiles)
            run = run_with(plan, operations)
            assert not run.is_read_only
            run.run([Work("checkpoint"), Work("maintain"), Work("snapshot")])
            check_restarts(run)


@pytest.mark.crash
@pytest.mark.parametrize("forever", [False, True])
def test_a_start_that_finds_no_room_at_a_call_takes_nothing(*, forever: bool) -> None:
    """It goes on without, or says so: the next one finds all that was promised."""
    operations = BY_NAME["snapshot and trim"].operations
    whole = CrashRun(CONFIG, disks=Disks(HostileDisk(), HostileDisk()))
    whole.run(operations)
    started, now_ms = 0, whole.clock.now_ms()
    for call in range(60):
        disks = whole.disks.copy()
        disks.hot.arm(FaultPlan().fail(at_call=call, error=DiskFull, forever=forever))
        with told(f"no room at call {call} of a start"):
            try:
                run = CrashRun(CONFIG, disks=disks, clock=ManualClock(now_ms))
            except DiskFull:
                disks = disks.kill()
            else:
                started += 1
                check_live(run.log, whole.history, now_ms=now_ms)
                disks = run.disks.kill()
            after = start(CONFIG, disks, now_ms)
            resolve(after.log, whole.history, crash="kill", now_ms=now_ms)
    assert started > 0


def opened(history: History | None = None) -> CrashRun:
    run = CrashRun(tiny(1), history=history)
    run.run([Configure("sure", {"durability": "fsync"}), Append("sure", 1, 2)])
    return run


@pytest.mark.crash
@pytest.mark.parametrize("operation", typing.get_args(Broken))
@pytest.mark.parametrize("error", [DiskFailed, DiskFull])
def test_after_a_failed_write_or_sync_the_shard_is_read_only(
    operation: Broken, error: type[DiskFailed]
) -> None:
    run = opened()
    run.disks.hot.arm(FaultPlan().fail(operation=operation, path="wal/wal-*", error=error))
    with pytest.raises(error):
        run.apply(Append("sure", 10, 2))
    for step in (Append("sure", 20), Work("checkpoint"), Work("snapshot")):
        with pytest.raises(ShardReadOnly):
            run.log.append("sure", [{"data": 1}])
        with pytest.raises(StorageError):
            run.apply(step)
    assert [record.data["n"] for record in run.log.diff("sure").records] == [1, 2]


@pytest.mark.crash
def test_a_full_disk_at_rotation_refuses_and_recovers() -> None:
    run = opened()
    run.disks.hot.arm(FaultPlan().fail(operation="allocate", error=DiskFull, forever=True))
    for _ in range(2):  # at the rotation, and then before anything was tried
        with pytest.raises(DiskFull):
            run.log.append("sure", [{"data": "x" * 900}] * 5)
    run.disks.hot.arm(NO_FAULTS)
    run.clock.advance_ms(1_000)
    assert run.log.append("sure", [{"data": "x" * 900}] * 5).first_seq == 3


@pytest.mark.crash
@pytest.mark.parametrize("error", [DiskFailed, DiskFull])
def test_a_writer_that_waits_for_a_sync_hears_of_a_later_failed_write(
    error: type[DiskFailed],
) -> None:
    run = opened()
    engine = run.log.engine
    topic = engine.topic("sure")
    first = read_write(encode_write([{"data": 1}]), CONFIG)
    shard, waiting = engine.submit_append(topic, first)
    with shard.lock:
        shard.commit.flush()
    run.disks.hot.arm(FaultPlan().fail(operation="write_at", path="wal/wal-*", error=error))
    second = read_write(encode_write([{"data": 2}]), CONFIG)
    _, failing = engine.submit_append(topic, second)
    with pytest.raises(StorageError):
        shard.commit.commit(failing)
    failures: list[StorageError] = []

    def wait() -> None:
        try:
            shard.commit.commit(waiting)
        except StorageError as failure:
            failures.append(failure)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the writer waits for ever"
    assert failures, "the writer was told that its record is durable"
