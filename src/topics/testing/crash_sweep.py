"""Cut a recorded run at every call, start again, and hold the result against every oracle.

One cut point and one seed are one crash. After it: the state is one that was promised (oracles 1 to
5), the log goes on with seqs that nobody was told of, repeats are still known as repeats, and a
second crash right behind changes nothing (9).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from topics.config import ServerConfig
from topics.errors import TopicsError
from topics.testing.crash_history import History, Version
from topics.testing.crash_observe import Violation, observe_all
from topics.testing.crash_recorder import Disks
from topics.testing.crash_run import CrashRun, CutPoint
from topics.testing.crash_validate import Crash, resolve
from topics.testing.manual_clock import ManualClock
from topics.testing.workload import Append, Operation

KILL = -1
"""Stands for a kill in a list of seeds."""
AFTERLIFE_N = 1_000_000
"""Records that are appended after a crash are numbered from here."""


def record(
    config: ServerConfig, operations: list[Operation], *, base: CutPoint | None = None
) -> list[CutPoint]:
    """Run a workload once, on fresh disks or from where another stood; return its cut points."""
    if base is None:
        run = CrashRun(config, records=True)
    else:
        run = CrashRun(
            config,
            disks=base.disks.kill(),
            history=base.history.copy(),
            clock=ManualClock(base.now_ms),
            records=True,
        )
    run.run(operations)
    run.cut_points.append(run.cut_here())
    return run.cut_points


def crash_everywhere(
    config: ServerConfig, cut_points: list[CutPoint], seeds: list[int], *, label: object = ""
) -> int:
    """Crash at each cut point with each seed; return how many crashes that were."""
    for number, cut in enumerate(cut_points):
        for seed in seeds:
            with told(f"cut point {number} of {len(cut_points)}, seed {seed}, {label}"):
                check_crash(config, cut, seed, afterlife=number % len(seeds) == seeds.index(seed))
    return len(cut_points) * len(seeds)


def check_crash(config: ServerConfig, cut: CutPoint, seed: int, *, afterlife: bool) -> None:
    crash: Crash = "kill" if seed == KILL else "power"
    disks = _crashed(cut.disks.copy(), seed)
    run = start(config, disks, cut.now_ms)
    run.history = resolve(run.log, cut.history, crash=crash, now_ms=cut.now_ms)
    if afterlife:
        check_afterlife(run, cut.history, seed)


def start(config: ServerConfig, disks: Disks, now_ms: int) -> CrashRun:
    """Start on what a crash left: it must be possible."""
    try:
        return CrashRun(config, disks=disks, clock=ManualClock(now_ms))
    except TopicsError as error:
        raise Violation(f"no start after the crash: {error!r}") from error


def check_afterlife(run: CrashRun, before: History, seed: int) -> None:
    """Crash again at once; then repeat and append, crash a third time, and find it all."""
    found = observe_all(run.log)
    again = start(run.config, _crashed(run.disks, seed), run.clock.now_ms())
    if observe_all(again.log) != found:
        raise Violation(f"a second start found {observe_all(again.log)}, the first {found}")
    again.history = run.history
    n = AFTERLIFE_N
    for topic, track in sorted(before.tracks.items()):
        for append in repeats_of(topic, track.newest, again.history.newest(topic)):
            again.apply(append)
        again.apply(Append(topic, n, 2, tag="late"))
        n += 2
    again.log.sync()
    again.history.all_durable()
    third = start(run.config, again.disks.power_cut(max(seed, 0)), run.clock.now_ms())
    resolve(third.log, again.history, crash="power", now_ms=run.clock.now_ms())


def repeats_of(topic: str, submitted: Version, found: Version) -> Iterator[Append]:
    """Make keyed writes once more: those that were found must be known, others are written now."""
    if submitted is None or found is None or submitted.durability == "ephemeral":
        return
    for key in list(submitted.keys)[-2:]:
        if key not in found.unsure:
            yield Append(topic, AFTERLIFE_N * 2, key=key)
    for name, history in submitted.producers.items():
        if name not in found.unsure:
            yield Append(topic, AFTERLIFE_N * 3, producer=(name, max(history)))


def check_recovery_cuts(config: ServerConfig, cut: CutPoint, seed: int, *, seeds: list[int]) -> int:
    """Crash, then crash the start at each of its own calls: the next start finds the same."""
    crash: Crash = "kill" if seed == KILL else "power"
    whole = start(config, _crashed(cut.disks.copy(), seed), cut.now_ms)
    resolve(whole.log, cut.history, crash=crash, now_ms=cut.now_ms)
    wanted = observe_all(whole.log)
    recording = CrashRun(
        config,
        disks=_crashed(cut.disks.copy(), seed),
        clock=ManualClock(cut.now_ms),
        records=True,
    )
    recording.cut_points.append(recording.cut_here())
    for number, inner in enumerate(recording.cut_points):
        for inner_seed in seeds:
            with told(f"start cut at its call {number}, seed {inner_seed}"):
                again = start(config, _crashed(inner.disks.copy(), inner_seed), cut.now_ms)
                if seed == KILL and inner_seed != KILL:  # only now the power went
                    resolve(again.log, cut.history, crash="power", now_ms=cut.now_ms)
                elif (found := observe_all(again.log)) != wanted:
                    raise Violation(f"a cut start left {found}, a whole one {wanted}")
    return len(recording.cut_points) * len(seeds)


def _crashed(disks: Disks, seed: int) -> Disks:
    return disks.kill() if seed == KILL else disks.power_cut(seed)


@contextmanager
def told(where: str) -> Iterator[None]:
    """Say where a violation was found."""
    try:
        yield
    except (Violation, TopicsError, AssertionError) as error:
        raise Violation(f"{where}: {error!r}") from error
