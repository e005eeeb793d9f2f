"""Traffic for crash tests: what a workload does to a log, one small value a step.

An operation prints as the call that makes it, so a failing run can be pasted into a test. Every
record that was ever submitted has a number of its own (`n`), so that a payload names the write it
came from.
"""

from collections.abc import Iterable
from random import Random
from typing import Any, Literal, get_args

from msgspec import Struct

End = Literal["kill", "clean"]
Step = Literal["sync", "checkpoint", "snapshot", "maintain", "relocate", "sweep", "spare"]
TAGS = (None, "a:1", "a:2", "b:1")


class Append(Struct, frozen=True):
    """Append `count` records, numbered from `n`."""

    topic: str
    n: int
    count: int = 1
    tag: str | None = None
    pad: int = 0
    key: str | None = None
    producer: tuple[str, int] | None = None

    def records(self) -> list[dict[str, Any]]:
        return [self._record(self.n + i) for i in range(self.count)]

    def _record(self, n: int) -> dict[str, Any]:
        record: dict[str, Any] = {"data": {"n": n, "pad": "x" * self.pad}}
        if self.tag is not None:
            record["tag"] = self.tag
        if n % 5 == 0:
            record["node"] = f"node-{n % 3}"
        if n % 7 == 0:
            record["meta"] = {"from": n}
        return record

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"create": False}
        if self.key is not None:
            options["idempotency_key"] = self.key
        if self.producer is not None:
            options["producer_id"], options["producer_seq"] = self.producer
        return options


class Burst(Struct, frozen=True):
    """Several appends that one group commit takes together."""

    appends: tuple[Append, ...]


class Overlap(Struct, frozen=True):
    """An append, and others that are written while its sync runs."""

    first: Append
    meanwhile: tuple[Append, ...]


class Configure(Struct, frozen=True):
    """Create a topic, or change the config of one."""

    topic: str
    config: dict[str, Any]


class Drop(Struct, frozen=True):
    """Delete a topic."""

    topic: str


class Delete(Struct, frozen=True):
    """Delete records below a seq (0: no bound), by tag (a trailing star: a prefix), or both."""

    topic: str
    before_seq: int = 0
    tag: str | None = None

    def match(self) -> list[str] | None:
        if self.tag is None:
            return None
        return ["tag", "Glob" if self.tag.endswith("*") else "Eq", self.tag]


class Tick(Struct, frozen=True):
    """Let time pass."""

    ms: int


class Work(Struct, frozen=True):
    """One step of what the background does."""

    step: Step


class Restart(Struct, frozen=True):
    """End the process, and start the next one on what it left."""

    how: End


Operation = Append | Burst | Overlap | Configure | Drop | Delete | Tick | Work | Restart


class Numbering:
    """Hands out the numbers of records, idempotency keys and producer seqs."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def take(self, count: int = 1) -> int:
        first = self._next
        self._next += count
        return first


TOPIC_CONFIGS: dict[str, dict[str, Any]] = {
    "sure": {"durability": "fsync"},
    "fast": {"durability": "disk"},
    "capped": {"durability": "fsync", "cap_records": 7},
    "brief": {"durability": "disk", "ttl_ms": 5_000},
    "small": {"durability": "disk", "cap_bytes": 600},
    "maybe": {"durability": "memory"},
    "gone": {"durability": "ephemeral"},
}
_CHANGES: tuple[dict[str, Any], ...] = (
    {"cap_records": 5},
    {"cap_records": 0},
    {"cap_bytes": 400},
    {"cap_bytes": 0},
    {"ttl_ms": 4_000},
    {"durability": "fsync"},
    {"durability": "disk"},
    {"durability": "memory"},
)
_WORK: tuple[Step, ...] = get_args(Step)


def random_operations(
    chance: Random, count: int, *, topics: Iterable[str], numbers: Numbering
) -> list[Operation]:
    """Make a workload: mostly appends, now and then everything else."""
    names = sorted(topics)
    return [_random_operation(chance, names, numbers) for _ in range(count)]


def _random_operation(chance: Random, names: list[str], numbers: Numbering) -> Operation:
    topic = chance.choice(names)
    dice = chance.random()
    if dice < 0.42:
        return _random_append(chance, topic, numbers)
    if dice < 0.50:
        appends = tuple(_random_append(chance, chance.choice(names), numbers) for _ in range(3))
        return Burst(appends) if dice < 0.46 else Overlap(appends[0], appends[1:])
    if dice < 0.60:
        return _random_delete(chance, topic)
    return _random_change(chance, topic)


def _random_change(chance: Random, topic: str) -> Operation:
    """Return anything but a write of records."""
    choices: list[Operation] = [
        *[Work(chance.choice(_WORK)) for _ in range(6)],
        Configure(topic, chance.choice(_CHANGES)),
        Configure(topic, chance.choice(_CHANGES)),
        Configure(topic, TOPIC_CONFIGS[topic]),
        Drop(topic),
        Tick(chance.choice([1, 1_500, 3_000])),
        Restart("kill"),
        Restart("clean"),
    ]
    return chance.choice(choices)


def _random_append(chance: Random, topic: str, numbers: Numbering) -> Append:
    count = chance.choice([1, 1, 2, 3, 9])
    first = numbers.take(count)
    dice = chance.random()
    return Append(
        topic,
        first,
        count,
        tag=chance.choice(TAGS),
        pad=chance.choice([0, 0, 10, 120, 700]),
        key=f"key-{first}" if dice < 0.2 else None,
        producer=(f"p{chance.randint(0, 1)}", first) if dice > 0.8 else None,
    )


def _random_delete(chance: Random, topic: str) -> Delete:
    tag = chance.choice([None, "a:1", "a:*", "b:*", "*"])
    if tag is None:
        return Delete(topic, before_seq=chance.randint(2, 20))
    return Delete(topic, before_seq=chance.choice([0, 0, 12]), tag=tag)
