"""The scripted workloads: together they go through every operation that touches a disk."""

import itertools
from itertools import islice
from random import Random
from typing import NamedTuple

import msgspec

from topics.config import ServerConfig
from topics.limits import KIB
from topics.testing.workload import (
    TOPIC_CONFIGS,
    Append,
    Burst,
    Configure,
    Delete,
    Drop,
    Numbering,
    Operation,
    Overlap,
    Restart,
    Step,
    Tick,
    Work,
    random_operations,
)


def tiny(wal_shards: int) -> ServerConfig:
    """Return a config in which a few records fill a WAL file, and fewer a segment."""
    return ServerConfig(
        data_dir="hot",
        cold_dir="cold",
        wal_shards=wal_shards,
        wal_file_bytes=4096,
        segment_max_events=4,
        hot_retain_segments=1,
    )


def tiny_in_flood(wal_shards: int) -> ServerConfig:
    """Return a config in which a few records are a flood for a checkpoint."""
    return msgspec.structs.replace(tiny(wal_shards), checkpoint_bytes=2 * KIB)


class Scenario(NamedTuple):
    """A workload, and how many cut points it has at least: a sweep cannot shrink unseen."""

    name: str
    operations: list[Operation]
    cut_points_min: int


def _create(*topics: str) -> list[Operation]:
    return [Configure(topic, TOPIC_CONFIGS[topic]) for topic in topics]


_N = Numbering()
_PLAIN = itertools.count(10_000)


def _append(topic: str, count: int = 1, *, pad: int = 0, tag: str | None = None) -> Append:
    return Append(topic, _N.take(count), count, tag=tag, pad=pad)


def _alike(topic: str, count: int) -> list[Operation]:
    """Append records one by one whose frames all have one size: three of them fill a WAL file."""
    plain = islice((n for n in _PLAIN if n % 5 and n % 7), count)
    return [Append(topic, n, pad=1_100) for n in plain]


def _keyed(topic: str) -> Append:
    n = _N.take(2)
    return Append(topic, n, 2, key=f"key-{n}")


def _produced(topic: str) -> Append:
    n = _N.take()
    return Append(topic, n, producer=("p", n))


def _work(*steps: Step) -> list[Operation]:
    return [Work(step) for step in steps]


def _random(seed: int, count: int) -> list[Operation]:
    chance = Random(seed)
    names = list(TOPIC_CONFIGS)
    return _create(*names) + random_operations(chance, count, topics=names, numbers=Numbering())


