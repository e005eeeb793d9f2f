"""Whatever happens to segments, indexes and snapshots: what repair does not save, it names."""

import random
from pathlib import Path

import pytest
from tests.unit.operate.conftest import Place, flip, read_all, records

from topics.operate.inspect import inspect
from topics.operate.repair import repair
from topics.storage.disk.local_disk import LocalDisk

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_saved_or_named_and_none_comes_back(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    live = _write(place, chance)
    hits = [_damage(place, chance) for _ in range(chance.randint(1, 4))]
    place.verify()
    inspect(place.disk, cold=place.cold_disk)
    into = LocalDisk(str(place.root / "rescued"))
    report = repair(place.disk, cold=place.cold_disk, into=into, into_name="rescued")
    assert report.verified, hits
    (topic,) = report.topics
    lost = {seq for told in topic.lost for seq in range(told.first_seq, told.last_seq + 1)}
    place.data = place.root / "rescued"
    with place.open() as log:
        found, tombstones = read_all(log, topic.name)
    told = {seq for gap in tombstones for seq in range(gap.gap_from, gap.gap_to + 1)}
    assert set(found) <= live, f"{hits}: deleted records are back"
    assert live - set(found) <= lost, f"{hits}: silently lost"
    assert live - set(found) <= told, f"{hits}: readers are not told"
    assert not lost & set(found), f"{hits}: called lost, but there"


def _write(place: Place, chance: random.Random) -> set[int]:
    """Fill a directory with every kind of segment; return the seqs that are live at the end."""
    tiers = {"cold_dir": str(place.cold), "hot_retain_segments": 2} if chance.random() < 0.5 else {}
    with place.open(compact_dead_ratio=chance.choice([0.0, 0.3]), **tiers) as log:
        for first in range(1, 101, 5):
            place.clock.advance_ms(chance.randrange(3))
            log.append("orders", records(first, first + 4))
            if chance.random() < 0.2:
                log.delete("orders", match=["tag", "Eq", f"g:{chance.randrange(5)}"])
            if chance.random() < 0.3:
                log.checkpoint()
                log.engine.relocate()
        log.delete("orders", before_seq=chance.randrange(1, 20))
        log.engine.relocate()
        for _ in range(2):  # the second snapshot lets the log go
            log.checkpoint()
        return set(read_all(log, "orders")[0])


def _damage(place: Place, chance: random.Random) -> str:
    segments = [p for p in place.root.rglob("seg-*") if p.suffix in (".data", ".idx")]
    hot_indexes = set((place.data / "topics").rglob("*.idx"))
    # The hot index of a cold segment alone knows its newest deletes: see docs/operating/repair.md.
    files = [p for p in segments if p not in hot_indexes] if place.cold.exists() else segments
    files += place.snapshots()[:1]
    path = chance.choice(sorted(files))
    size = path.stat().st_size
    match chance.choice(["flip", "flip", "cut", "zero", "swap", "delete"]):
        case "flip" if size:
            flip(path, chance.randrange(size), bit=1 << chance.randrange(8))
        case "cut" if size:
            path.write_bytes(path.read_bytes()[: chance.randrange(size)])
        case "zero" if size:
            _zero(path, chance.randrange(size))
        case "swap":
            _swap(path, chance.choice(sorted(p for p in files if p.suffix == path.suffix)))
        case _:
            path.unlink()
    return path.name


def _zero(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + 80] = bytes(len(content[offset : offset + 80]))
    path.write_bytes(content)


def _swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
