"""The manifest of a topic, and pins: what is named stays, and only as long as it was promised."""

import pytest
from tests.unit.engine.place import Place

from topics.engine import maintenance
from topics.errors import LimitReached, PinNotFound, RequestError, TopicNotFound
from topics.limits import MAX_PIN_MS, MAX_PINS
from topics.model.segments import Manifest
from topics.storage.disk import paths
from topics.storage.segments.rewrite import Rewrite

MINUTE_MS = 60_000


def manifest_of(place: Place, pin_ms: int | None = None, owner: str = "") -> Manifest:
    engine = place.log.engine
    return engine.manifest(engine.topic("t"), pin_ms=pin_ms, owner=owner)


def ranges(manifest: Manifest) -> list[tuple[int, int, str, bool]]:
    return [(s.first_seq, s.last_seq, s.tier, s.sealed) for s in manifest.segments]


def filled(place: Place, count: int = 10) -> None:
    """Make three segments of four, four and two records, still hot."""
    place.open(hot_retain_segments=100)
    place.log.create("t", durability="fsync")
    for i in range(count):
        place.log.append("t", [{"data": i, "tag": f"n:{i}"}])
    place.log.engine.checkpoint()


@pytest.fixture
def place() -> Place:
    found = Place()
    found.log.close()
    filled(found)
    return found


def hot_files(place: Place) -> list[str]:
    topic = place.log.engine.topic("t")
    names = place.disk.list(paths.topic_dir(topic.id))
    return [name for name in names if name.endswith(".data")]


def test_a_manifest_names_what_a_checkpoint_has_written(place: Place) -> None:
    place.fill("t", 3)
    manifest = manifest_of(place)
    assert ranges(manifest) == [(1, 4, "hot", True), (5, 8, "hot", True), (9, 10, "hot", False)]
    assert (manifest.head_seq, manifest.earliest_seq, manifest.evict_floor) == (13, 1, 1)
    assert manifest.epoch == place.log.state("t").epoch
    assert manifest.pin is None
    for segment in manifest.segments:
        assert segment.location is not None
        data = segment.location.data.removeprefix("hostile:///")
        idx = segment.location.idx.removeprefix("hostile:///")
        assert place.disk.size(data) == segment.bytes
        assert place.disk.size(idx) == 20 * segment.records


def test_deleted_records_are_counted_apart(place: Place) -> None:
    place.log.delete("t", match="n:5")
    second = manifest_of(place).segments[1]
    assert (second.records, second.live_records) == (4, 3)


def test_records_in_memory_have_no_location(place: Place) -> None:
    place.log.create("e", durability="ephemeral")
    place.fill("e", 5)
    place.log.engine.checkpoint()
    engine = place.log.engine
    assert {s.location for s in engine.manifest(engine.topic("e")).segments} == {None}


def test_loss_is_named_and_deletes_are_not(place: Place) -> None:
    place.log.create("lossy", durability="disk")
    place.fill("lossy", 2)
    place.cut()
    engine = place.log.engine
    holes = engine.manifest(engine.topic("lossy")).holes
    assert holes
    assert {hole.reason for hole in holes} == {"crash"}
    assert manifest_of(place).holes == []


def test_a_pinned_segment_is_not_reclaimed_until_the_pin_ends(place: Place) -> None:
    pin = manifest_of(place, MINUTE_MS).pin
    assert pin is not None
    place.log.delete("t", before_seq=9)
    place.log.engine.maintain()
    assert len(hot_files(place)) == 3
    place.log.engine.pins.release(pin.id, owner="")
    assert place.log.engine.pins.take_released()
    place.log.engine.maintain()
    assert len(hot_files(place)) == 1


def test_a_pin_ends_by_itself(place: Place) -> None:
    assert manifest_of(place, MINUTE_MS).pin is not None
    place.log.delete("t", before_seq=9)
    place.clock.advance_ms(MINUTE_MS - 1)
    place.log.engine.maintain()
    assert len(hot_files(place)) == 3
    assert len(place.log.engine.pins) == 1
    place.clock.advance_ms(1)
    assert len(place.log.engine.pins) == 0
    place.log.engine.maintain()
    assert len(hot_files(place)) == 1


def test_a_renewed_pin_lasts_from_then_on(place: Place) -> None:
    pin = manifest_of(place, MINUTE_MS).pin
    assert pin is not None
    place.clock.advance_ms(MINUTE_MS - 1)
    place.log.engine.pins.renew(pin.id, owner="", pin_ms=MINUTE_MS)
    place.clock.advance_ms(MINUTE_MS - 1)
    place.log.engine.pins.sweep()
    assert len(place.log.engine.pins) == 1


def test_a_pinned_segment_is_not_rewritten_until_the_pin_ends(place: Place) -> None:
    pin = manifest_of(place, MINUTE_MS).pin
    assert pin is not None
    before = manifest_of(place).segments[0].bytes
    for i in range(3):
        place.log.delete("t", match=f"n:{i}")
    place.log.engine.maintain()
    assert manifest_of(place).segments[0].bytes == before
    place.log.engine.pins.release(pin.id, owner="")
    place.log.engine.maintain()
    assert manifest_of(place).segments[0].bytes < before


