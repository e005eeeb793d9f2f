"""Routers under crashes: cut the power, or kill, at every disk call of a few workloads.

Promise under test: oracle 8 of the fault notes (a destination is its source, filtered, in order),
and that copies keep their seqs although no log has them.
"""

from random import Random
from typing import Any

import pytest
from tests.crash.router_run import KILL, Op, crash_everywhere
from tests.crash.scenarios import tiny

SEEDS = [0, 17, KILL]


def create(name: str, **fields: Any) -> Op:  # noqa: ANN401 - fields of a config
    return Op("create", name, fields=fields)


def put(name: str, source: str, dest: str, **fields: Any) -> Op:  # noqa: ANN401 - of a router
    return Op("put", name, fields={"source": source, "dest": dest, **fields})


def append(topic: str, count: int = 2, tag: str | None = None) -> Op:
    return Op("append", topic, count, tag)


def read(topic: str) -> Op:
    return Op("read", topic)


def work(step: str) -> Op:
    return Op("work", step)


START = [create("a", durability="fsync"), create("b", durability="disk")]
SCENARIOS: dict[str, list[Op]] = {
    "forward": [*START, put("r", "a", "b"), append("a", 3), read("b"), append("a"), read("b"),
                append("a"), Op("forward")],
    "from a source that may lose its tail": [
        create("a", durability="disk"), create("b", durability="disk"), put("r", "a", "b"),
        append("a", 3), read("b"), work("sync"), append("a"), read("b"), append("b"), append("a"),
        read("b"), append("a"), read("b")],
    "into a destination of class fsync": [
        create("a", durability="disk"), create("b", durability="fsync"), put("r", "a", "b"),
        append("a", 3), read("b"), append("b"), append("a"), read("b"), work("checkpoint"),
        append("a"), read("b")],
    "checkpoint of the destination": [
        *START, put("r", "a", "b"), append("a", 5), read("b"), work("checkpoint"), append("a", 3),
        read("b"), work("checkpoint"), append("a"), read("b"), work("snapshot"), append("a"),
        read("b"), work("snapshot"), work("maintain"), append("a"), read("b")],
    "direct writes between the copies": [
        *START, put("r", "a", "b"), append("a"), read("b"), append("b"), read("b"), append("a"),
        read("b"), append("b", 1), append("a"), append("b", 1), read("b"), work("checkpoint"),
        append("b"), append("a"), read("b")],
    "a router changes": [
        *START, put("r", "a", "b", filter="x"), append("a", 2, "x"), append("a", 2, "y"), read("b"),
        put("r", "a", "b", filter="y"), append("a", 2, "x"), append("a", 2, "y"), read("b"),
        append("b"), put("r", "a", "b"), append("a", 3), read("b")],
    "a router goes": [
        *START, put("r", "a", "b"), append("a", 3), read("b"), Op("unput", "r"), append("a"),
        read("b"), append("b"), put("r", "a", "b"), append("a"), read("b")],
    "the source goes": [
        *START, put("r", "a", "b"), append("a", 6), read("b"), append("b"), Op("drop", "a"),
        read("b"), append("b"), create("a", durability="fsync"), append("a"), read("b"),
        put("r", "a", "b"), append("a"), read("b")],
    "the destination goes": [
        *START, put("r", "a", "b"), append("a", 3), read("b"), Op("drop", "b"), append("a"),
        create("b", durability="disk"), append("b"), put("r", "a", "b"), append("a"), read("b")],
    "deletes on both sides": [
        *START, put("r", "a", "b"), append("a", 3, "x"), append("a", 3, "y"), read("b"),
        Op("delete", "a", tag="x"), append("b", 2, "x"), Op("delete", "b", tag="x"), append("a"),
        read("b"), work("snapshot"), work("maintain"), append("a", 5, "x"), read("b"),
        Op("delete", "a", 9), work("checkpoint"), work("maintain"), Op("delete", "b", tag="y"),
        append("a", 2, "x"), read("b"), Op("delete", "b", 6), read("b")],
    "a source that would drop what only it can tell": [
        *START, put("r", "a", "b"), append("a", 7, "x"), append("a", 1, "y"), append("a", 9, "x"),
        work("checkpoint"), Op("delete", "a", tag="x"), read("b"), work("maintain"), append("a"),
        read("b"), work("maintain"), work("snapshot"), work("maintain"), append("a"), read("b")],
    "a source in the cold tier": [
        *START, put("r", "a", "b"), append("a", 9, "x"), append("a", 9, "y"), work("checkpoint"),
        work("relocate"), read("b"), Op("delete", "a", tag="x"), append("a"), read("b"),
        work("maintain"), work("relocate"), work("snapshot"), append("a"), read("b"),
        work("relocate"), work("maintain"), append("b"), read("b")],
    "a source that evicts": [
        create("a", durability="fsync", cap_records=3), create("b", durability="disk"),
        put("r", "a", "b"), append("a", 2), read("b"), append("a", 5), read("b"),
        work("checkpoint"), work("maintain"), append("a", 6), append("a", 6), Op("forward"),
        read("b"), work("snapshot"), work("maintain"), append("a", 2), read("b")],
    "a full destination, and what its source lost meanwhile": [
        create("a", durability="fsync", cap_records=3),
        create("b", durability="disk", cap_records=4, discard="reject"),
        put("r", "a", "b"), append("a", 3), read("b"), append("a", 3), read("b"), append("a", 4),
        Op("forward"), work("checkpoint"), work("maintain"), Op("delete", "b", 4), read("b"),
        append("a"), Op("delete", "b", 8), Op("tick", count=6_000), Op("forward"), read("b")],
    "a chain": [
        *START, create("c", durability="fsync"), put("r", "a", "b"), put("s", "b", "c", filter="x"),
        append("a", 3, "x"), read("c"), append("b", 2, "x"), append("a", 2, "y"), read("c"),
        work("checkpoint"), append("a", 2, "x"), append("b", 1, "x"), read("c"), append("c"),
        append("a", 2, "x"), read("b"), read("c")],
    "an ephemeral source": [
        create("b", durability="disk"), create("a", durability="fsync"),
        create("e", durability="ephemeral"), put("r", "e", "b"), append("b"), append("e"),
        read("b"), work("checkpoint"), append("e"), append("b"), read("b"), append("e"),
        work("sync"), Op("restart", "kill"), append("e"), read("b")],
    "a circle": [
        *START, put("r", "a", "b"), append("a", 2), put("s", "b", "a", allow_cycle=True),
        append("b"), read("b"), append("a"), read("a"), work("checkpoint"), append("a"),
        read("b"), Op("unput", "s"), append("a"), read("b")],
    "kills and clean stops": [
        *START, put("r", "a", "b"), append("a", 3), read("b"), append("b"), Op("restart", "kill"),
        append("a"), Op("restart", "clean"), append("a"), append("b"), Op("restart", "kill"),
        work("snapshot"), append("a"), read("b")],
}  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("wal_shards", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_call_leaves_every_copy_in_its_place(name: str, wal_shards: int) -> None:
    assert crash_everywhere(tiny(wal_shards), SCENARIOS[name], SEEDS) >= 60, "the sweep has shrunk"


def random_operations(seed: int, count: int) -> list[Op]:
    chance = Random(seed)
    classes = ["disk", "fsync"]
    operations = [create(name, durability=chance.choice(classes)) for name in ("a", "b", "c")]
    operations.append(put("r", "a", "b", filter=chance.choice([None, "x"])))
    operations.append(put("s", "b", "c", filter=chance.choice([None, "x"])))
    for _ in range(count):
        topic = chance.choice(["a", "a", "b", "c"])
        tag = chance.choice([None, "x", "y"])
        operations.append(
            chance.choice(
                [
                    append(topic, chance.randint(1, 5), tag),
                    append("a", chance.randint(1, 5), tag),
                    read(chance.choice(["b", "c"])),
                    Op("forward"),
                    Op("delete", topic, tag=chance.choice(["x", "y"])),
                    Op("delete", topic, chance.randint(1, 12)),
                    work(chance.choice(["sync", "checkpoint", "snapshot", "maintain", "relocate"])),
                    Op("restart", chance.choice(["kill", "clean"])),
                    put("r", "a", "b", filter=chance.choice([None, "x"])),
                ]
            )
        )
    return operations


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(6))
def test_random_workloads_with_a_chain_of_routers(seed: int) -> None:
    operations = random_operations(seed, 16)
    assert crash_everywhere(tiny(1 + seed % 2), operations, [seed, KILL]) >= 60
