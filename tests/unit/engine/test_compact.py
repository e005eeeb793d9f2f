"""Cold segments lose their dead records, and nothing else of anything changes."""

import pytest
from tests.unit.engine.place import Place, seqs_of

from topics.errors import DiskFull
from topics.model.compact import Compacted
from topics.operate.verify import verify
from topics.storage.disk import paths
from topics.storage.segments.rewrite import Rewrite
from topics.testing.hostile_faults import FaultPlan

SEGMENTS = 5


@pytest.fixture
def place() -> Place:
    """Make four cold segments of four records and an active one; each n:i is one record of them."""
    found = Place()
    found.log.create("t", durability="fsync")
    for i in range(4 * SEGMENTS - 2):
        found.log.append("t", [{"data": "x" * 50 + str(i), "tag": f"n:{i % 4}:{i}"}])
    found.log.engine.checkpoint()
    found.log.engine.relocate()
    assert tiers(found) == ["cold"] * 4 + ["hot"]
    return found


def tiers(place: Place) -> list[str]:
    return [segment.tier for segment in place.log.engine.topic("t").segments()]


def compact(place: Place, ratio: float = 0.5, max_segments: int = 16) -> Compacted:
    engine = place.log.engine
    return engine.compact(engine.topic("t"), min_dead_ratio=ratio, max_segments=max_segments)


def delete(place: Place, *residues: int) -> None:
    for residue in residues:
        place.log.delete("t", match=["tag", "Glob", f"n:{residue}:*"])


def live(place: Place) -> list[tuple[int, object]]:
    return [(r.seq, r.data) for r in place.log.diff("t", limit=1000).records]


def cold_bytes(place: Place) -> int:
    topic = place.log.engine.topic("t")
    assert place.cold_disk is not None
    directory = paths.topic_dir(topic.id)
    names = place.cold_disk.list(directory)
    return sum(place.cold_disk.size(f"{directory}/{n}") for n in names if n.endswith(".data"))


def test_dead_records_leave_the_cold_tier(place: Place) -> None:
    delete(place, 0, 1, 2)
    before, size = live(place), cold_bytes(place)
    done = compact(place)
    assert (done.rewritten, done.remaining) == (4, 0)
    assert done.freed_bytes == size - cold_bytes(place) > 0
    assert tiers(place) == ["cold"] * 4 + ["hot"]
    assert live(place) == before
    assert compact(place).rewritten == 0


@pytest.mark.parametrize("how", ["stop", "kill", "cut"])
def test_what_is_compacted_stays_so(place: Place, how: str) -> None:
    delete(place, 0, 1, 2)
    before = live(place)
    compact(place)
    size = cold_bytes(place)
    getattr(place, how)()
    assert live(place) == before
    place.log.engine.relocate()  # the end of a hot file is not synced: it may be back
    assert tiers(place)[:4] == ["cold"] * 4
    assert cold_bytes(place) == size
    place.log.engine.abandon()
    assert verify(place.disk.kill(), cold=place.cold_disk and place.cold_disk.kill()).healthy


def test_a_deleted_last_record_stays_deleted_though_the_cold_copy_does_not_show_it(
    place: Place,
) -> None:
    delete(place, 1, 2, 3)
    before = live(place)
    assert compact(place, ratio=0.3).rewritten == 4
    assert live(place) == before
    place.cut()
    assert live(place) == before


def test_only_so_many_at_a_time_and_only_what_is_worth_it(place: Place) -> None:
    delete(place, 0)
    assert compact(place, ratio=0.5) == Compacted(
        topic="t", rewritten=0, freed_bytes=0, remaining=0
    )
    done = compact(place, ratio=0.1, max_segments=3)
    assert (done.rewritten, done.remaining) == (3, 1)
    done = compact(place, ratio=0.1, max_segments=3)
    assert (done.rewritten, done.remaining) == (1, 0)


def test_pinned_segments_are_left_alone(place: Place) -> None:
    delete(place, 0, 1, 2)
    engine = place.log.engine
    pin = engine.manifest(engine.topic("t"), pin_ms=1000).pin
    assert pin is not None
    assert compact(place).rewritten == 0
    place.clock.advance_ms(1000)
    assert compact(place).rewritten == 4


def test_a_delete_while_a_segment_is_rewritten_is_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(place, 0, 1)
    prepare = Rewrite.prepare

    def prepare_then_delete(rewrite: Rewrite) -> None:
        prepare(rewrite)
        place.log.delete("t", match="n:3:3")

    monkeypatch.setattr(Rewrite, "prepare", prepare_then_delete)
    assert compact(place, ratio=0.3).rewritten == 4
    seqs = seqs_of(place.log.diff("t", limit=1000))
    assert 4 not in seqs
    place.cut()
    assert seqs_of(place.log.diff("t", limit=1000)) == seqs


def test_segments_that_now_belong_in_the_hot_tier_stay_there(place: Place) -> None:
    delete(place, 0, 1, 2)
    before = live(place)
    place.stop(hot_retain_segments=100)
    assert compact(place).rewritten == 4
    assert set(tiers(place)) == {"hot"}
    assert cold_bytes(place) == 0
    place.cut()
    assert live(place) == before


def test_without_a_cold_tier_there_is_nothing_to_do() -> None:
    place = Place()
    place.log.create("t")
    place.fill("t", 3)
    assert compact(place).rewritten == 0


def test_a_full_disk_leaves_everything_as_it_was(place: Place) -> None:
    delete(place, 0, 1, 2)
    before, size = live(place), cold_bytes(place)
    place.disk.arm(
        FaultPlan().fail(operation="write_at", path="topics/*.tmp", error=DiskFull, forever=True)
    )
    with pytest.raises(DiskFull):
        compact(place)
    place.disk.arm(FaultPlan())
    topic = place.log.engine.topic("t")
    assert not [n for n in place.disk.list(paths.topic_dir(topic.id)) if n.endswith(".tmp")]
    assert {segment.marked_since for segment in topic.segments()} == {None}
    assert (live(place), cold_bytes(place)) == (before, size)
    assert compact(place).rewritten == 4


def test_a_topic_that_ends_meanwhile_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    delete(place, 0, 1, 2)
    topic = place.log.engine.topic("t")
    finish = Rewrite.finish
    monkeypatch.setattr(topic, "runs", [*topic.runs])
    prepare = Rewrite.prepare

    def prepare_then_forget(rewrite: Rewrite) -> None:
        prepare(rewrite)
        topic.runs = []

    monkeypatch.setattr(Rewrite, "prepare", prepare_then_forget)
    monkeypatch.setattr(Rewrite, "finish", lambda rewrite: pytest.fail(f"{finish} {rewrite}"))
    assert compact(place).rewritten == 0
    assert not [n for n in place.disk.list(paths.topic_dir(topic.id)) if n.endswith(".tmp")]
