"""Directories with routers: copies that no log has are no damage; a repair keeps the routers."""

from pathlib import Path

from tests.unit.operate.conftest import Place

from topics.embedded import Log
from topics.operate.repair import repair
from topics.storage.disk.local_disk import LocalDisk


def fill(log: Log) -> None:
    """Leave copies in segments, copies that only the source can tell, and a write between them."""
    log.create("a", durability="fsync")
    log.engine.put_router("r", {"source": "a", "dest": "b"})
    log.append("a", [{"data": i} for i in range(5)])
    log.engine.forward_once()
    log.checkpoint()
    log.append("a", [{"data": i} for i in range(5, 9)])
    log.engine.forward_once()
    log.append("b", [{"data": "direct"}])


def test_copies_since_the_last_checkpoint_are_no_damage(tmp_path: Path) -> None:
    place = Place(tmp_path)
    log = place.open()
    fill(log)
    log.engine.abandon()
    assert place.verify().healthy
    with place.open() as log:
        assert [r.data for r in log.diff("b").records] == [*range(9), "direct"]
    assert place.verify().healthy


def test_a_repair_keeps_routers_and_forwards_what_only_the_source_has(tmp_path: Path) -> None:
    place, new = Place(tmp_path), Place(tmp_path / "new")
    log = place.open()
    fill(log)
    log.engine.abandon()
    new.data.mkdir(parents=True)
    report = repair(place.disk, into=LocalDisk(str(new.data)), into_name="new")
    assert report.verified
    with new.open() as log:
        assert [state.router for state in log.engine.routers()] == ["r"]
        log.append("a", [{"data": "new"}])
        shown, cursor = [], 0
        while cursor < log.state("b").head_seq:
            page = log.diff("b", from_seq=cursor)
            shown += [r.data for r in page.records]
            cursor = page.next_from_seq
    assert shown == [0, 1, 2, 3, 4, "direct", 5, 6, 7, 8, "new"]
