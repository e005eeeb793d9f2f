"""The three kinds of torture: a simulated disk, kill -9, power cuts of a real file system."""

import itertools
import tempfile
import time
from itertools import product
from random import Random

from tests.crash.scenarios import tiny
from tests.crash.test_sequences import CONFIG, PROLOGUE, STEPS, numbered
from tests.crash.test_server_kill import kill_server_cycles
from tests.torture.report import Totals

from topics.config import ServerConfig
from topics.testing.crash_observe import Violation
from topics.testing.crash_real import kill_cycles, power_cut_cycles
from topics.testing.crash_shrink import shrink
from topics.testing.crash_sweep import KILL, check_recovery_cuts, crash_everywhere, record, told
from topics.testing.power_image import why_not
from topics.testing.workload import (
    TOPIC_CONFIGS,
    Configure,
    Numbering,
    Operation,
    random_operations,
)

OPERATIONS_PER_ROUND = 40
SHOW_EVERY_S = 10.0


class Deadline:
    """When to stop; Ctrl-C moves it to now."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.ends_s


def kill_round(totals: Totals, deadline: Deadline, *, cycles: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="topics-torture-") as directory:
        for acks in kill_cycles(f"{directory}/data", cycles=cycles, seed=seed):
            totals.kills += 1
            totals.real_acks += acks
            if deadline.is_over:
                break
    print(
        f"kill -9: {totals.kills} cycles, {totals.real_acks} acknowledged writes kept", flush=True
    )


def server_kill_round(totals: Totals, deadline: Deadline, *, cycles: int, seed: int) -> None:
    before = totals.kills
    with tempfile.TemporaryDirectory(prefix="topics-torture-") as directory:
        rounds = kill_server_cycles(f"{directory}/data", cycles=cycles, seed=seed)
        try:
            while not deadline.is_over and (acks := next(rounds, None)) is not None:
                totals.kills += 1
                totals.real_acks += acks
        finally:
            rounds.close()  # stops the server
    print(f"kill -9 of the server under mixed load: {totals.kills - before} cycles", flush=True)


def power_cut_round(totals: Totals, deadline: Deadline, *, cycles: int, seed: int) -> None:
    reason = why_not()
    if reason is not None:
        print(f"power cuts of a real file system are skipped: {reason}", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="topics-torture-") as directory:
        rounds = power_cut_cycles(directory, cycles=cycles, seed=seed)
        try:
            while not deadline.is_over and (acks := next(rounds, None)) is not None:
                totals.power_cuts += 1
                totals.real_acks += acks
        finally:
            rounds.close()  # unmounts
    print(f"power cuts of ext4: {totals.power_cuts} cycles", flush=True)


def simulate_rounds(totals: Totals, deadline: Deadline, *, seed: int) -> None:
    """Random workloads, and all sequences of three operations in a random order."""
    chance = Random(seed)
    triples = list(product(STEPS, repeat=3))
    chance.shuffle(triples)
    shown_s = time.monotonic()
    for number in itertools.count():
        if deadline.is_over:
            return
        if number % 2:
            _sequence_round(totals, chance, triples[number // 2 % len(triples)])
        else:
            _random_round(totals, chance, seed=seed, number=number)
        if time.monotonic() - shown_s > SHOW_EVERY_S:
            shown_s = time.monotonic()
            print(totals.text(), flush=True)


def _random_round(totals: Totals, chance: Random, *, seed: int, number: int) -> None:
    config = tiny(chance.choice([1, 1, 2, 3]))
    names = chance.sample(sorted(TOPIC_CONFIGS), chance.randint(1, len(TOPIC_CONFIGS)))
    start: list[Operation] = [Configure(name, TOPIC_CONFIGS[name]) for name in names]
    operations = start + random_operations(
        chance, OPERATIONS_PER_ROUND, topics=names, numbers=Numbering()
    )
    seeds = [0, KILL, chance.randrange(2, 1 << 30), chance.randrange(2, 1 << 30)]
    try:
        totals.simulated += _crash(config, operations, seeds)
    except Violation as violation:
        small = shrink(operations, lambda smaller: _fails(config, smaller, seeds))
        call = f"crash_everywhere(config, record(config, OPERATIONS), {seeds})"
        lines = ",\n    ".join(map(repr, small))
        raise Violation(
            f"{violation}\n\nround {number} of seed {seed}; the smallest workload, "
            f"with tiny({config.wal_shards}):\n"
            f"OPERATIONS = [\n    {lines}\n]\n{call}"
        ) from violation


def _sequence_round(totals: Totals, chance: Random, steps: tuple[Operation, ...]) -> None:
    base = record(CONFIG, PROLOGUE)[-1]
    cut_points = record(CONFIG, numbered(steps), base=base)
    seeds = [0, KILL, chance.randrange(2, 1 << 30)]
    totals.simulated += crash_everywhere(CONFIG, cut_points, seeds, label=steps)


def _crash(config: ServerConfig, operations: list[Operation], seeds: list[int]) -> int:
    cut_points = record(config, operations)
    crashes = crash_everywhere(config, cut_points, seeds)
    for number in range(0, len(cut_points), 40):
        with told(f"recovery cut, cut point {number}, seed {seeds[2]}"):
            crashes += check_recovery_cuts(
                config, cut_points[number], seeds[2], seeds=[seeds[3], KILL]
            )
    return crashes


def _fails(config: ServerConfig, operations: list[Operation], seeds: list[int]) -> bool:
    try:
        _crash(config, operations, seeds)
    except (Violation, AssertionError):
        return True
    return False
