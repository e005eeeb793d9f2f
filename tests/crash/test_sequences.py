"""All sequences of up to two operations, and a part of those of three, cut at every disk call.

Most crash bugs need at most three operations (CrashMonkey); the rest of the space of three is for
`make torture`.
"""

from functools import cache
from itertools import product

import pytest
from tests.crash.scenarios import tiny

from topics.testing.crash_run import CutPoint
from topics.testing.crash_sweep import KILL, crash_everywhere, record
from topics.testing.workload import (
    TOPIC_CONFIGS,
    Append,
    Configure,
    Delete,
    Drop,
    Operation,
    Restart,
    Tick,
    Work,
)

CONFIG = tiny(1)
PROLOGUE: list[Operation] = [
    Configure("sure", {"durability": "fsync", "ttl_ms": 20_000}),
    Configure("fast", TOPIC_CONFIGS["fast"]),
    Append("sure", 1, 1, tag="c:1"),
    Append("sure", 2, 5, tag="a:1"),
    Append("fast", 7, 5, tag="b:1", pad=200),
    Work("snapshot"),
    Work("maintain"),
    Append("sure", 12, 3, tag="b:1"),
    Append("fast", 15, 2, pad=600, key="early"),
]
STEPS: list[Operation] = [
    Append("sure", 100, 2, tag="a:1", pad=500),
    Append("fast", 110, 3, tag="b:2", pad=900),
    Append("fast", 15, 2, pad=600, key="early"),
    Delete("sure", tag="a:*"),
    Delete("fast", before_seq=5),
    Configure("sure", {"cap_records": 4}),
    Configure("fast", {"durability": "fsync"}),
    Drop("fast"),
    Tick(21_000),
    Work("sync"),
    Work("checkpoint"),
    Work("snapshot"),
    Work("maintain"),
    Work("relocate"),
    Restart("kill"),
    Restart("clean"),
]


def numbered(steps: tuple[Operation, ...]) -> list[Operation]:
    """Give every append of a sequence payloads of its own."""
    return [
        Append(step.topic, step.n + 1000 * place, step.count, step.tag, step.pad, step.key)
        if isinstance(step, Append)
        else step
        for place, step in enumerate(steps)
    ]


@cache
def base() -> tuple[CutPoint, int]:
    """Return where every sequence begins, and how many calls a start there makes."""
    start = record(CONFIG, PROLOGUE)[-1]
    return start, len(record(CONFIG, [], base=start)) - 1


def cut_sequences(sequences: list[tuple[Operation, ...]], seeds: list[int]) -> int:
    """Cut each sequence at every call, with the seeds in turn."""
    start, start_calls = base()
    crashes = 0
    for steps in sequences:
        cut_points = record(CONFIG, numbered(steps), base=start)
        # The start is the same for all of them: the single operations are enough for it.
        skipped = 0 if len(steps) == 1 else start_calls
        for turn, seed in enumerate(seeds):
            part = cut_points[skipped + turn :: len(seeds)]
            crashes += crash_everywhere(CONFIG, part, [seed], label=steps)
    return crashes


@pytest.mark.crash
def test_every_single_operation() -> None:
    crashes = cut_sequences([(step,) for step in STEPS], [0, 3, KILL])
    assert crashes >= 400, "the sweep has shrunk"


@pytest.mark.crash
@pytest.mark.parametrize("first", STEPS, ids=repr)
def test_every_pair_of_operations(first: Operation) -> None:
    crashes = cut_sequences([(first, second) for second in STEPS], [0, 5, KILL])
    assert crashes >= 150, "the sweep has shrunk"


@pytest.mark.crash
@pytest.mark.parametrize("part", range(4))
def test_some_triples_of_operations(part: int) -> None:
    triples = list(product(STEPS, repeat=3))[part * 31 :: 4 * 37]
    assert cut_sequences(triples, [0, 11, KILL]) >= 200, "the sweep has shrunk"


@pytest.mark.crash
def test_naming_a_default_is_no_change_and_makes_nothing_durable() -> None:
    operations: list[Operation] = [
        Configure("brief", {"durability": "memory"}),
        Append("brief", 1, 1),
        Append("brief", 2, 1),
        Configure("brief", {"cap_bytes": 0}),
    ]
    assert crash_everywhere(CONFIG, record(CONFIG, operations), [0, 3, KILL]) >= 60