def test_a_pin_that_comes_while_a_rewrite_runs_stops_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = manifest_of(place).segments[0].bytes
    for i in range(3):
        place.log.delete("t", match=f"n:{i}")
    prepare = Rewrite.prepare

    def prepare_then_pin(rewrite: Rewrite) -> None:
        prepare(rewrite)
        manifest_of(place, MINUTE_MS)

    monkeypatch.setattr(Rewrite, "prepare", prepare_then_pin)
    place.log.engine.maintain()
    assert manifest_of(place).segments[0].bytes == before
    topic = place.log.engine.topic("t")
    assert not [n for n in place.disk.list(paths.topic_dir(topic.id)) if n.endswith(".tmp")]
    assert topic.segments()[0].marked_since is None


def test_a_pinned_segment_is_not_moved_until_the_pin_ends(place: Place) -> None:
    place.stop(hot_retain_segments=0)
    pin = manifest_of(place, MINUTE_MS).pin
    assert pin is not None
    assert place.log.engine.relocate() == 0
    place.log.engine.pins.release(pin.id, owner="")
    assert place.log.engine.relocate() == 2
    assert ranges(manifest_of(place))[0] == (1, 4, "cold", True)


def test_a_pin_that_comes_while_a_segment_is_copied_keeps_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.stop(hot_retain_segments=0)
    cold = place.log.engine.stores.cold
    assert cold is not None
    put = cold.put
    named: list[Manifest] = []

    def put_then_pin(topic_id: int, first_seq: int, *, data: bytes, idx: bytes) -> None:
        put(topic_id, first_seq, data=data, idx=idx)
        named.append(manifest_of(place, MINUTE_MS))

    monkeypatch.setattr(cold, "put", put_then_pin)
    assert place.log.engine.relocate() == 0
    location = named[0].segments[0].location
    assert location is not None
    assert place.disk.exists(location.data.removeprefix("hostile:///"))
    assert cold.list(place.log.engine.topic("t").id) == []


def test_a_segment_on_its_way_to_the_cold_tier_is_named_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.stop(hot_retain_segments=0)
    commit = place.log.engine.shards[0].commit
    commit_ticket = commit.commit
    named: list[Manifest] = []

    def look_then_commit(ticket: object) -> None:
        named.append(manifest_of(place))
        commit_ticket(ticket)  # type: ignore[arg-type]  # whatever the engine gave

    monkeypatch.setattr(commit, "commit", look_then_commit)
    assert place.log.engine.relocate() == 2
    first = named[0].segments[0]
    assert first.tier == "cold"
    assert first.location is not None
    assert place.cold_disk is not None
    assert place.cold_disk.exists(first.location.data.removeprefix("hostile:///"))
    assert place.disk.exists(first.location.idx.removeprefix("hostile:///"))


def test_a_segment_that_is_being_dropped_is_not_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.log.delete("t", before_seq=5)
    engine = place.log.engine
    shard, topic = engine.shards[0], engine.topic("t")
    commit_ticket = shard.commit.commit
    named: list[Manifest] = []

    def look_then_commit(ticket: object) -> None:
        named.append(manifest_of(place, MINUTE_MS))
        commit_ticket(ticket)  # type: ignore[arg-type]  # whatever the engine gave

    monkeypatch.setattr(shard.commit, "commit", look_then_commit)
    assert maintenance.reclaim(shard, topic, stores=engine.stores) == 1
    assert ranges(named[0])[0] == (5, 8, "hot", True)


def test_a_pin_holds_only_what_was_named(place: Place) -> None:
    pin = manifest_of(place, MINUTE_MS).pin
    assert pin is not None
    place.fill("t", 10)
    place.log.engine.checkpoint()
    topic = place.log.engine.topic("t")
    held = [segment.first_seq for segment in topic.segments() if topic.is_pinned(segment)]
    assert held == [1, 5, 9]


def test_a_dropped_topic_takes_its_files_and_its_pins_along(place: Place) -> None:
    pin = manifest_of(place, MINUTE_MS).pin
    assert pin is not None
    topic = place.log.engine.topic("t")
    place.log.drop("t")
    assert place.disk.list(paths.topic_dir(topic.id)) == []
    assert len(place.log.engine.pins) == 0
    with pytest.raises(PinNotFound):
        place.log.engine.pins.renew(pin.id, owner="", pin_ms=1)
    with pytest.raises(TopicNotFound):
        place.log.engine.manifest(topic)


def test_a_pin_belongs_to_whoever_made_it(place: Place) -> None:
    pins = place.log.engine.pins
    pin = manifest_of(place, MINUTE_MS, owner="one").pin
    assert pin is not None
    with pytest.raises(PinNotFound):
        pins.renew(pin.id, owner="two", pin_ms=MINUTE_MS)
    with pytest.raises(PinNotFound):
        pins.release(pin.id, owner="two")
    pins.release(pin.id, owner="one")
    with pytest.raises(PinNotFound):
        pins.release(pin.id, owner="one")


@pytest.mark.parametrize("pin_ms", [0, -1, MAX_PIN_MS + 1])
def test_a_pin_lasts_within_bounds(place: Place, pin_ms: int) -> None:
    with pytest.raises(RequestError):
        manifest_of(place, pin_ms)
    assert len(place.log.engine.pins) == 0


def test_pins_are_bounded_and_those_that_ran_out_make_room(place: Place) -> None:
    for _ in range(MAX_PINS):
        manifest_of(place, MINUTE_MS)
    with pytest.raises(LimitReached):
        manifest_of(place, MINUTE_MS)
    place.clock.advance_ms(MINUTE_MS)
    assert manifest_of(place, MINUTE_MS).pin is not None
    assert len(place.log.engine.topic("t").pins) == 1