SCENARIOS = [
    Scenario(
        "append in every durability class",
        [
            *_create("sure", "fast", "maybe", "gone"),
            *(_append(t, 3, tag="a:1") for t in ("sure", "fast", "maybe", "gone")),
            _keyed("sure"), _keyed("fast"), _produced("sure"), _produced("fast"),
            *_work("sync"),
            *(_append(t, 2, pad=600) for t in ("gone", "maybe", "fast", "sure")),
        ],
        50,
    ),
    Scenario(
        "group commit",
        [
            *_create("sure", "fast", "capped"),
            Burst((_append("sure", 2), _append("fast", 3), _append("capped", 9), _keyed("sure"))),
            Burst((_keyed("fast"), _append("fast", 1, pad=900), _append("sure", 1, pad=900))),
            Burst((_append("capped", 2), _produced("sure"), _append("fast", 9, pad=300))),
        ],
        36,
    ),
    Scenario(
        "writes and a rotation while a sync runs",
        [
            *_create("sure", "fast", "capped"),
            Overlap(_append("sure", 2), (_append("fast", 2), _keyed("sure"), _append("capped"))),
            Overlap(_append("sure", 3, pad=900), (_append("sure"), _append("fast", 2, pad=900))),
            _append("sure"), *_work("spare"),
            Overlap(_append("sure", pad=900), (_append("capped", 2), _append("sure", 4, pad=900))),
            Overlap(_append("fast"), (_append("fast"),)), *_work("sync"),
        ],
        80,
    ),
    Scenario(
        "rotation, with and without a spare",
        [
            *_create("sure", "fast"),
            _append("fast", 3, pad=900), _append("fast", 3, pad=900), _append("sure"),
            *_work("spare"),
            _append("fast", 4, pad=900), _append("fast", 9, pad=900), _append("sure", 2, pad=900),
            *_work("sync", "spare", "spare"),
            _append("sure", 4, pad=900), _append("fast", 2),
        ],
        78,
    ),
    Scenario(
        "checkpoint and seal",
        [
            *_create("sure", "fast"),
            _append("sure", 3), _append("fast", 2), *_work("checkpoint"),
            _append("sure", 2, tag="a:1"), *_work("checkpoint"),
            _append("sure", 9, tag="b:1"), _append("fast", 6), *_work("checkpoint", "checkpoint"),
            _append("sure"),
        ],
        70,
    ),
    Scenario(
        "snapshot and trim",
        [
            *_create("sure", "fast"),
            _append("sure", 4, pad=900), *_work("snapshot"),
            _append("fast", 4, pad=900), _keyed("fast"), *_work("snapshot"),
            _append("sure", 5, pad=900), _produced("sure"), *_work("snapshot", "snapshot"),
            _append("fast"),
        ],
        120,
    ),
    Scenario(
        "delete by tag and by seq",
        [
            *_create("sure", "fast"),
            _append("sure", 6, tag="a:1"), _append("sure", 6, tag="b:1"),
            _append("fast", 3, tag="a:2"), Delete("sure", tag="a:*"), Delete("fast", before_seq=3),
            *_work("checkpoint"),
            Delete("sure", before_seq=9, tag="b:1"), _append("sure", 2, tag="b:1"),
            *_work("snapshot"), Delete("sure", tag="b:1"), Delete("fast", tag="a:2"),
            *_work("snapshot", "maintain"),
        ],
        100,
    ),
    Scenario(
        "cap and time to live",
        [
            *_create("capped", "brief", "small"),
            _append("capped", 9), _append("brief", 3), _append("small", 5, pad=120),
            Tick(3_000), _append("brief", 2), *_work("checkpoint"), Tick(3_000),
            _append("capped", 3), *_work("sweep", "snapshot"), _append("small", 2, pad=120),
            *_work("maintain"), Tick(6_000), *_work("sweep"), _append("brief"),
        ],
        90,
    ),
    Scenario(
        "config change",
        [
            *_create("sure", "fast"),
            _append("sure", 8), _append("fast", 8, pad=50),
            Configure("sure", {"cap_records": 3}), Configure("fast", {"durability": "fsync"}),
            _append("fast", 2), _append("sure", 2), Configure("sure", {"durability": "disk"}),
            _append("sure", 2), *_work("checkpoint"), Configure("fast", {"cap_bytes": 200}),
            Configure("sure", {"cap_records": 0}), _append("sure", 3), *_work("snapshot"),
        ],
        80,
    ),
    Scenario(
        "tag index, rewrite and reclaim",
        [
            *_create("sure"),
            *(_append("sure", 1, tag=f"t:{i}", pad=20) for i in range(14)),
            *_work("snapshot", "maintain"),
            Delete("sure", tag="t:1"), Delete("sure", tag="t:2"), Delete("sure", tag="t:3"),
            *_work("maintain"), Delete("sure", tag="t:1*"), *_work("checkpoint", "maintain"),
            Delete("sure", before_seq=6), *_work("maintain", "snapshot", "maintain"),
        ],
        155,
    ),
    Scenario(
        "merge of tag runs",
        [
            *_create("fast"),
            *(_append("fast", 4, tag=f"t:{i}") for i in range(9)),
            *_work("checkpoint", "maintain"), Delete("fast", tag="t:3"),
            *_work("checkpoint", "maintain"), Delete("fast", tag="t:*"), *_work("maintain"),
        ],
        140,
    ),
    Scenario(
        "relocation",
        [
            *_create("sure", "capped"),
            _append("sure", 14, tag="a:1"), _append("capped", 7), *_work("checkpoint", "relocate"),
            Delete("sure", before_seq=3, tag="a:1"), *_work("relocate", "snapshot"),
            _append("sure", 9), _append("capped", 6), *_work("snapshot", "relocate", "maintain"),
            Delete("sure", tag="a:*"), *_work("snapshot", "maintain", "relocate"),
        ],
        200,
    ),
    Scenario(
        "delete and recreate a topic",
        [
            *_create("sure", "fast"),
            _append("sure", 6, tag="a:1"), _append("fast", 5), *_work("snapshot", "maintain"),
            Drop("sure"), *_create("sure"), _append("sure", 2), Drop("fast"),
            *_work("snapshot"), *_create("fast"), _append("fast", 3), *_work("relocate"),
            *_work("snapshot"), Drop("sure"),
        ],
        110,
    ),
    Scenario(
        "a delete, a kill and a snapshot",
        [
            *_create("sure"), _append("sure", tag="c:1"), _append("sure", 7, tag="a:1"),
            *_work("snapshot", "maintain"), Delete("sure", before_seq=4, tag="a:*"),
            Restart("kill"), *_work("snapshot"), Delete("sure", tag="a:*"), Restart("kill"),
            *_work("maintain"), _append("sure"), *_work("snapshot", "snapshot"),
        ],
        110,
    ),
    Scenario(
        "kills and clean stops",
        [
            *_create("sure", "fast", "gone"),
            _append("fast", 4, pad=900), _append("fast", 4, pad=900), _append("gone", 2),
            Restart("kill"), _append("sure", 2), _append("fast"), *_work("checkpoint"),
            Restart("kill"), _append("sure"), Restart("clean"), _append("fast", 3), _append("gone"),
            Delete("sure", before_seq=2), Restart("clean"), Restart("kill"), _append("sure"),
        ],
        240,
    ),
    *(Scenario(f"random workload {seed}", _random(seed, 24), 90) for seed in range(4)),
]  # fmt: skip
FLOOD = Scenario(
    "flood",
    [
        *_create("sure", "fast"),
        *(
            operation
            for _ in range(2)
            for operation in (
                *_alike("fast", 7), *_work("snapshot"),
                *_alike("fast", 4), *_work("spare"), *_alike("fast", 2), *_work("checkpoint"),
                *_alike("fast", 3), *_work("spare"), *_alike("fast", 2), _append("sure"),
            )
        ),
    ],
    150,
)  # fmt: skip
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
